//! The observers of a run. Each writes to the history what it sees: final dots and accepts of the sink, gate counters,
//! leaders, lifetimes of processes; and at the end the final state of every recipient, run and object.

pub mod drain;
pub mod final_state;
mod gates;
pub mod handoffs;
mod lifetimes;
pub mod outages;
mod recipients;
mod recorder;

use reveille_check::events::Answer;
use reveille_harness::CallResult;

pub use gates::GateReader;
pub use lifetimes::Lifetimes;
pub use recipients::LedgerTimeline;
pub use recorder::Recorder;

/// Returns a result in the format of histories. `done` makes the answer of an executed call.
pub fn answer_of<T>(result: CallResult<T>, done: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        CallResult::Done(answer) => done(answer),
        CallResult::Refused(reason) => Answer::Failed { reason },
        CallResult::Unknown => Answer::Unknown,
    }
}
