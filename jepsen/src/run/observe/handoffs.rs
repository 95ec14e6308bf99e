//! Records every final dot that the sink read, and its answer.

use reveille_check::events::{Answered, Content, Event, Handoff};
use reveille_check::names::Name;
use reveille_sink::{Accepted, DotAnswer, DotWatcher};

use super::recorder::Recorder;

/// Returns the watcher for the sink. A sink that was stopped has reported every dot.
pub fn watcher(recorder: Recorder) -> DotWatcher {
    DotWatcher::new(move |accept, answer| {
        let answer = match answer {
            DotAnswer::Accepted => Answered::Accepted,
            DotAnswer::AcceptedUnanswered => Answered::AcceptedUnanswered,
            DotAnswer::Refused => Answered::Refused,
            DotAnswer::Nothing => Answered::Nothing,
            DotAnswer::Cut => Answered::Cut,
            DotAnswer::Malformed => Answered::Malformed,
        };
        recorder.event(&mail(&recorder, accept, answer));
    })
}

fn mail(recorder: &Recorder, accept: &Accepted, answer: Answered) -> Event {
    Event::Handoff(Handoff {
        data_ns: recorder.ns(accept.data_monotonic_us as i64),
        at_ns: recorder.ns(accept.accept_monotonic_us as i64),
        run: accept.headers.get("x-reveille-run").map(Name::from).unwrap_or_default(),
        recipient: Name::from(&accept.recipient),
        fence: accept.fence.as_deref().and_then(|fence| fence.parse().ok()),
        node: Name::from(&accept.ehlo),
        answer,
        message_id: accept.message_id.as_ref().map(Name::from),
        body: Some(Name::from(&accept.body_blake3)),
        content: accept.excerpt.as_deref().and_then(Content::read),
        repeated_headers: accept.repeated.clone(),
    })
}
