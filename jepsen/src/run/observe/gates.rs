//! Reads each node's counter of handoffs that passed its gate (I14). It polls, because a killed process loses the
//! counter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reveille_check::events::{Event, GateReading};
use tokio::task::JoinSet;

use super::lifetimes::Lifetimes;
use super::recorder::Recorder;
use reveille_harness::Cluster;
use reveille_harness::http::{self, HttpAddress};

/// Name of the counter in docs/reference/monitoring.md.
const COUNTER: &str = "reveille_gate_passes_total";
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of tries at the end, for a busy node.
const TRIES_MAX: u32 = 5;

/// The readings. Dropping this value ends the polling.
pub struct GateReader {
    seen: Arc<Mutex<Vec<CounterReading>>>,
    _tasks: JoinSet<()>,
}

struct CounterReading {
    node: String,
    asked_ns: u64,
    answered_ns: u64,
    passes: u64,
}

impl GateReader {
    /// Starts to poll all nodes, each by a task of its own.
    pub fn start(cluster: &Cluster, recorder: &Recorder) -> GateReader {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for node in cluster.nodes() {
            tasks.spawn(poll(node.name.clone(), node.http.clone(), recorder.clone(), Arc::clone(&seen)));
        }
        GateReader { seen, _tasks: tasks }
    }

    /// Records the readings of each process, and reads the members' processes once more. Returns false if one of these
    /// did not answer.
    pub async fn record(
        self,
        cluster: &Cluster,
        members: &[String],
        recorder: &Recorder,
        lifetimes: &Lifetimes,
    ) -> bool {
        for CounterReading { node, asked_ns, answered_ns, passes } in
            std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
        {
            let lifetime = lifetimes.during(&node, asked_ns, answered_ns);
            if let Some(incarnation) = lifetime.and_then(|lifetime| lifetime.incarnation) {
                recorder.event(&Event::GateReading(GateReading { at_ns: Some(asked_ns), node, incarnation, passes }));
            }
        }
        let mut whole = true;
        for node in cluster.nodes().iter().filter(|node| members.contains(&node.name)) {
            let lifetime =
                lifetimes.all().iter().find(|lifetime| lifetime.node == node.name && lifetime.ended_ns.is_none());
            let incarnation = lifetime.and_then(|lifetime| lifetime.incarnation);
            let (Some(incarnation), Some(passes)) = (incarnation, insist(&node.http).await) else {
                whole = false;
                continue;
            };
            let node = node.name.clone();
            recorder.event(&Event::GateReading(GateReading { at_ns: None, node, incarnation, passes }));
        }
        whole
    }
}

async fn poll(node: String, http: HttpAddress, recorder: Recorder, seen: Arc<Mutex<Vec<CounterReading>>>) {
    loop {
        let asked_ns = recorder.now_ns();
        if let Some(passes) = http::counter(&http, COUNTER).await {
            let reading = CounterReading { node: node.clone(), asked_ns, answered_ns: recorder.now_ns(), passes };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

async fn insist(http: &HttpAddress) -> Option<u64> {
    for _ in 0..TRIES_MAX {
        if let Some(passes) = http::counter(http, COUNTER).await {
            return Some(passes);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    None
}
