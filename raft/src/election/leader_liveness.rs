//! When this node last had a sign of a leader that a quorum stands behind.
//!
//! Signs are entries and heartbeats that it took from a leader, its own election, and, while it leads, the
//! answers of a quorum. Called by whoever receives entries (`peer/dispatch.rs`) and whoever follows the role
//! (`role.rs`); asked by the way of a proposal or a read (`routing.rs`), by the status, and by the health page.
//!
//! Raft itself does not tell: a follower whose leader died together with the quorum goes on naming it, because
//! without a quorum nobody else is ever elected. This is for people, and for whether waiting is of use.
//! Nothing that touches the world rests on it: it is no lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;

use crate::Raft;

/// A silence longer than any election: nine in ten take 1.2 s, and two that fail one after the other some 2 s.
pub const LEADERLESS_AFTER: Duration = Duration::from_secs(3);

/// Shared by whoever hears and whoever asks.
#[derive(Clone)]
pub(crate) struct LeaderLiveness {
    raft: Raft,
    sign: Arc<Mutex<Instant>>,
}

impl LeaderLiveness {
    /// A node that starts has heard of nobody yet, and elections take their time: its silence begins now.
    pub fn new(raft: Raft) -> LeaderLiveness {
        LeaderLiveness { raft, sign: Arc::new(Mutex::new(Instant::now())) }
    }

    /// A leader spoke, this node was elected, or its cluster was made just now.
    pub fn record_contact(&self) {
        *self.sign.lock() = Instant::now();
    }

    /// For how long there was no sign, once that is longer than an election takes.
    pub fn leaderless_for(&self) -> Option<Duration> {
        Some(self.silence()).filter(|silence| *silence >= LEADERLESS_AFTER)
    }

    /// Returns when there was no sign for longer than an election takes.
    pub async fn leaderless(&self) {
        while let Some(left) = LEADERLESS_AFTER.checked_sub(self.silence()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    fn silence(&self) -> Duration {
        let sign = *self.sign.lock();
        last_quorum_acked(&self.raft).map_or(sign, |acked| acked.max(sign)).elapsed()
    }
}

/// See [`crate::Replica::last_quorum_acked`].
pub(crate) fn last_quorum_acked(raft: &Raft) -> Option<Instant> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    if metrics.state != openraft::ServerState::Leader {
        return None;
    }
    if metrics.membership_config.voter_ids().eq([metrics.id]) {
        // openraft counts the answers of others; alone, this node is its quorum at any time.
        return Some(Instant::now());
    }
    // Our clock is read first, so what the conversion loses makes the instant earlier, never later.
    let now = Instant::now();
    now.checked_sub(metrics.last_quorum_acked?.into_inner().elapsed())
}
