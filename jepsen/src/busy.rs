//! Keeps every core of this machine busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

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
