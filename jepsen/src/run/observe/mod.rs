//! The observers of a run. Each writes to the history what it sees: final dots and accepts of the sink, gate counters,
//! leaders, lifetimes of processes; and at the end the final state of every recipient, run and object.

pub mod drain;
mod events;
pub mod files;
pub mod final_state;
mod gates;
mod recipients;
mod recorder;

use reveille_check::events::{Answer, Answered, Content, EpochStarted, Event, Handoff, Outage};
use reveille_check::names::Name;
use reveille_harness::CallResult;
use reveille_harness::leader_watch::LeaderWatch;
use reveille_sink::{Accepted, DotAnswer, DotWatcher};
use serde::de::DeserializeOwned;

pub use events::EventFollower;
pub use gates::GateReader;
pub use recipients::LedgerRecorder;
pub use recorder::Recorder;

/// Returns a result in the format of histories. `done` makes the answer of an executed call.
pub fn answer_of<T>(result: CallResult<T>, done: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        CallResult::Done(answer) => done(answer),
        CallResult::Refused(reason) => Answer::Failed { reason },
        CallResult::Unknown => Answer::Unknown,
    }
}

/// Returns the value of the history for a value of the API, by its name: `RUN_CAUSE_CATCH_UP` is `catch_up`. `None`:
/// the history has no such value.
fn same_name<T: DeserializeOwned>(name: &str, prefix: &str) -> Option<T> {
    serde_json::from_value(name.strip_prefix(prefix)?.to_lowercase().into()).ok()
}

/// Returns a time of the API in Unix milliseconds.
fn millis(at: &prost_types::Timestamp) -> i64 {
    at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000
}

/// Returns the watcher for the sink. It records every final dot that the sink read, and its answer. A sink that was
/// stopped has reported every dot.
pub fn dot_watcher(recorder: Recorder) -> DotWatcher {
    DotWatcher::new(move |accept, answer| {
        let answer = match answer {
            DotAnswer::Accepted => Answered::Accepted,
            DotAnswer::AcceptedUnanswered => Answered::AcceptedUnanswered,
            DotAnswer::Refused => Answered::Refused,
            DotAnswer::Nothing => Answered::Nothing,
            DotAnswer::Cut => Answered::Cut,
            DotAnswer::Malformed => Answered::Malformed,
        };
        recorder.event(&Event::Handoff(handoff(&recorder, accept, answer)));
    })
}

fn handoff(recorder: &Recorder, accept: &Accepted, answer: Answered) -> Handoff {
    Handoff {
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
    }
}

/// Records the intervals without a leader, and every leadership, as the nodes' pages showed them until now.
pub fn record_leaders(watch: &LeaderWatch, recorder: &Recorder) {
    for (from_us, until_us) in watch.gaps() {
        let (from_ns, until_ns) = (recorder.ns(from_us), recorder.ns(until_us));
        recorder.event(&Event::Outage(Outage { from_ns, until_ns }));
    }
    for leadership in watch.all() {
        let at_ns = recorder.ns(leadership.first_us);
        recorder.event(&Event::EpochStarted(EpochStarted { at_ns, epoch: leadership.epoch }));
    }
}

#[cfg(test)]
mod tests {
    use reveille_check::events::{Decider, PassedOver, RecipientState, RunCause};
    use reveille_proto::admin::v1 as api;

    use super::same_name;

    #[test]
    fn each_value_of_the_api_has_a_name_in_histories() {
        for cause in (1..).map_while(|number| api::RunCause::try_from(number).ok()) {
            assert!(same_name::<RunCause>(cause.as_str_name(), "RUN_CAUSE_").is_some(), "{cause:?}");
        }
        for decider in (1..).map_while(|number| api::Decider::try_from(number).ok()) {
            assert!(same_name::<Decider>(decider.as_str_name(), "DECIDER_").is_some(), "{decider:?}");
        }
        for state in (1..).map_while(|number| api::RecipientState::try_from(number).ok()) {
            assert!(same_name::<RecipientState>(state.as_str_name(), "RECIPIENT_STATE_").is_some(), "{state:?}");
        }
        // A run that opened is no instant that was passed over.
        let first = api::HistoryOutcome::Fired as i32 + 1;
        for outcome in (first..).map_while(|number| api::HistoryOutcome::try_from(number).ok()) {
            assert!(same_name::<PassedOver>(outcome.as_str_name(), "HISTORY_OUTCOME_").is_some(), "{outcome:?}");
        }
    }
}
