//! A node of the product on a simulated machine: its replica, its runtime and their folders.
//!
//! A process ends at one instant. From then on the network, the log's disk, the relay and the folders accept nothing
//! from it. So its tasks that still run have no effect.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use reveille_cluster::file_store::FileStore;
use reveille_cluster::process::clock::Clock;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::context::NodeIntroduction;
use reveille_cluster::process::lifecycle::{self, NodeRuntime};
use reveille_cluster::process::peer_handler::PeerHandler;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::LEVEL;
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_raft::wal::MemoryDisk;
use reveille_raft::{Execution, Hint, Hints, Replica, ReplicaOptions};
use tokio::task::JoinHandle;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::clock::{NodeClock, ProcessClock};
use crate::disk::LogDisk;
use crate::network::{Network, ProcessId};
use crate::observer::fence_of;
use crate::recorder::HistoryRecorder;
use crate::relay::SimulatedRelay;
use crate::trace::Trace;

/// Election timeouts, in heartbeats.
pub const ELECTION: std::ops::Range<u64> = 6..12;
/// Maximum time until the tasks of an ended process have stopped.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// State that all nodes share: the simulated network, relay, trace and history.
#[derive(Clone)]
pub struct SimulatedEnvironment {
    /// The network between nodes.
    pub network: Network,
    /// The relay.
    pub relay: SimulatedRelay,
    /// The trace.
    pub trace: Trace,
    /// The history.
    pub recorder: HistoryRecorder,
    /// The folder of all nodes' files.
    pub root: PathBuf,
    /// Heartbeat interval of a leader, in milliseconds.
    pub heartbeat_ms: u64,
    /// Number of entries between snapshots.
    pub snapshot_every: u64,
}

/// A machine and its current process, if one runs.
pub struct SimulatedNode {
    /// Id of the node.
    pub id: NodeId,
    /// Clocks of the machine.
    pub clock: NodeClock,
    /// The highest ledger level of the installed release (P23).
    pub level: u32,
    env: SimulatedEnvironment,
    processes: u64,
    log: MemoryDisk,
    running: Option<Running>,
}

struct Running {
    process: ProcessId,
    disk: LogDisk,
    /// `None` until Raft's startup delay is over.
    context: Arc<parking_lot::Mutex<Option<Arc<NodeContext>>>>,
    work: JoinHandle<Result<()>>,
    stop: CancellationToken,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// `kill -9`: the machine keeps running, with all written bytes and the memory-backed journal.
    Kill,
    /// A power cut: unsynced writes, as this seed decides, and the journal are lost.
    PowerCut(u64),
}

impl SimulatedNode {
    /// Returns a new machine without data.
    pub fn new(id: NodeId, clock: NodeClock, env: SimulatedEnvironment) -> SimulatedNode {
        SimulatedNode { id, clock, level: LEVEL, env, processes: 0, log: MemoryDisk::new(), running: None }
    }

    /// Returns the process that runs here.
    pub fn process(&self) -> Option<ProcessId> {
        self.running.as_ref().map(|running| running.process)
    }

    /// Returns the context of the running process. `None`: no process runs, or Raft has not started yet.
    pub fn context(&self) -> Option<Arc<NodeContext>> {
        self.running.as_ref().and_then(|running| running.context.lock().clone())
    }

    /// Returns the disk under the log of the running process.
    pub fn disk(&self) -> Option<&LogDisk> {
        self.running.as_ref().map(|running| &running.disk)
    }

    /// Returns true if the process ended by itself.
    pub fn ended_by_itself(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.work.is_finished())
    }

    fn folder(&self, process: u64) -> PathBuf {
        self.env.root.join(format!("{}-{process}", self.id.0))
    }

    /// Starts a process on the disk and folders that former processes left.
    pub fn start(&mut self) {
        self.processes += 1;
        let process = ProcessId { node: self.id, number: self.processes };
        self.env.trace.say(format_args!("n{} starts process {}", self.id.0, self.processes));
        let disk = LogDisk::new(self.log.clone(), process, self.env.trace.clone());
        let me = ClaimOwner { node: self.id, incarnation: Incarnation(self.processes) };
        let mut options = ReplicaOptions::new(
            self.folder(self.processes).join("data"),
            me,
            self.env.network.process_started(process),
        );
        let heartbeat_ms = self.env.heartbeat_ms;
        options.heartbeat_ms = heartbeat_ms;
        options.election_ms = heartbeat_ms * ELECTION.start..heartbeat_ms * ELECTION.end;
        options.startup_delay = Duration::from_millis(heartbeat_ms * ELECTION.end);
        options.snapshot_every = self.env.snapshot_every;
        options.log_disk = Some(Arc::new(disk.clone()));
        options.execution = Execution::Inline;
        options.highest_level = self.level;
        let stop = CancellationToken::new();
        let context = Arc::new(parking_lot::Mutex::new(None));
        let runtime_options = lifecycle::RuntimeOptions {
            name: format!("n{}", self.id.0),
            hello_name: None,
            credentials: Arc::default(),
            reply_rules: reveille_cluster::smtp::RelayRules::default(),
            journal_dir: self.folder(self.processes).join("journal"),
            dialer: self.env.relay.dialer(process),
        };
        self.env.recorder.process_started(process);
        let recorder = self.env.recorder.clone();
        let clock = Arc::new(self.clock.of_process());
        let task = run_process(options, runtime_options, process, clock, recorder, Arc::clone(&context), stop.clone());
        self.running = Some(Running { process, disk, context, work: tokio::spawn(task), stop });
    }

    /// Ends the process now.
    pub fn crash(&mut self, kind: CrashKind) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        self.env.network.process_ended(running.process);
        self.env.recorder.process_ended(running.process);
        self.log = match kind {
            CrashKind::Kill => running.disk.kill(),
            CrashKind::PowerCut(seed) => running.disk.lose_power(seed),
        };
        let (from, to) = (self.folder(self.processes), self.folder(self.processes + 1));
        copy(&from.join("data"), &to.join("data")).context("the folder of a dead node")?;
        if kind == CrashKind::Kill {
            copy(&from.join("journal"), &to.join("journal")).context("the journal of a dead node")?;
        } else {
            self.clock.reboot();
        }
        self.env.trace.say(format_args!("n{} crashes: {kind:?}", self.id.0));
        running.stop.cancel();
        Ok(())
    }
}

