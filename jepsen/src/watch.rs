//! Watches who leads, by each node's own word. Nodes are asked each by a task of its own, so that one which is
//! paused hides no other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::measure::monotonic_us;
use crate::pages;

/// Far shorter than an epoch: a leader needs an election to follow another.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A leader is asked ten times a second; when nobody has said for longer than this that it leads, there may be none.
pub const SILENCE_US: i64 = 400_000;

/// Writes down every epoch that a node says it leads; ends when it is dropped.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

/// A leadership, as it was first and last seen. Instants of CLOCK_BOOTTIME, microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Log index of its first entry.
    pub epoch: u64,
    /// Who leads; none where only a mail named it.
    pub node: Option<String>,
    /// When it was first seen.
    pub first_us: i64,
    /// When it last said so.
    pub last_us: i64,
}

#[derive(Default)]
struct Seen {
    leaderships: BTreeMap<u64, Leadership>,
    /// The last word of any leader.
    word_us: Option<i64>,
    /// From a word to the next one, where it was long in coming.
    silences: Vec<(i64, i64)>,
}

impl Seen {
    fn hears(&mut self, epoch: u64, node: &str, now_us: i64) {
        let first = Leadership { epoch, node: None, first_us: now_us, last_us: now_us };
        let leadership = self.leaderships.entry(epoch).or_insert(first);
        leadership.node = Some(node.to_owned());
        leadership.last_us = now_us;
        let last_us = self.word_us.replace(now_us).unwrap_or(now_us);
        if now_us - last_us > SILENCE_US {
            self.silences.push((last_us, now_us));
        }
    }
}

impl Watch {
    /// Asks all nodes, again and again.
    pub fn start(cluster: &Cluster) -> Watch {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut task = JoinSet::new();
        for node in cluster.nodes() {
            task.spawn(look(node.name.clone(), node.http, Arc::clone(&seen)));
        }
        Watch { seen, _task: task }
    }

    /// How many epochs there were since the watch began.
    pub fn epochs(&self) -> u64 {
        self.seen().leaderships.len() as u64
    }

    /// An epoch that was seen elsewhere, in the fence of a mail for example.
    pub fn saw(&self, epoch: u64) {
        let now = monotonic_us();
        let unnamed = Leadership { epoch, node: None, first_us: now, last_us: now };
        self.seen().leaderships.entry(epoch).or_insert(unnamed);
    }

    /// The latest leadership that a node told of.
    pub fn latest(&self) -> Option<Leadership> {
        self.seen().leaderships.values().rev().find(|leadership| leadership.node.is_some()).cloned()
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<Leadership> {
        self.seen().leaderships.values().cloned().collect()
    }

    /// When nobody said that it leads, the time since the last word among it: from, until.
    pub fn silences(&self) -> Vec<(i64, i64)> {
        let (seen, now_us) = (self.seen(), monotonic_us());
        let open = seen.word_us.filter(|word_us| now_us - word_us > SILENCE_US).map(|word_us| (word_us, now_us));
        seen.silences.iter().copied().chain(open).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look(name: String, http: SocketAddr, seen: Arc<Mutex<Seen>>) {
    loop {
        if let Some(epoch) = pages::epoch_led(http).await {
            seen.lock().unwrap_or_else(PoisonError::into_inner).hears(epoch, &name, monotonic_us());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
