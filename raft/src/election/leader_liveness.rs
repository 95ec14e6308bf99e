//! When this node last had contact with a leader that a quorum supports.
//!
//! Contacts are entries and heartbeats from a leader, this node's own election, and, while it leads, the answers of a quorum.
//! `peer/dispatch.rs` and `role.rs` record them; the router, the status and the health page ask.
//!
//! Raft does not report this: a follower whose leader died together with the quorum goes on naming that leader. The value is
//! for operators and for deciding whether waiting makes sense. It is no lease: no email depends on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;

use crate::Raft;

/// Longer than any election: nine of ten take 1.2 s, and two that fail in a row about 2 s.
pub const LEADERLESS_AFTER: Duration = Duration::from_secs(3);

/// Clones share one state.
#[derive(Clone)]
pub(crate) struct LeaderLiveness {
    raft: Raft,
    sign: Arc<Mutex<Instant>>,
}

impl LeaderLiveness {
    /// The time without contact begins now.
    pub fn new(raft: Raft) -> LeaderLiveness {
        LeaderLiveness { raft, sign: Arc::new(Mutex::new(Instant::now())) }
    }

    /// A leader was heard, this node was elected, or its cluster was made.
    pub fn record_contact(&self) {
        *self.sign.lock() = Instant::now();
    }

    /// Time without contact, once it is longer than an election takes.
    pub fn leaderless_for(&self) -> Option<Duration> {
        Some(self.silence()).filter(|silence| *silence >= LEADERLESS_AFTER)
    }

    /// Returns when there was no contact for longer than an election takes.
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
        // openraft counts the answers of other nodes; a single voter is its own quorum.
        return Some(Instant::now());
    }
    // This clock is read first, so that the conversion makes the instant earlier, never later.
    let now = Instant::now();
    now.checked_sub(metrics.last_quorum_acked?.into_inner().elapsed())
}
