//! Tenants take turns for the sessions of a pool, whatever number of rows each has on this node (I12).
//!
//! A relay's sessions go to whoever asked first. If each row asked for itself, a tenant with twenty rows would get
//! twenty of twenty-one, and another one's few mails would wait behind them, though the dispatcher had shared out
//! claims fairly. So of a tenant only one row at a time stands in a pool's queue; its others wait for that one's turn
//! to be over, in the order in which they came.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

/// Tenants and pools of which somebody waits here; those of which nobody does are forgotten beyond this.
const KNOWN_MAX: usize = 256;

/// One passes at a time, in the order of asking.
type Queue = Arc<Turnstile<()>>;

/// The turns of one life of a node: queues by tenant and pool.
#[derive(Default)]
pub(crate) struct Turns(Mutex<BTreeMap<(String, String), Queue>>);

/// A tenant's place in the queue of a pool; over when it is dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

/// Where the rows of one tenant wait for one pool.
#[derive(Clone)]
pub(crate) struct Waiting(Queue);

impl Turns {
    /// Where the rows of this tenant wait for this pool.
    pub fn of(&self, tenant: &str, pool: &str) -> Waiting {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, turnstile| Arc::strong_count(turnstile) > 1);
        }
        Waiting(Arc::clone(known.entry((tenant.to_owned(), pool.to_owned())).or_default()))
    }
}

impl Waiting {
    /// The tenant's turn; none when it has not come by `deadline`.
    pub async fn turn(&self, deadline: Instant) -> Option<Turn> {
        timeout_at(deadline, Arc::clone(&self.0).lock_owned()).await.ok().map(Turn)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// Rows that each want sessions again and again, by tenant; answers how many each tenant got.
    async fn shares(turns: Arc<Turns>, rows: [u32; 2]) -> [u32; 2] {
        let (sessions, got) = (Arc::new(Semaphore::new(2)), Arc::new([AtomicU32::new(0), AtomicU32::new(0)]));
        let mut tasks = tokio::task::JoinSet::new();
        for (tenant, rows) in rows.into_iter().enumerate() {
            for _ in 0..rows {
                let (sessions, got) = (Arc::clone(&sessions), Arc::clone(&got));
                let waiting = turns.of(&tenant.to_string(), "default");
                tasks.spawn(async move {
                    loop {
                        let turn = waiting.turn(Instant::now() + Duration::from_secs(60)).await.expect("a turn");
                        let session = Arc::clone(&sessions).acquire_owned().await.expect("a session");
                        drop(turn);
                        got[tenant].fetch_add(1, Ordering::Relaxed);
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                            drop(session);
                        });
                    }
                });
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        [0, 1].map(|tenant: usize| got[tenant].load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_many_rows_gets_no_more_than_one_with_few() {
        let [many, few] = shares(Arc::default(), [20, 1]).await;
        assert!(many + few > 3_000, "the sessions are never idle: {many} and {few}");
        assert!(many.abs_diff(few) * 20 < many + few, "{many} and {few}");
        let [alone, _] = shares(Arc::default(), [20, 0]).await;
        assert!(alone > 3_000, "alone it has all of them: {alone}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_too_long_gets_none_and_holds_up_nobody() {
        let turns = Turns::default();
        let waiting = turns.of("a", "default");
        let first = waiting.turn(Instant::now() + Duration::from_secs(60)).await.expect("a turn");
        assert!(waiting.turn(Instant::now() + Duration::from_secs(1)).await.is_none());
        assert!(turns.of("b", "default").turn(Instant::now()).await.is_some(), "another tenant");
        assert!(turns.of("a", "other").turn(Instant::now()).await.is_some(), "another pool");
        drop(first);
        assert!(waiting.turn(Instant::now() + Duration::from_secs(1)).await.is_some());
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let turns = Turns::default();
        let kept = turns.of("kept", "default");
        for number in 0..2 * KNOWN_MAX {
            drop(turns.of(&number.to_string(), "default"));
        }
        assert!(turns.0.lock().len() <= KNOWN_MAX);
        assert!(Arc::ptr_eq(&kept.0, &turns.of("kept", "default").0));
    }
}
