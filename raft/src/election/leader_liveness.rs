//! Records when this node last had contact with a leader that a quorum supports.
//!
//! Contacts are entries and heartbeats from a leader, this node's own election, and, while it leads, the answers of a
//! quorum. `peer/dispatch.rs` and `role.rs` record contacts; the router, the status and the health page read them.
//!
//! Raft does not report this: if the leader and the quorum die together, a follower still names that leader. The value
//! tells operators and callers if waiting makes sense. It is not a lease: no email depends on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;

use crate::Raft;

/// A node without contact for this long counts as leaderless. This is longer than any election: nine of ten take 1.2 s,
/// and two that fail in a row take about 2 s.
pub const LEADERLESS_AFTER: Duration = Duration::from_secs(3);

/// Time of the last contact with a leader. Clones share one state.
#[derive(Clone)]
pub(crate) struct LeaderLiveness {
    raft: Raft,
    sign: Arc<Mutex<Instant>>,
}

impl LeaderLiveness {
    /// Starts to measure the time without contact now.
    pub fn new(raft: Raft) -> LeaderLiveness {
        LeaderLiveness { raft, sign: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Records a contact: a leader was heard, this node was elected, or it initialized the cluster.
    pub fn record_contact(&self) {
        *self.sign.lock() = Instant::now();
    }

    /// Returns the time without contact. `None` while it is shorter than [`LEADERLESS_AFTER`].
    pub fn leaderless_for(&self) -> Option<Duration> {
        Some(self.silence()).filter(|silence| *silence >= LEADERLESS_AFTER)
    }

    /// Returns as soon as the time without contact reaches [`LEADERLESS_AFTER`].
    pub async fn leaderless(&self) {
        while let Some(left) = LEADERLESS_AFTER.checked_sub(self.silence()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    /// Returns the time without contact.
    pub fn silence(&self) -> Duration {
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
    // The clock is read before `elapsed`, so the returned instant may be too early but never too late.
    let now = Instant::now();
    now.checked_sub(metrics.last_quorum_acked?.into_inner().elapsed())
}
