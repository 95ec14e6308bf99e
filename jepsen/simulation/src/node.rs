//! A node of the product with simulated edges: replica, station and their folders.
//!
//! A process ends at one instant: from then on the network, the log's disk, the relay and the folders accept nothing
//! from it. Tasks of it that still run have no effect.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use reveille_cluster::audience::AudienceStore;
use reveille_cluster::node::clock::Clock;
use reveille_cluster::node::context::NodeContext;
use reveille_cluster::node::context::NodeIntroduction;
use reveille_cluster::node::lifecycle::{self, NodeRuntime};
use reveille_cluster::node::peer_handler::PeerHandler;
use reveille_cluster::ops::zones::Zones;
use reveille_ledger::LEVEL;
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_raft::wal::MemoryDisk;
use reveille_raft::{Execution, Hint, Hints, Replica, ReplicaOptions};
use tokio::task::JoinHandle;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::chronicle::Chronicle;
use crate::clock::{LifeClock, NodeClock};
use crate::disk::LogDisk;
use crate::network::{Life, Network};
use crate::observer::fence_of;
use crate::relay::SimulatedRelay;
use crate::trace::Trace;

/// How long an election takes, in heartbeats.
pub const ELECTION: std::ops::Range<u64> = 6..12;
/// How long the tasks of an ended process may take to stop.
const REMAINS: Duration = Duration::from_secs(5);

/// What all nodes share.
#[derive(Clone)]
pub struct Surroundings {
    /// The network between nodes.
    pub network: Network,
    /// The relay.
    pub relay: SimulatedRelay,
    /// The trace.
    pub trace: Trace,
    /// The history.
    pub chronicle: Chronicle,
    /// Where its folders lie.
    pub root: PathBuf,
    /// How often a leader shows itself.
    pub heartbeat_ms: u64,
    /// Entries from one snapshot to the next.
    pub snapshot_every: u64,
}

/// A machine, and the process on it while there is one.
pub struct SimulatedNode {
    /// Its id.
    pub id: NodeId,
    /// Its clocks.
    pub clock: NodeClock,
    /// The highest level of the ledger that the release on it applies (P23).
    pub level: u32,
    around: Surroundings,
    lives: u64,
    log: MemoryDisk,
    running: Option<Running>,
}

struct Running {
    life: Life,
    disk: LogDisk,
    /// None until the startup delay of Raft is over.
    site: Arc<parking_lot::Mutex<Option<Arc<NodeContext>>>>,
    work: JoinHandle<Result<()>>,
    stop: CancellationToken,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// `kill -9`: the machine goes on, and with it what was written and the memory-backed journal.
    Kill,
    /// The power is cut: what was not synced is gone as this seed decides, and so is the journal.
    PowerCut(u64),
}

impl SimulatedNode {
    /// A machine that was never used.
    pub fn new(id: NodeId, clock: NodeClock, around: Surroundings) -> SimulatedNode {
        SimulatedNode { id, clock, level: LEVEL, around, lives: 0, log: MemoryDisk::new(), running: None }
    }

    /// The process that runs here.
    pub fn life(&self) -> Option<Life> {
        self.running.as_ref().map(|running| running.life)
    }

    /// What its actors share, once it is open.
    pub fn site(&self) -> Option<Arc<NodeContext>> {
        self.running.as_ref().and_then(|running| running.site.lock().clone())
    }

    /// The disk under its log.
    pub fn disk(&self) -> Option<&LogDisk> {
        self.running.as_ref().map(|running| &running.disk)
    }

