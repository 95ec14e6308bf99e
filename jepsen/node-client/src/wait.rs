//! Waits for something outside of this process, by polls.

use std::time::{Duration, Instant};

/// Interval of polls.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Polls until `holds`, for at most `within`. Returns true if it holds.
pub async fn until<F: Future<Output = bool>>(within: Duration, holds: impl Fn() -> F) -> bool {
    let holds = &holds;
    for_some(within, || async move { holds().await.then_some(()) }).await.is_some()
}

/// Polls until `find` returns a value, for at most `within`. Returns the value.
pub async fn for_some<T, F: Future<Output = Option<T>>>(within: Duration, find: impl Fn() -> F) -> Option<T> {
    let until = Instant::now() + within;
    loop {
        let found = find().await;
        if found.is_some() || Instant::now() > until {
            return found;
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
