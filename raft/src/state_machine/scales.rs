//! Tells what the applied state weighs: `reveille_ledger_bytes`.
//!
//! A look is a walk over all rows. It is made in portions, each under a read lock of its own, and so seldom that it
//! takes a fiftieth of a core at most, however large the state is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::Weight;
use tokio_util::sync::CancellationToken;

use crate::execution::Execution;
use crate::state_machine::applied_state::AppliedState;

/// Bytes of rows that are weighed under one lock: some hundreds of microseconds.
const PORTION: u64 = 64 * 1024;
/// From one look to the next, at least; and how many times as long as the look took.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_TIMES: u32 = 50;

/// Runs until `stop`.
pub(crate) async fn keep(applied_state: Arc<AppliedState>, execution: Execution, stop: CancellationToken) {
    let mut weighed = None;
    loop {
        let applied = *applied_state.applied.borrow();
        let begun = Instant::now();
        if weighed != Some(applied) {
            let applied_state = Arc::clone(&applied_state);
            let Ok(weight) = execution.blocking(move || look(&applied_state)).await else { return };
            metrics::gauge!("reveille_ledger_bytes", "kind" => "memory").set(weight.memory as f64);
            metrics::gauge!("reveille_ledger_bytes", "kind" => "disk").set(weight.disk as f64);
            weighed = Some(applied);
        }
        let pause = PAUSE.max(begun.elapsed() * PAUSE_TIMES);
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Each portion is of a state of its own: of a state that changes, the sum is about right.
fn look(applied_state: &AppliedState) -> Weight {
    let mut weight = Weight::default();
    let mut from = Some(Vec::new());
    while let Some(start) = from {
        let (some, next) = applied_state.ledger.read().weigh(&start, PORTION);
        weight += some;
        from = next;
    }
    weight
}