    /// Why it ended by itself, if it did.
    pub fn ended_by_itself(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.work.is_finished())
    }

    fn folder(&self, life: u64) -> PathBuf {
        self.around.root.join(format!("{}-{life}", self.id.0))
    }

    /// A process starts here, on what former ones left.
    pub fn start(&mut self) {
        self.lives += 1;
        let life = Life { node: self.id, number: self.lives };
        self.around.trace.say(format_args!("n{} starts its life {}", self.id.0, self.lives));
        let disk = LogDisk::new(self.log.clone(), life, self.around.trace.clone());
        let me = ClaimOwner { node: self.id, incarnation: Incarnation(self.lives) };
        let mut options =
            ReplicaOptions::new(self.folder(self.lives).join("data"), me, self.around.network.enter(life));
        let heartbeat_ms = self.around.heartbeat_ms;
        options.heartbeat_ms = heartbeat_ms;
        options.election_ms = heartbeat_ms * ELECTION.start..heartbeat_ms * ELECTION.end;
        options.startup_delay = Duration::from_millis(heartbeat_ms * ELECTION.end);
        options.snapshot_every = self.around.snapshot_every;
        options.log_disk = Some(Arc::new(disk.clone()));
        options.execution = Execution::Inline;
        options.highest_level = self.level;
        let stop = CancellationToken::new();
        let site = Arc::new(parking_lot::Mutex::new(None));
        let station = lifecycle::RuntimeOptions {
            name: format!("n{}", self.id.0),
            hello_name: None,
            credentials: reveille_cluster::smtp::CredentialStore::default(),
            reply_rules: reveille_cluster::smtp::RelayRules::default(),
            journal_dir: self.folder(self.lives).join("journal"),
            dialer: self.around.relay.way(life),
        };
        self.around.chronicle.born(life);
        let chronicle = self.around.chronicle.clone();
        let clock = Arc::new(self.clock.of_a_life());
        let live = live(options, station, life, clock, chronicle, Arc::clone(&site), stop.clone());
        self.running = Some(Running { life, disk, site, work: tokio::spawn(live), stop });
    }

    /// Ends the process now.
    pub fn die(&mut self, death: Death) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        self.around.network.leave(running.life);
        self.around.chronicle.died(running.life);
        self.log = match death {
            Death::Kill => running.disk.kill(),
            Death::PowerCut(seed) => running.disk.lose_power(seed),
        };
        let (from, to) = (self.folder(self.lives), self.folder(self.lives + 1));
        copy(&from.join("data"), &to.join("data")).context("the folder of a dead node")?;
        if death == Death::Kill {
            copy(&from.join("journal"), &to.join("journal")).context("the journal of a dead node")?;
        } else {
            self.clock.reboot();
        }
        self.around.trace.say(format_args!("n{} dies: {death:?}", self.id.0));
        running.stop.cancel();
        Ok(())
    }
}

/// Runs one process to its end.
async fn live(
    options: ReplicaOptions,
    station: lifecycle::RuntimeOptions,
    life: Life,
    clock: Arc<LifeClock>,
    chronicle: Chronicle,
    shown: Arc<parking_lot::Mutex<Option<Arc<NodeContext>>>>,
    stop: CancellationToken,
) -> Result<()> {
    let clock: Arc<dyn Clock> = clock;
    let me = ClaimOwner { node: life.node, incarnation: Incarnation(life.number) };
    let introduction = NodeIntroduction {
        name: station.name.clone(),
        address: Network::address_of(life.node),
        version: "simulation".into(),
        tzdb: "simulation".into(),
    };
    let desk = Arc::new(PeerHandler::new(Arc::clone(&clock), introduction.clone()));
    let parts = AudienceStore::open(options.data_dir.join("parts")).map_err(|error| anyhow!("parts: {error}"))?;
    let replica = Replica::start(options, desk.clone()).await?;
    let site = Arc::new(NodeContext::new(replica, me, introduction, clock, Zones::bundled("simulation"), parts));
    desk.open(&site);
    tokio::spawn(see_claims(site.replica.effects(), chronicle));
    let leading = NodeRuntime::lead(&site);
    *shown.lock() = Some(Arc::clone(&site));
    while site.replica.cluster().is_none() && !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let worked = work(&site, leading, station, &stop).await;
    site.replica.shutdown(Instant::now() + REMAINS).await;
    worked
}

/// Records when claims are applied here while the replica runs. A claim whose hint was lost has no instant.
async fn see_claims(mut hints: Hints, chronicle: Chronicle) {
    while let Some(hint) = hints.next().await {
        if let Hint::Effect { effect: Effect::ClaimGranted { fence, .. }, .. } = hint {
            chronicle.granted(fence_of(&fence));
        }
    }
}

/// Works until it is asked to stop or has to.
async fn work(
    site: &Arc<NodeContext>,
    leading: lifecycle::Candidacy,
    options: lifecycle::RuntimeOptions,
    stop: &CancellationToken,
) -> Result<()> {
    let mut faults = site.replica.fatal_error();
    let fault = async {
        match faults.wait_for(Option::is_some).await {
            Ok(fault) => fault.clone().map_or_else(|| anyhow!("no fault"), anyhow::Error::new),
            Err(_) => anyhow!("the replica ended"),
        }
    };
    let started = tokio::select! {
        biased;
        fault = fault => return Err(fault),
        started = NodeRuntime::start(Arc::clone(site), leading, options, stop) => started,
    };
    let station = match started {
        Ok(station) => station,
        Err(_) if stop.is_cancelled() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (mut failed, mut faults) = (station.failed(), site.replica.fatal_error());
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        _ = failed.wait_for(Option::is_some) => Err(anyhow!("an actor failed")),
        _ = faults.wait_for(Option::is_some) => Err(anyhow!("the replica failed")),
    };
    // Its actors end; the doors are shut, unless it stops by itself.
    station.stop(REMAINS).await;
    end
}

/// Copies a folder and all in it; nothing where there is none.
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
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
