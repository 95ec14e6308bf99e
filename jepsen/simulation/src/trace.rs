//! The trace of a run, in virtual time: a hash over all events, and lines for people who read a failing run.
//!
//! Everything that enters or leaves a node is hashed: each message, each write and sync of a log, each line of SMTP,
//! each fault. Two runs with the same hash had the same events.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// Maximum number of lines in memory. Older lines are only in the hash, and in the file if there is one.
const LINES_MAX: usize = 4_000;

/// The trace of a run. Clones share it.
#[derive(Clone)]
pub struct Trace {
    inner: Arc<Mutex<TraceState>>,
    start: Instant,
}

struct TraceState {
    hasher: blake3::Hasher,
    lines: VecDeque<String>,
    /// The file to which all lines are written.
    file: Option<Box<dyn Write + Send>>,
}

impl Trace {
    /// Returns a trace that begins now.
    pub fn new(file: Option<Box<dyn Write + Send>>) -> Trace {
        let inner = TraceState { hasher: blake3::Hasher::new(), lines: VecDeque::new(), file };
        Trace { inner: Arc::new(Mutex::new(inner)), start: Instant::now() }
    }

    /// Returns the virtual time since the beginning of the run.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds an event to the hash only.
    pub fn record(&self, kind: u8, numbers: &[u64]) {
        let now = self.elapsed().as_nanos() as u64;
        let mut inner = self.inner.lock();
        inner.hasher.update(&now.to_le_bytes()).update(&[kind]);
        for number in numbers {
            inner.hasher.update(&number.to_le_bytes());
        }
    }

    /// Adds an event to the hash, and a line to the trace.
    pub fn say(&self, event: impl Display) {
        let text = event.to_string();
        let mut inner = self.inner.lock();
        inner.hasher.update(&(self.elapsed().as_nanos() as u64).to_le_bytes()).update(text.as_bytes());
        inner.keep(line(self.elapsed(), &text));
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> String {
        self.inner.lock().hasher.finalize().to_hex().as_str()[..16].to_owned()
    }

    /// Flushes the file, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn flush(&self) -> io::Result<()> {
        self.inner.lock().file.as_mut().map_or(Ok(()), |file| file.flush())
    }

    /// Returns the last lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.inner.lock().lines.iter().cloned().collect()
    }
}

/// Returns a short hash for people to compare.
pub fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().as_str()[..16].to_owned()
}

fn line(at: Duration, text: &str) -> String {
    format!("{:>11.6} {text}", at.as_secs_f64())
}

impl TraceState {
    fn keep(&mut self, line: String) {
        if let Some(file) = &mut self.file {
            // A failed write does not end the run. `flush` reports the error.
            let _ = writeln!(file, "{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use super::*;

    /// A file whose content the test can read.
    #[derive(Clone, Default)]
    struct SharedFile(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flush_writes_last_line_while_trace_is_shared() {
        let file = SharedFile::default();
        let trace = Trace::new(Some(Box::new(BufWriter::new(file.clone()))));
        let held = trace.clone();
        trace.say("the end");
        trace.flush().expect("memory takes everything");
        assert!(String::from_utf8_lossy(&file.0.lock()).ends_with("the end\n"));
        assert_eq!(held.lines().len(), 1);
    }
}
