//! The longest times for which work on many rows held the ledger's lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reveille_harness::Cluster;
use reveille_harness::http::{self, HttpAddress};
use reveille_harness::measure::rounded;
use tokio::task::JoinHandle;

/// The causes that a node distinguishes.
const CAUSES: [&str; 3] = ["archive", "hash", "snapshot"];
/// A node shows the maximum of the last minute.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Reads the maxima of all nodes until it is dropped.
pub struct LockWatch {
    longest_ms: Arc<Mutex<BTreeMap<&'static str, f64>>>,
    reading: JoinHandle<()>,
}

impl LockWatch {
    /// Starts to read.
    pub fn start(cluster: &Cluster) -> LockWatch {
        let longest_ms = Arc::new(Mutex::new(BTreeMap::new()));
        let nodes: Vec<HttpAddress> = cluster.nodes().iter().map(|node| node.http.clone()).collect();
        let reading = tokio::spawn(read(nodes, Arc::clone(&longest_ms)));
        LockWatch { longest_ms, reading }
    }

    /// Returns the maximum of all nodes by cause, in milliseconds.
    pub fn longest_ms(&self) -> BTreeMap<&'static str, f64> {
        self.longest_ms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read(nodes: Vec<HttpAddress>, longest_ms: Arc<Mutex<BTreeMap<&'static str, f64>>>) {
    loop {
        tokio::time::sleep(READ_EVERY).await;
        for node in &nodes {
            for cause in CAUSES {
                let name = format!("reveille_ledger_lock_seconds{{cause=\"{cause}\",quantile=\"1\"}}");
                let Some(seconds) = http::metric(node, &name).await else { continue };
                let mut longest = longest_ms.lock().unwrap_or_else(PoisonError::into_inner);
                let longest = longest.entry(cause).or_default();
                *longest = rounded(seconds * 1e3).max(*longest);
            }
        }
    }
}
