//! Who is being prepared on this node, from `open` to the gate: many at once, or one alone (P12).
//!
//! A recipient that was open when a holder died may be what killed it. So it is prepared while nothing else is
//! open on its node: if the node dies again, the journal holds that one `open` and names the culprit, and
//! nobody else is suspected with it. The lanes ask here before they write `open`.
//!
//! What it promises: seats are given in the order in which they were asked for, so that nobody starves; one
//! who is to be alone waits until all before him are over, and those after him wait for him. Every wait is
//! bounded by its caller. What it is not: a bound on dialogues, which is the relay pools' (they give their
//! permit first).

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Seats: more than a node has sessions, so that only one who wants them all makes others wait.
const SEATS: u32 = 1 << 16;

/// The seats of one node.
pub(crate) struct Preparations(Arc<Semaphore>);

impl Preparations {
    pub fn new() -> Preparations {
        Preparations(Arc::new(Semaphore::new(SEATS as usize)))
    }

    /// A seat, or all of them. None when there was none by `deadline`.
    pub async fn begin(&self, alone: bool, deadline: Instant) -> Option<Arc<Preparation>> {
        let seats = Arc::clone(&self.0).acquire_many_owned(if alone { SEATS } else { 1 });
        let seat = timeout_at(deadline, seats).await.ok()?.ok()?;
        Some(Arc::new(Preparation(Mutex::new(Some(seat)))))
    }
}

/// One recipient that is being prepared; over when it is dropped, if not before.
pub(crate) struct Preparation(Mutex<Option<OwnedSemaphorePermit>>);

impl Preparation {
    /// Its gate is reached, or it will not get there: others may go on.
    pub fn over(&self) {
        drop(self.0.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn many_are_prepared_at_once_and_one_alone_waits_for_them() {
        let preparations = Preparations::new();
        let one = preparations.begin(false, in_a_minute()).await.expect("a seat");
        let other = preparations.begin(false, in_a_minute()).await.expect("another seat");
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(preparations.begin(true, soon).await.is_none(), "not while others are open");
        one.over();
        drop(other);
        assert!(preparations.begin(true, in_a_minute()).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn while_one_is_alone_nobody_else_begins() {
        let preparations = Preparations::new();
        let alone = preparations.begin(true, in_a_minute()).await.expect("all seats");
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(preparations.begin(false, soon).await.is_none());
        alone.over();
        alone.over();
        assert!(preparations.begin(false, in_a_minute()).await.is_some(), "over is over, however often it is said");
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_waits_to_be_alone_is_not_overtaken_for_ever() {
        let preparations = Arc::new(Preparations::new());
        let before = preparations.begin(false, in_a_minute()).await.expect("a seat");
        let waiting = Arc::clone(&preparations);
        let alone = tokio::spawn(async move { waiting.begin(true, in_a_minute()).await.is_some() });
        tokio::task::yield_now().await;
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(preparations.begin(false, soon).await.is_none(), "those after it wait");
        drop(before);
        assert!(alone.await.expect("it ends"));
    }
}
