//! Runs one opt-out of a link at a time: repeated clicks, by hand or by a machine, cost
//! the cluster an entry and a barrier a second, and not one each time.
//!
//! A request that comes while an opt-out of the same recipient is at work does not share its answer: that entry may be
//! older than the click, and an operator may take it back in between (P15). All waiting requests share the next one,
//! which begins after each of them came. It begins [`APART`] after the former one began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

/// From the beginning of one opt-out of a recipient to that of the next.
pub const APART: Duration = Duration::from_secs(1);

/// Tenant and address key.
type RequestKey = (String, String);

/// Whose turn it is, for each recipient.
pub struct SingleFlight<A> {
    lines: Mutex<BTreeMap<RequestKey, Arc<Line<A>>>>,
}

/// The waiting requests of one recipient, first come first.
struct Line<A> {
    turn: tokio::sync::Mutex<()>,
    latest: Mutex<Option<Latest<A>>>,
}

/// What was done last.
struct Latest<A> {
    began: Instant,
    /// None while it is at work, and where its caller was cancelled.
    answer: Option<A>,
}

impl<A: Clone> SingleFlight<A> {
    /// Without waiters.
    pub fn new() -> SingleFlight<A> {
        SingleFlight { lines: Mutex::new(BTreeMap::new()) }
    }

    /// The answer of an `act` that began after this call: shared with another waiter, or this call's own. None
    /// where its turn does not come by `deadline`. An `act` that is cancelled gives no answer.
    pub async fn take(&self, place: RequestKey, deadline: Instant, act: impl Future<Output = A>) -> Option<A> {
        let came = Instant::now();
        let line = self.line(place);
        let _turn = timeout_at(deadline, line.turn.lock()).await.ok()?;
        let (next, shared) = line.look(came);
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

    /// Lines without waiters are dropped, except those whose next turn is still to come.
    fn line(&self, place: RequestKey) -> Arc<Line<A>> {
        let mut lines = self.lines.lock();
        let now = Instant::now();
        lines.retain(|_, line| Arc::strong_count(line) > 1 || line.next() > now);
        let new = || Arc::new(Line { turn: tokio::sync::Mutex::new(()), latest: Mutex::new(None) });
        Arc::clone(lines.entry(place).or_insert_with(new))
    }
}

impl<A: Clone> Line<A> {
    /// When the next turn may begin; and the answer of the latest, where that began after `came`.
    fn look(&self, came: Instant) -> (Instant, Option<A>) {
        let latest = self.latest.lock();
        let Some(latest) = &*latest else { return (came, None) };
        (latest.began + APART, latest.answer.clone().filter(|_| latest.began > came))
    }

    fn next(&self) -> Instant {
        self.look(Instant::now()).0
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
    async fn all_who_wait_share_one_that_began_after_they_came() {
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
            // The first is at work before the others come.
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
    async fn who_comes_again_waits_for_a_second_and_others_do_not() {
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
