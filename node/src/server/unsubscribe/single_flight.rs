//! Runs one opt-out of a recipient at a time. Repeated clicks or requests cost the cluster at most one entry and one
//! barrier per second.
//!
//! A request that arrives while an opt-out of the same recipient runs does not share its answer. That entry may be
//! older than the click, and an operator may revoke it in between (P15). All waiting requests share the next opt-out,
//! which begins after each of them arrived. It begins [`APART`] after the previous one began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Minimum time between the starts of two opt-outs of the same recipient.
pub const APART: Duration = Duration::from_secs(1);

/// Tenant and address key.
type RequestKey = (String, String);

/// The waiting requests of each recipient.
pub struct SingleFlight<A> {
    lines: Mutex<BTreeMap<RequestKey, Arc<Line<A>>>>,
}

/// The waiting requests of one recipient, served in order of arrival.
struct Line<A> {
    turn: tokio::sync::Mutex<()>,
    latest: Mutex<Option<Latest<A>>>,
}

/// The last opt-out of a recipient.
struct Latest<A> {
    began: Instant,
    /// `None` while the opt-out runs, and if its caller was cancelled.
    answer: Option<A>,
}

impl<A: Clone> SingleFlight<A> {
    /// Creates it without waiting requests.
    pub fn new() -> SingleFlight<A> {
        SingleFlight { lines: Mutex::new(BTreeMap::new()) }
    }

    /// Returns the answer of an `act` that began after this call: its own `act` or that of another waiting request.
    /// Returns `None` if its turn does not come by `deadline`. A cancelled `act` gives no answer.
    pub async fn take(&self, place: RequestKey, deadline: Instant, act: impl Future<Output = A>) -> Option<A> {
        let came = Instant::now();
        let line = self.line(place);
        let _turn = timeout_at(deadline, line.turn.lock()).await.ok()?;
        let (next, shared) = line.next_turn(came);
        if shared.is_some() {
            return shared;
        }
        if next > deadline {
            return None;
        }
        sleep_until(next).await;
        *line.latest.lock() = Some(Latest { began: Instant::now(), answer: None });
        let answer = act.await;
        if let Some(latest) = &mut *line.latest.lock() {
            latest.answer = Some(answer.clone());
        }
        Some(answer)
    }

    /// Returns the recipient's line. Drops lines that have no waiting requests and whose next turn is not in the
    /// future.
    fn line(&self, place: RequestKey) -> Arc<Line<A>> {
        let mut lines = self.lines.lock();
        let now = Instant::now();
        lines.retain(|_, line| Arc::strong_count(line) > 1 || line.next() > now);
        let new = || Arc::new(Line { turn: tokio::sync::Mutex::new(()), latest: Mutex::new(None) });
        Arc::clone(lines.entry(place).or_insert_with(new))
    }
}

impl<A: Clone> Line<A> {
    /// Returns when the next turn may begin. Also returns the latest answer if its `act` began after `came`.
    fn next_turn(&self, came: Instant) -> (Instant, Option<A>) {
        let latest = self.latest.lock();
        let Some(latest) = &*latest else { return (came, None) };
        (latest.began + APART, latest.answer.clone().filter(|_| latest.began > came))
    }

    fn next(&self) -> Instant {
        self.next_turn(Instant::now()).0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    fn place(key: &str) -> RequestKey {
        ("default".to_owned(), key.to_owned())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(15)
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_one_action_that_began_after_them() {
        let turns = Arc::new(SingleFlight::new());
        let (acts, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let mut clicks = JoinSet::new();
        for click in 0..50 {
            let (turns, acts, gate) = (Arc::clone(&turns), Arc::clone(&acts), Arc::clone(&gate));
            clicks.spawn(async move {
                let act = async {
                    let number = acts.fetch_add(1, Ordering::Relaxed) + 1;
                    gate.acquire().await.expect("open").forget();
                    number
                };
                (click, turns.take(place("ann@example.com"), soon(), act).await)
            });
            // The first opt-out runs before the other requests arrive.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(acts.load(Ordering::Relaxed), 1, "one at a time");
        gate.add_permits(50);
        for (click, answer) in clicks.join_all().await {
            assert_eq!(answer, Some(if click == 0 { 1 } else { 2 }), "click {click}");
        }
        assert_eq!(acts.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_key_waits_a_second_and_others_do_not() {
        let turns = SingleFlight::new();
        let begun = Instant::now();
        let mut began = Vec::new();
        for key in ["ann", "ann", "bob", "ann"] {
            turns.take(place(key), soon(), async { began.push(begun.elapsed().as_secs()) }).await.expect("a turn");
        }
        assert_eq!(began, [0, 1, 1, 2]);
        assert_eq!(turns.take(place("ann"), Instant::now(), async {}).await, None, "not by then");
        tokio::time::sleep(2 * APART).await;
        turns.take(place("eve"), soon(), async {}).await.expect("a turn");
        assert_eq!(turns.lines.lock().len(), 1, "a line without waiters is dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_act_gives_no_answer_and_still_counts() {
        let turns = SingleFlight::new();
        let begun = Instant::now();
        let left = turns.take(place("ann"), soon(), std::future::pending::<u32>());
        tokio::time::timeout(Duration::from_millis(10), left).await.expect_err("it left");
        assert_eq!(turns.take(place("ann"), soon(), async { 7 }).await, Some(7));
        assert!(begun.elapsed() >= APART);
    }
}
