//! Reads each node's counter of handoffs that passed its gate (I14). It polls, because a killed process loses the
//! counter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reveille_check::events::{Event, GateReading, Lifetime};
use reveille_harness::http::{self, HttpAddress};
use reveille_harness::{Cluster, wait};
use tokio::task::JoinSet;

use super::recorder::Recorder;

/// Name of the counter in docs/reference/monitoring.md.
const COUNTER: &str = "reveille_gate_passes_total";
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Time for the reading at the end, of a busy node.
const LAST_WITHIN: Duration = Duration::from_secs(10);

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
        lifetimes: &[Lifetime],
    ) -> bool {
        for CounterReading { node, asked_ns, answered_ns, passes } in
            std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
        {
            let incarnation = during(lifetimes, &node, asked_ns, answered_ns);
            if let Some(incarnation) = incarnation {
                recorder.event(&Event::GateReading(GateReading { at_ns: Some(asked_ns), node, incarnation, passes }));
            }
        }
        let mut whole = true;
        for node in cluster.nodes().iter().filter(|node| members.contains(&node.name)) {
            let mut running = lifetimes.iter().filter(|lifetime| lifetime.ended_ns.is_none());
            let own = running.find(|lifetime| lifetime.node == node.name);
            let passes = wait::for_some(LAST_WITHIN, || http::counter(&node.http, COUNTER)).await;
            let (Some(incarnation), Some(passes)) = (own.and_then(|own| own.incarnation), passes) else {
                whole = false;
                continue;
            };
            let node = node.name.clone();
            recorder.event(&Event::GateReading(GateReading { at_ns: None, node, incarnation, passes }));
        }
        whole
    }
}

/// Returns the process of a node that ran from one instant to the other, because the pages name only nodes. `None`:
/// another process may have answered meanwhile.
fn during(lifetimes: &[Lifetime], node: &str, from_ns: u64, to_ns: u64) -> Option<u64> {
    let mut own = lifetimes.iter().filter(|lifetime| lifetime.node == node && lifetime.started_ns <= from_ns);
    own.find(|lifetime| lifetime.ended_ns.is_none_or(|ended| to_ns <= ended))?.incarnation
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_belongs_to_process_that_ran_all_time() {
        let lifetime = |incarnation, started_ns, ended_ns| Lifetime {
            node: "n1".to_owned(),
            incarnation: Some(incarnation),
            started_ns,
            ended_ns,
            end: None,
        };
        let lifetimes = [lifetime(2, 200, None), lifetime(1, 0, Some(100))];
        let found = [(10, 100), (10, 101), (150, 250), (200, 250)].map(|(from, to)| during(&lifetimes, "n1", from, to));
        assert_eq!(found, [Some(1), None, None, Some(2)]);
    }
}
