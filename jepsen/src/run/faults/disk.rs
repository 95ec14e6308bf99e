//! Faults of the disk of one node, and the part of an unsynced log that survives a power cut.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::events::Fault;
use reveille_harness::node_process::NodeProcess;
use reveille_harness::{tool, wait};

use super::actions::{DiskFault, FaultTarget};
use super::nemesis::{Injected, Injection, Nemesis, NotInjected, Repair, required};
use super::plan::PlannedFault;
use super::syscall_trace::SyncTrace;
use crate::run::processes::ProcessState;

/// Maximum time until a node whose log lost its tail is ready again.
const READY_WITHIN: Duration = Duration::from_secs(12);
/// Maximum time until a node whose disk failed has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Number of bytes that a torn log loses. Less than a sector, so that the log ends inside its last batch.
const TORN_BYTES: u64 = 256;
/// Delay of each sync before a power cut. Each log is written within [`WRITES_WITHIN`].
const HELD_SYNCS: &str = "delay_enter=3000000";
const WRITES_WITHIN: Duration = Duration::from_millis(1_500);
const POLL_WRITES_EVERY: Duration = Duration::from_millis(5);
/// Text that a node logs at its start if its log ends inside a batch (`raft/src/wal/open.rs`).
const TRUNCATED: &str = "cut a batch that was half written";
/// Text that a node logs at its start if no snapshot is readable that its log continues (`raft/src/replica/start.rs`).
const FETCHES: &str = "this node asks the other nodes for a snapshot";
/// Maximum time until a node that was started has logged that it met the damage.
const LOGGED_WITHIN: Duration = Duration::from_secs(5);

impl Nemesis {
    pub(super) async fn disk(&mut self, planned: &PlannedFault, target: FaultTarget, how: DiskFault) -> Injection {
        let victim = self.target(target)?;
        let fault = self.fault(planned, &format!("a disk: {how:?}"), std::slice::from_ref(&victim));
        match how {
            DiskFault::Fails => self.trace(planned, fault, victim, "error=EIO".to_owned(), true).await,
            DiskFault::Slow(by) => {
                self.trace(planned, fault, victim, format!("delay_enter={}", by.as_micros()), false).await
            }
            DiskFault::Full => self.fill(fault, victim),
            DiskFault::SnapshotLost | DiskFault::SnapshotDamaged => self.damage_snapshot(fault, victim, how),
            DiskFault::SnapshotsDamaged => {
                self.has_two_snapshots(&victim)?;
                self.damage(fault, victim, damage_all, FETCHES).await
            }
            DiskFault::TornTail => self.damage(fault, victim, tear_last, TRUNCATED).await,
        }
    }

    async fn trace(
        &mut self,
        planned: &PlannedFault,
        mut fault: Fault,
        victim: String,
        injection: String,
        fails: bool,
    ) -> Injection {
        tool::find("strace").map_err(|error| NotInjected::Cannot(error.to_string()))?;
        let process = self.processes.cluster.node(&victim)?.process_id();
        let process = process.ok_or_else(|| NotInjected::NotNow(format!("{victim} does not run")))?;
        let trace = SyncTrace::start(process, &injection, self.processes.cluster.folder()).await?;
        // A node must end when its disk fails, but not when its disk is slow. Its end was not recorded since.
        if fails {
            self.processes.excuse(&victim, planned.lasts + ENDS_WITHIN);
        }
        fault.detail = injection;
        Ok(Injected { fault, repair: Repair::Untrace { node: victim, trace, fails: fails.then_some(process) } })
    }

    /// Ends the tracing. `failed`: the process whose syncs failed.
    pub(super) async fn untrace(
        &mut self,
        name: &str,
        trace: SyncTrace,
        failed: Option<u32>,
        fault: &mut Fault,
    ) -> Result<()> {
        let hits = trace.end().await;
        self.record_ends()?;
        let ended = self.has_ended_by_itself(name);
        if ended {
            self.processes.start(name)?;
        } else if failed.is_some() && self.processes.cluster.node(name)?.process_id() == failed {
            // The process may still be ending.
            self.processes.excuse(name, ENDS_WITHIN);
        }
        fault.observed = Some(hits > 0);
        let and = if ended { ", and the node ended" } else { "" };
        fault.detail = format!("{}: {hits} syncs{and}", fault.detail);
        Ok(())
    }

    fn has_ended_by_itself(&self, name: &str) -> bool {
        self.processes.state(name) == ProcessState::Down && !self.is_held_down(name)
    }

    fn fill(&mut self, fault: Fault, victim: String) -> Injection {
        let volumes = required(&self.processes.cluster.environment.volumes)?;
        let no_disk = || NotInjected::Cannot(format!("{victim} has no disk of its own"));
        let volume = volumes.get(&victim).ok_or_else(no_disk)?;
        volume.fill().inspect_err(|_| drop(volume.empty()))?;
        self.processes.disk_is_full(&victim);
        Ok(Injected { fault, repair: Repair::Empty(victim) })
    }

