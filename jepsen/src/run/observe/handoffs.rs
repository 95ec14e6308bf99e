//! Records every final dot that the sink read, and its answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use reveille_check::events::{Answered, Content, Event, Mail};
use reveille_sink::{Accepted, DialogueState, DotAnswer, DotWatcher, Sink};

use super::recorder::Recorder;

/// Connection, instant of the dot, recipient.
type HandoffKey = (u64, u64, String);

/// The dots that were recorded; a handle, cheap to clone.
#[derive(Clone, Default)]
pub struct HandoffRecorder {
    recorded: Arc<Mutex<BTreeSet<HandoffKey>>>,
}

impl HandoffRecorder {
    /// The watcher for the sink.
    pub fn watcher(&self, recorder: &Recorder) -> DotWatcher {
        let (dots, recorder) = (self.clone(), recorder.clone());
        DotWatcher::new(move |accept, answer| {
            let answer = match answer {
                DotAnswer::Accepted => Answered::Accepted,
                DotAnswer::AcceptedUnanswered => Answered::AcceptedUnanswered,
                DotAnswer::Refused => Answered::Refused,
                DotAnswer::Nothing => Answered::Nothing,
                DotAnswer::Cut => Answered::Cut,
                DotAnswer::Malformed => Answered::Malformed,
            };
            // A dialogue may be answered after the rest was recorded.
            if dots.recorded.lock().unwrap_or_else(PoisonError::into_inner).insert(dot(accept)) {
                recorder.event(&mail(&recorder, accept, answer));
            }
        })
    }

    /// Records accepts whose dialogues are not answered yet. False if a message was read and is neither accepted nor
    /// answered: its outcome is open.
    pub fn record_rest(&self, recorder: &Recorder, sink: &Sink) -> bool {
        // First, so that no lock of the sink is taken under ours.
        let open = sink.connections();
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, accept) in sink.emails().iter() {
            if recorded.insert(dot(accept)) {
                recorder.event(&mail(recorder, accept, Answered::AcceptedUnanswered));
            }
        }
        let waiting = open.iter().filter(|dialogue| dialogue.state == DialogueState::AfterDot);
        let mut unanswered = waiting.flat_map(|dialogue| &dialogue.unanswered);
        unanswered.all(|accept| recorded.contains(&dot(accept)))
    }
}

fn dot(accept: &Accepted) -> HandoffKey {
    (accept.connection, accept.accept_monotonic_us, accept.recipient.clone())
}

fn mail(recorder: &Recorder, accept: &Accepted, answer: Answered) -> Event {
    Event::Mail(Mail {
        data_ns: recorder.ns(accept.data_monotonic_us as i64),
        at_ns: recorder.ns(accept.accept_monotonic_us as i64),
        run: accept.headers.get("x-reveille-run").cloned(),
        recipient: accept.recipient.clone(),
        fence: accept.fence.as_deref().and_then(|fence| fence.parse().ok()),
        node: accept.ehlo.clone(),
        connection: accept.connection,
        answer,
        message_id: accept.message_id.clone(),
        body: Some(accept.body_blake3.clone()),
        content: accept.excerpt.as_deref().and_then(Content::read),
        repeated_headers: accept.repeated.clone(),
    })
}
