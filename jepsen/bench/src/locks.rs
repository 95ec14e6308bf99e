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
/// A node shows the maximum of the last minute. The page costs processor time of the node, so it is read about as often
/// as a monitoring system does.
const READ_EVERY: Duration = Duration::from_secs(10);

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
    let names = CAUSES.map(|cause| format!("reveille_ledger_lock_seconds{{cause=\"{cause}\",quantile=\"1\"}}"));
    loop {
        tokio::time::sleep(READ_EVERY).await;
        for node in &nodes {
            let Some(seconds) = http::metrics(node, names.each_ref().map(String::as_str)).await else { continue };
            let mut longest_ms = longest_ms.lock().unwrap_or_else(PoisonError::into_inner);
            for (cause, seconds) in CAUSES.into_iter().zip(seconds) {
                let longest = longest_ms.entry(cause).or_default();
                *longest = rounded(seconds * 1e3).max(*longest);
            }
        }
    }
}