    pub(super) fn empty(&mut self, name: &str, fault: &mut Fault) -> Result<()> {
        let emptied = match &self.processes.cluster.environment.volumes {
            Ok(volumes) => volumes.get(name).context("a node without a disk of its own").and_then(|disk| disk.empty()),
            Err(_) => Ok(()),
        };
        self.record_ends()?;
        let ended = self.has_ended_by_itself(name);
        self.processes.disk_has_room(name, ENDS_WITHIN);
        if ended {
            self.processes.start(name)?;
        }
        emptied?;
        fault.observed = ended.then_some(true);
        fault.detail = if ended { "the node ended" } else { "the node continued, or wrote nothing" }.to_owned();
        Ok(())
    }

    /// Damages or removes the newer snapshot of a node that has two: its log reaches back to the older snapshot.
    fn damage_snapshot(&mut self, mut fault: Fault, victim: String, how: DiskFault) -> Injection {
        let folder = self.has_two_snapshots(&victim)?;
        self.count_past_gate(&victim, &mut fault);
        self.processes.kill(&victim)?;
        // The node is dead, even if a later step fails.
        let newest = manifests(&folder).and_then(|mut all| all.pop().context("a node without snapshots"));
        let damaged = newest.and_then(|newest| match how {
            DiskFault::SnapshotLost => Ok(fs::remove_file(&newest).map(|()| "lost".to_owned())?),
            _ => invert_bytes(&newest, self.seed).map(|bytes| format!("{bytes} bytes are inverted")),
        });
        fault.observed = Some(damaged.is_ok());
        fault.detail = damaged.unwrap_or_else(|error| format!("{error:#}"));
        Ok(Injected { fault, repair: Repair::start(vec![victim]) })
    }

    /// Returns the folder of a node's snapshots. Its log is purged only if it has two.
    fn has_two_snapshots(&self, victim: &str) -> Injection<PathBuf> {
        let folder = self.processes.cluster.node(victim)?.folder().join("snapshots");
        match manifests(&folder)?.len() {
            2.. => Ok(folder),
            _ => Err(NotInjected::NotNow("the node has fewer than two snapshots".to_owned())),
        }
    }

    /// Takes something from a node that only the other nodes have then, as after a disk that lied about one sync. Only
    /// one node may have such a disk, while all other nodes work: the product promises no more. `damage` gets the
    /// folder of the node, which logs `effect` at its start.
    async fn damage(
        &mut self,
        mut fault: Fault,
        victim: String,
        damage: impl FnOnce(&Path) -> Result<String>,
        effect: &str,
    ) -> Injection {
        if !self.is_quiet() {
            return Err(NotInjected::NotNow("it needs the other nodes, and so that everything else works".to_owned()));
        }
        for name in self.processes.names() {
            self.wait_until_ready(&name, READY_WITHIN).await;
        }
        self.count_past_gate(&victim, &mut fault);
        self.processes.kill(&victim)?;
        let damaged = damage(self.processes.cluster.node(&victim)?.folder());
        self.processes.start(&victim)?;
        self.wait_until_ready(&victim, READY_WITHIN).await;
        fault.observed = Some(damaged.is_ok() && self.have_logged(&[victim], effect).await);
        fault.detail = damaged.unwrap_or_else(|error| format!("{error:#}"));
        Ok(Injected { fault, repair: Repair::Nothing })
    }

    /// Waits for at most `within` until a node follows or leads.
    pub(super) async fn wait_until_ready(&self, name: &str, within: Duration) {
        wait::until(within, || self.processes.is_ready(name)).await;
    }

    /// Delays the syncs of these nodes until each has written to its log, so that the log has an unsynced part.
    pub(super) async fn hold_syncs(&self, names: &[String]) -> Vec<SyncTrace> {
        let cluster = &self.processes.cluster;
        let mut traces = Vec::new();
        for name in names {
            let Some(process) = cluster.node(name).ok().and_then(NodeProcess::process_id) else { continue };
            traces.extend(SyncTrace::start(process, HELD_SYNCS, cluster.folder()).await.ok());
        }
        let length = |name: &String| {
            let segment = last_segment(&cluster.node(name).ok()?.folder().join("wal")).ok()?;
            let length = segment.metadata().ok()?.len();
            Some((segment, length))
        };
        let before: Vec<_> = names.iter().map(length).collect();
        let until = Instant::now() + WRITES_WITHIN;
        while names.iter().zip(&before).any(|(name, before)| length(name) <= *before) && Instant::now() < until {
            tokio::time::sleep(POLL_WRITES_EVERY).await;
        }
        traces
    }