/// Runs one process to its end.
async fn run_process(
    options: ReplicaOptions,
    runtime_options: lifecycle::RuntimeOptions,
    process: ProcessId,
    clock: Arc<ProcessClock>,
    recorder: HistoryRecorder,
    shown: Arc<parking_lot::Mutex<Option<Arc<NodeContext>>>>,
    stop: CancellationToken,
) -> Result<()> {
    let clock: Arc<dyn Clock> = clock;
    let me = ClaimOwner { node: process.node, incarnation: Incarnation(process.number) };
    let introduction = NodeIntroduction {
        name: runtime_options.name.clone(),
        address: Network::address_of(process.node),
        version: "simulation".into(),
        tzdb: "simulation".into(),
    };
    let peer_handler = Arc::new(PeerHandler::new(Arc::clone(&clock), introduction.clone()));
    let parts = FileStore::open(options.data_dir.join("parts")).map_err(|error| anyhow!("parts: {error}"))?;
    let replica = Replica::start(options, peer_handler.clone()).await?;
    let mut context = NodeContext::new(replica, me, introduction, clock, Zones::bundled("simulation"), parts);
    // This is long enough for the journals of most crashes, and short enough that runs are archived within a seed.
    context.archive_after = Duration::from_secs(10);
    let context = Arc::new(context);
    peer_handler.open(&context);
    tokio::spawn(see_claims(context.replica.hints(), recorder));
    let leadership_handle = NodeRuntime::start_leadership_actor(&context);
    *shown.lock() = Some(Arc::clone(&context));
    while context.replica.cluster().is_none() && !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let worked = work(&context, leadership_handle, runtime_options, &stop).await;
    context.replica.shutdown(Instant::now() + STOP_WITHIN).await;
    worked
}

/// Records when this node applies claims. A claim whose hint was lost has no time.
async fn see_claims(mut hints: Hints, recorder: HistoryRecorder) {
    while let Some(hint) = hints.next().await {
        if let Hint::Effect { effect: Effect::ClaimGranted { fence, .. }, .. } = hint {
            recorder.claim_applied(fence_of(&fence));
        }
    }
}

/// Runs the node until it is stopped or fails.
async fn work(
    context: &Arc<NodeContext>,
    leadership_handle: lifecycle::LeadershipHandle,
    options: lifecycle::RuntimeOptions,
    stop: &CancellationToken,
) -> Result<()> {
    let mut faults = context.replica.fatal_error();
    let fault = async {
        match faults.wait_for(Option::is_some).await {
            Ok(fault) => fault.clone().map_or_else(|| anyhow!("no fault"), anyhow::Error::new),
            Err(_) => anyhow!("the replica ended"),
        }
    };
    let started = tokio::select! {
        biased;
        fault = fault => return Err(fault),
        started = NodeRuntime::start(Arc::clone(context), leadership_handle, options, stop) => started,
    };
    let runtime = match started {
        Ok(runtime) => runtime,
        Err(_) if stop.is_cancelled() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (mut failed, mut faults) = (runtime.failed(), context.replica.fatal_error());
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        _ = failed.wait_for(Option::is_some) => Err(anyhow!("an actor failed")),
        _ = faults.wait_for(Option::is_some) => Err(anyhow!("the replica failed")),
    };
    // Stops the actors of the node.
    runtime.stop(STOP_WITHIN).await;
    end
}

/// Copies a folder recursively, if it exists. Files keep their times of modification, which are times of the simulated
/// clock, because the node removes files by their age.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::options().append(true).open(target)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn copied_files_keep_their_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("parts")).expect("a folder");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let file = File::create(from.join("parts/one")).expect("a file");
        file.set_modified(long_ago).expect("a time");
        copy(&from, &to).expect("a copy");
        let copied = fs::metadata(to.join("parts/one")).expect("the copy");
        assert_eq!(copied.modified().expect("its time"), long_ago);
    }
}
