//! Records which node leads, according to the nodes' own pages. Each node is polled by a task of its own, so that a
//! paused node does not delay the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::http::{self, HttpAddress};
use crate::measure::monotonic_us;

/// Interval of polls, far shorter than an election.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Microseconds without a reported leader after which the cluster may have no leader.
pub const SILENCE_US: i64 = 400_000;

/// The leaderships seen so far. Polling ends when this is dropped.
pub struct LeaderWatch {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

/// One leadership. Times are CLOCK_BOOTTIME in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLeadership {
    /// The epoch: the log index of its first entry.
    pub epoch: u64,
    /// The leader.
    pub node: String,
    /// Time at which the leadership was first seen.
    pub first_us: i64,
    /// Time at which the leadership was last seen.
    pub last_us: i64,
}

#[derive(Default)]
struct Seen {
    leaderships: BTreeMap<u64, SeenLeadership>,
    /// Time at which any leader was last seen.
    last_us: Option<i64>,
    /// Intervals without a leader.
    gaps: Vec<(i64, i64)>,
}

impl Seen {
    fn record(&mut self, epoch: u64, node: &str, now_us: i64) {
        let first = SeenLeadership { epoch, node: node.to_owned(), first_us: now_us, last_us: now_us };
        self.leaderships.entry(epoch).or_insert(first).last_us = now_us;
        let last_us = self.last_us.replace(now_us).unwrap_or(now_us);
        if now_us - last_us > SILENCE_US {
            self.gaps.push((last_us, now_us));
        }
    }
}

impl LeaderWatch {
    /// Starts to poll all nodes. Dropping the watch ends it.
    pub fn start(cluster: &Cluster) -> LeaderWatch {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut task = JoinSet::new();
        for node in cluster.nodes() {
            task.spawn(poll(node.name.clone(), node.http.clone(), Arc::clone(&seen)));
        }
        LeaderWatch { seen, _task: task }
    }

    /// Returns the latest leadership.
    pub fn latest(&self) -> Option<SeenLeadership> {
        self.seen().leaderships.values().next_back().cloned()
    }

    /// Returns all leaderships, by epoch.
    pub fn all(&self) -> Vec<SeenLeadership> {
        self.seen().leaderships.values().cloned().collect()
    }

    /// Returns the intervals without a leader in microseconds: from the time at which a leader was last seen to the
    /// time at which the next leader was first seen.
    pub fn gaps(&self) -> Vec<(i64, i64)> {
        let (seen, now_us) = (self.seen(), monotonic_us());
        let open = seen.last_us.filter(|last_us| now_us - last_us > SILENCE_US).map(|last_us| (last_us, now_us));
        seen.gaps.iter().copied().chain(open).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn poll(name: String, http: HttpAddress, seen: Arc<Mutex<Seen>>) {
    loop {
        if let Some(epoch) = http::epoch_led(&http).await {
            seen.lock().unwrap_or_else(PoisonError::into_inner).record(epoch, &name, monotonic_us());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