    /// Returns true if one of these nodes, which just started, logs that it truncated its log.
    pub(super) async fn have_truncated_logs(&self, names: &[String]) -> bool {
        !names.is_empty() && self.have_logged(names, TRUNCATED).await
    }

    /// Returns true if one of these nodes, which just started, logs this text.
    async fn have_logged(&self, names: &[String], text: &str) -> bool {
        let has = |name: &String| self.processes.cluster.node(name).is_ok_and(|node| node.has_logged(text));
        wait::until(LOGGED_WITHIN, || async { names.iter().any(has) }).await
    }
}

/// Inverts some bytes of a file, at offsets that the seed decides.
fn invert_bytes(path: &Path, seed: u64) -> Result<u64> {
    let mut file = File::options().read(true).write(true).open(path).with_context(|| path.display().to_string())?;
    let length = file.metadata()?.len().max(1);
    let mut offset = seed;
    for _ in 0..16 {
        offset = offset.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17).wrapping_add(1);
        let mut byte = [0];
        file.seek(SeekFrom::Start(offset % length))?;
        if file.read(&mut byte)? == 1 {
            file.seek(SeekFrom::Start(offset % length))?;
            file.write_all(&[!byte[0]])?;
        }
    }
    file.sync_all()?;
    Ok(16)
}

/// Damages every snapshot in the folder of a node.
fn damage_all(node: &Path) -> Result<String> {
    let manifests = manifests(&node.join("snapshots"))?;
    for (manifest, seed) in manifests.iter().zip(1..) {
        invert_bytes(manifest, seed)?;
    }
    Ok(format!("{} snapshots are damaged", manifests.len()))
}

/// Returns the manifests of a node's snapshots, oldest first.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>> {
    files_named(folder, "manifest")
}

/// Returns the last file of a log.
pub(super) fn last_segment(folder: &Path) -> Result<PathBuf> {
    files_named(folder, "wal")?.pop().context("a log without files")
}

fn files_named(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}

/// Restores, after a power cut, a part of the bytes that were written to this file and not synced. `None`: everything
/// or nothing was synced.
pub(super) fn keep_part(segment: &Path, written: &[u8], random: u64) -> Result<Option<String>> {
    let synced = match fs::read(segment) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        synced => synced?,
    };
    let lost = written.strip_prefix(synced.as_slice()).unwrap_or_default();
    let Some(most) = lost.len().checked_sub(1).filter(|most| *most > 0) else { return Ok(None) };
    let kept = 1 + (random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % most;
    let mut file = File::options().append(true).open(segment)?;
    file.write_all(lost.get(..kept).unwrap_or_default())?;
    file.sync_all()?;
    Ok(Some(format!("{kept} of {} unsynced bytes are in the log", lost.len())))
}

/// Truncates the last file of the log in the folder of a node inside its last batch.
fn tear_last(node: &Path) -> Result<String> {
    let file = File::options().write(true).open(last_segment(&node.join("wal"))?)?;
    let length = file.metadata()?.len().checked_sub(TORN_BYTES).context("an empty log")?;
    file.set_len(length)?;
    file.sync_all()?;
    Ok(format!("cut at byte {length}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_log_ends_inside_sector() {
        let node = tempfile::tempdir().unwrap();
        let folder = node.path().join("wal");
        fs::create_dir(&folder).unwrap();
        for name in ["1.wal", "2.wal", "other"] {
            fs::write(folder.join(name), [1; 1_024]).unwrap();
        }
        assert_eq!(tear_last(node.path()).unwrap(), "cut at byte 768");
        assert_eq!(fs::metadata(folder.join("1.wal")).unwrap().len(), 1_024);
        assert_eq!(fs::metadata(folder.join("2.wal")).unwrap().len(), 768);
    }

    #[test]
    fn power_cut_amid_write_keeps_strict_part_of_unsynced_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let segment = folder.path().join("1.wal");
        let written = [[1; 512], [2; 512]].concat();
        for random in 0..200 {
            fs::write(&segment, &written[..512]).unwrap();
            assert!(keep_part(&segment, &written, random).unwrap().is_some());
            let left = fs::read(&segment).unwrap();
            assert!(left.len() > 512 && left.len() < 1_024 && written.starts_with(&left), "{} bytes", left.len());
        }
        fs::write(&segment, &written).unwrap();
        assert_eq!(keep_part(&segment, &written, 7).unwrap(), None, "everything was synced");
        fs::remove_file(&segment).unwrap();
        assert_eq!(keep_part(&segment, &written, 7).unwrap(), None, "the file was not");
    }

    #[test]
    fn damage_depends_on_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let read = |seed| {
            fs::write(&path, [0; 4_096]).unwrap();
            invert_bytes(&path, seed).unwrap();
            fs::read(&path).unwrap()
        };
        let first = read(7);
        assert!(first == read(7) && first != read(8) && first.iter().any(|byte| *byte != 0));
    }
}
