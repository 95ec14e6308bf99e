//! Makes the syncs of a process fail or take longer, by `strace`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use reveille_harness::tool;

/// Maximum time until the tracer is attached or detached.
const WITHIN: Duration = Duration::from_secs(4);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// A running tracer. Dropping it detaches the tracer.
pub struct SyncTrace {
    process: Child,
    written: PathBuf,
}

impl SyncTrace {
    /// Attaches to a process. `injection` has the syntax of `strace -e inject=`. The process may end by its first sync.
    pub async fn start(process: u32, injection: &str, folder: &Path) -> Result<SyncTrace> {
        let strace = tool::find("strace")?;
        if is_traced(process) {
            bail!("process {process} is traced already");
        }
        let written = folder.join(format!("strace-{process}"));
        let child = Command::new(strace)
            .args(["-f", "-qq", "-o"])
            .arg(&written)
            .args(["-p", &process.to_string(), "-e", "trace=fsync,fdatasync"])
            .args(["-e", &format!("inject=fsync,fdatasync:{injection}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("strace")?;
        let mut trace = SyncTrace { process: child, written };
        let until = Instant::now() + WITHIN;
        while !is_traced(process) {
            if trace.process.try_wait()?.is_some() || Instant::now() > until {
                // Syncs of the threads that were traced first may have been changed.
                if trace.changed() > 0 {
                    break;
                }
                bail!("strace cannot trace process {process}");
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(trace)
    }

    /// Detaches the tracer. Returns the number of changed syncs.
    pub async fn end(mut self) -> u64 {
        if let Some(id) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // The tracer may have ended with its process.
            let _ = kill_process(id, Signal::TERM);
        }
        let until = Instant::now() + WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            tokio::time::sleep(POLL_EVERY).await;
        }
        self.changed()
    }

    /// Returns the number of changed syncs that the tracer has reported.
    fn changed(&self) -> u64 {
        changed(&std::fs::read_to_string(&self.written).unwrap_or_default())
    }
}

impl Drop for SyncTrace {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.written);
    }
}

/// Counts the changed syncs in the output of the tracer: `fdatasync(9) = -1 EIO (Input/output error) (INJECTED)`,
/// `fdatasync(9) = 0 (DELAYED)`.
fn changed(written: &str) -> u64 {
    written.lines().filter(|line| line.contains("(INJECTED)") || line.contains("(DELAYED)")).count() as u64
}

/// Returns true if each thread is traced. An untraced thread would sync as usual.
fn is_traced(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut statuses =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).peekable();
    statuses.peek().is_some()
        && statuses.all(|status| {
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
            tracer.is_some_and(|tracer| tracer.trim() != "0")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_syncs_are_counted() {
        let written =
            "7 fdatasync(9) = 0\n7 fdatasync(9) = -1 EIO (Input/output error) (INJECTED)\n8 fsync(3) = 0 (DELAYED)\n";
        assert_eq!(changed(written), 2);
    }

    /// A node ends by the first sync that fails, which may be before all of its threads are traced.
    #[tokio::test]
    async fn process_that_ends_by_its_first_sync_was_traced() {
        if let Err(error) = tool::find("strace") {
            reveille_strict::skip(&format!("{error:#}"));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for _ in 0..5 {
            let syncs = "while sync --data \"$1\"; do :; done";
            let mut shell = Command::new("sh").args(["-c", syncs, "sh"]).arg(&file).spawn().unwrap();
            let trace = SyncTrace::start(shell.id(), "error=EIO", folder.path()).await.expect("it is traced");
            shell.wait().unwrap();
            assert!(trace.end().await > 0);
        }
    }
}
