//! Tells what the applied state weighs: `reveille_ledger_bytes`.
//!
//! A look is a walk over all rows. It is made in portions, each under a read lock of its own, and so seldom that it
//! takes a fiftieth of a core at most, however large the state is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::Weight;
use tokio_util::sync::CancellationToken;

use crate::drive::Drive;
use crate::state_machine::applied_state::Core;

/// Bytes of rows that are weighed under one lock: some hundreds of microseconds.
const PORTION: u64 = 64 * 1024;
/// From one look to the next, at least; and how many times as long as the look took.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_TIMES: u32 = 50;

/// Runs until `stop`.
pub(crate) async fn keep(core: Arc<Core>, drive: Drive, stop: CancellationToken) {
    let mut weighed = None;
    loop {
        let applied = *core.applied.borrow();
        let begun = Instant::now();
        if weighed != Some(applied) {
            let core = Arc::clone(&core);
            let Ok(weight) = drive.blocking(move || look(&core)).await else { return };
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
fn look(core: &Core) -> Weight {
    let mut weight = Weight::default();
    let mut from = Some(Vec::new());
    while let Some(start) = from {
        let (some, next) = core.ledger.read().weigh(&start, PORTION);
        weight += some;
        from = next;
    }
    weight
}
