//! Reads of each node how often its gate let a hand-off pass (I14): again and again, because the counter of a process that
//! is killed goes with it, and once more at the end. The same page of the leader tells how many nodes are given no claims.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reveille_check::history::{Backoff, Event, GatePasses, GateReading};
use tokio::task::JoinSet;

use super::lives::Lives;
use super::recorder::Recorder;
use crate::cluster::Cluster;
use crate::pages;

/// By their names in docs/reference/monitoring.md.
const COUNTER: &str = "reveille_gate_passes_total";
const RESTING: &str = "reveille_nodes_resting";
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// At the end a node is asked so often: it may be busy.
const ASKED_AT_MOST: u32 = 5;

/// What was read; reading ends when it is dropped.
pub struct Gates {
    seen: Arc<Mutex<Vec<Answer>>>,
    _tasks: JoinSet<()>,
}

struct Answer {
    node: String,
    asked_ns: u64,
    answered_ns: u64,
    passes: u64,
}

impl Gates {
    /// Asks all nodes, each by a task of its own.
    pub fn start(cluster: &Cluster, recorder: &Recorder) -> Gates {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for node in cluster.nodes() {
            tasks.spawn(look(node.name.clone(), node.http, recorder.clone(), Arc::clone(&seen)));
        }
        Gates { seen, _tasks: tasks }
    }

    /// Writes down what each life said, and asks those that go on for the last time; false where one did not answer.
    pub async fn record(self, cluster: &Cluster, recorder: &Recorder, lives: &Lives) -> bool {
        for Answer { node, asked_ns, answered_ns, passes } in
            std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
        {
            let life = lives.during(&node, asked_ns, answered_ns);
            if let Some(incarnation) = life.and_then(|life| life.incarnation) {
                recorder.event(&Event::GateReading(GateReading { at_ns: asked_ns, node, incarnation, passes }));
            }
        }
        let mut whole = true;
        for node in cluster.nodes() {
            let life = lives.all().iter().find(|life| life.node == node.name && life.ended_ns.is_none());
            let incarnation = life.and_then(|life| life.incarnation);
            let (Some(incarnation), Some(passes)) = (incarnation, insist(node.http).await) else {
                whole = false;
                continue;
            };
            recorder.event(&Event::GatePasses(GatePasses { node: node.name.clone(), incarnation, passes }));
        }
        whole
    }
}

async fn look(node: String, http: SocketAddr, recorder: Recorder, seen: Arc<Mutex<Vec<Answer>>>) {
    loop {
        let asked_ns = recorder.now_ns();
        if let Some([passes, nodes]) = pages::counters(http, [COUNTER, RESTING]).await {
            if nodes > 0 {
                recorder.event(&Event::Backoff(Backoff { at_ns: asked_ns, nodes }));
            }
            let answer = Answer { node: node.clone(), asked_ns, answered_ns: recorder.now_ns(), passes };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn insist(http: SocketAddr) -> Option<u64> {
    for _ in 0..ASKED_AT_MOST {
        if let Some(passes) = pages::counter(http, COUNTER).await {
            return Some(passes);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}
