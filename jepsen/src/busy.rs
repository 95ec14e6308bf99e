//! Keeps every core of this machine busy, and watches who leads.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::pages;

/// Far shorter than an epoch: a leader needs an election to follow another.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Threads that compute nothing as fast as they can, one a core; they end with this.
pub struct Spin {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spin {
    /// Starts them, at the same niceness as everybody.
    pub fn start() -> Spin {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| {
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..cores).map(|_| spin(Arc::clone(&stop))).collect();
        Spin { stop, threads }
    }

    /// How many there are.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that does nothing cannot fail.
            let _ = thread.join();
        }
    }
}

/// Writes down every epoch that a node says it leads; ends when it is dropped.
pub struct Watch {
    epochs: Arc<Mutex<BTreeSet<u64>>>,
    _task: JoinSet<()>,
}

impl Watch {
    /// Asks all nodes, again and again.
    pub fn start(cluster: &Cluster) -> Watch {
        let nodes: Vec<SocketAddr> = cluster.nodes().iter().map(|node| node.http).collect();
        let epochs = Arc::new(Mutex::new(BTreeSet::new()));
        let mut task = JoinSet::new();
        task.spawn(look(nodes, Arc::clone(&epochs)));
        Watch { epochs, _task: task }
    }

    /// How many epochs there were since the watch began.
    pub fn epochs(&self) -> u64 {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// An epoch that was seen elsewhere, in the fence of a mail for example.
    pub fn saw(&self, epoch: u64) {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner).insert(epoch);
    }
}

async fn look(nodes: Vec<SocketAddr>, epochs: Arc<Mutex<BTreeSet<u64>>>) {
    loop {
        for node in &nodes {
            if let Some(epoch) = pages::epoch_led(*node).await {
                epochs.lock().unwrap_or_else(PoisonError::into_inner).insert(epoch);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_threads_end_with_their_owner() {
        let spin = Spin::start();
        assert!(spin.threads() >= 1);
        let stop = Arc::clone(&spin.stop);
        drop(spin);
        assert_eq!(Arc::strong_count(&stop), 1, "no thread holds it any more");
    }
}
