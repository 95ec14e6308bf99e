//! How a replica comes to life and how it ends: one thread that owns Raft's runtime from start to end.
//!
//! Order at start: lock and identity, log, state, the machine's thread, the peer listener, the wait that a
//! former life's promises ask for, Raft. At the end the same in reverse.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::injected_bugs::{self, Bug};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::drive::Drive;
use crate::election::eligibility::Admission;
use crate::election::role::{self, Role};
use crate::fault::{Fault, FaultCell};
use crate::identity::Identity;
use crate::openraft_traits::log_storage::LogStore;
use crate::openraft_traits::network::Network;
use crate::openraft_traits::state_machine::StateMachine;
use crate::options::Options;
use crate::peer::client::Caller;
use crate::peer::dispatch::{Dispatch, Door};
use crate::peer::door::Doorman;
use crate::peer::{Handler, PeerService};
use crate::proposer::router::Router;
use crate::replica::{Inner, Replica, runtime_watchdog};
use crate::snapshot::manager::{self, Archive};
use crate::snapshot::transfer::Receiver;
use crate::state_machine::applied_state::Core;
use crate::state_machine::apply_thread::Machine;
use crate::state_machine::state_mirror::Keeper;
use crate::state_machine::{position, scales, state_mirror};
use crate::wal::{Stated, WalHealth, WalOptions};
use crate::{Raft, crash};

/// Raft gets this long to end its tasks, and then the runtime this long.
const RAFT_END: Duration = Duration::from_secs(5);
const RUNTIME_END: Duration = Duration::from_secs(1);

type Started = Result<Replica, Fault>;

impl Replica {
    /// Opens what lies in the data folder, begins to listen for peers and takes part. Returns when the
    /// applied state can be read; it may be behind until a leader has spoken.
    ///
    /// Raft and its peers get a runtime of their own, on threads of their own, unless [`Options::drive`] says
    /// otherwise.
    pub async fn start(options: Options, service: Arc<dyn PeerService>) -> Started {
        if options.drive == Drive::Inline {
            return start_inline(options, service).await;
        }
        let (started, told) = oneshot::channel();
        std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || live(options, service, started))
            .map_err(|error| Fault::Broken(format!("Raft's thread does not start: {error}")))?;
        told.await.unwrap_or_else(|_| Err(Fault::Broken("Raft's thread died at its start".to_owned())))
    }
}

/// The same on the runtime of the caller, and on no other thread.
async fn start_inline(options: Options, service: Arc<dyn PeerService>) -> Started {
    let (ended, end) = watch::channel(false);
    let (replica, life) = begin(options, service, end).await?;
    let stop = replica.inner.stop.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        life.end().await.release();
        let _ = ended.send(true);
    });
    Ok(replica)
}

/// The whole life of a replica.
fn live(options: Options, service: Arc<dyn PeerService>, started: oneshot::Sender<Started>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .thread_name("raft-worker")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(Fault::Broken(format!("Raft's runtime does not start: {error}"))));
            return;
        }
    };
    let (ended, end) = watch::channel(false);
    let identity = runtime.block_on(async {
        match begin(options, service, end).await {
            Ok((replica, life)) => {
                let stop = replica.inner.stop.clone();
                // Whoever started it has gone: dropping the replica stops it.
                let _ = started.send(Ok(replica));
                stop.cancelled().await;
                Some(life.end().await)
            }
            Err(fault) => {
                let _ = started.send(Err(fault));
                None
            }
        }
    });
    runtime.shutdown_timeout(RUNTIME_END);
    if let Some(identity) = identity {
        identity.release();
    }
    let _ = ended.send(true);
}

/// What has to be ended.
struct Life {
    raft: Raft,
    identity: Arc<Identity>,
    machine_ended: oneshot::Receiver<()>,
}

impl Life {
    /// Ends Raft, which lets go of the log, and waits for the machine's thread, which closes the store. What
    /// is left is the lock on the folder.
    async fn end(self) -> Arc<Identity> {
        if tokio::time::timeout(RAFT_END, self.raft.shutdown()).await.is_err() {
            tracing::warn!("Raft did not end in time");
        }
        if tokio::time::timeout(RAFT_END, self.machine_ended).await.is_err() {
            tracing::warn!("the thread that applies did not end in time");
        }
        self.identity
    }
}

async fn begin(
    options: Options,
    service: Arc<dyn PeerService>,
    ended: watch::Receiver<bool>,
) -> Result<(Replica, Life), Fault> {
    let identity = Arc::new(Identity::open(&options.data_dir, options.node)?);
    let begun = begin_in(options, Arc::clone(&identity), service, ended).await;
    if begun.is_err() {
        // The peer listener may know it a little longer.
        identity.release();
    }
    begun
}

async fn begin_in(
    options: Options,
    identity: Arc<Identity>,
    service: Arc<dyn PeerService>,
    ended: watch::Receiver<bool>,
) -> Result<(Replica, Life), Fault> {
    let config = Arc::new(options.config()?);
    let drive = options.drive;
    let log_options = WalOptions { drive, ..WalOptions::new(options.node.0) };
    let (log, report) = match options.log_disk {
        Some(disk) => LogStore::open_on(disk, &log_options)?,
        None => LogStore::open(&options.data_dir.join("wal"), &log_options)?,
    };
    let health = log.health();
    let has_history = report.records > 0;
    if has_history && identity.cluster().is_none() {
        return Err(Fault::Foreign(format!(
            "{} has a log, and its identity names no cluster: put back the file 'identity'",
            options.data_dir.display()
        )));
    }

    let faults = FaultCell::new();
    let opened = state_mirror::open(&options.data_dir.join("state"), options.state_store, options.highest_level)?;
    let core = Core::new(opened.ledger, opened.place, opened.anew, faults.clone());
    let core = Arc::new(core.of_log(health.clone(), options.highest_level));
    let keeper = Keeper::start(opened.store, Arc::clone(&core), drive)?;
    let archive = Archive::open(&options.data_dir.join("snapshots"), Arc::clone(&core), drive).map(Arc::new)?;
    check_continued(&log.stated(), &core, &archive)?;
    let (machine, machine_ended) = Machine::start(Arc::clone(&core), keeper, drive)?;

    let caller = Caller { transport: Arc::clone(&options.transport), identity: Arc::clone(&identity) };
    let doorman = Arc::new(Doorman { identity: Arc::clone(&identity) });
    let door = Arc::new(Door { behind: OnceLock::new() });
    let stop = CancellationToken::new();
    // Whatever fails from here on shuts the door again.
    let shut = stop.clone().drop_guard();
    let listening = options.transport.serve(Arc::clone(&door) as Arc<dyn Handler>, stop.clone()).await;
    listening.map_err(|error| Fault::Listen(error.to_string()))?;

    if has_history {
        crash::point("lifecycle.catch-up-start");
        let delay = if injected_bugs::is(Bug::NoStartupDelay) { Duration::ZERO } else { options.startup_delay };
        tokio::time::sleep(delay).await;
    }
    let network = Network { caller: caller.clone(), archive: Arc::clone(&archive) };
    let state_machine = StateMachine { machine, archive: Arc::clone(&archive) };
    let raft = Raft::new(options.node.0, config, network, log, state_machine)
        .await
        .map_err(|error| faults.get().unwrap_or_else(|| Fault::State(error.to_string())))?;
    // Raft answers once it has published its first view of itself, which members and status are read from.
    raft.is_initialized().await.map_err(|error| faults.get().unwrap_or_else(|| Fault::State(error.to_string())))?;
    core.go_live();

    let role = watch::Sender::new(Role::Follower { leader: None });
    let router = Arc::new(Router::new(raft.clone(), Arc::clone(&core), caller, role.subscribe()));
    let admission = Admission::new(report.cut, health.clone());
    if raft.voter_ids().eq([options.node.0]) {
        admission.is_alone();
    }
    let dispatch = Dispatch {
        doorman,
        raft: raft.clone(),
        router: Arc::clone(&router),
        admission: admission.clone(),
        snapshots: Receiver::new(Arc::clone(&archive)),
        service: Arc::clone(&service),
        refusal_logged: Mutex::new(None),
    };
    // It was empty: this is the only place that fills it.
    let _ = door.behind.set(dispatch);

    tokio::spawn(role::follow(raft.server_metrics(), role, router.hearing.clone(), stop.clone()));
    let switched = raft.clone();
    let throw = move |may_stand| switched.runtime_config().elect(may_stand);
    tokio::spawn(admission.clone().keep(throw, stop.clone()));
    tokio::spawn(runtime_watchdog::watch(stop.clone()));
    tokio::spawn(scales::keep(Arc::clone(&core), drive, stop.clone()));
    let kept = manager::keep(archive, raft.clone(), health.clone(), options.snapshot_every, stop.clone());
    tokio::spawn(kept);
    tokio::spawn(watch_faults(raft.clone(), health.clone(), faults.clone(), stop.clone()));

    let inner = Inner {
        raft: raft.clone(),
        core,
        identity: Arc::clone(&identity),
        life: options.life,
        router,
        admission,
        service,
        faults,
        log: health,
        drive,
        runtime: Handle::current(),
        stop: shut.disarm(),
        ended,
    };
    let life = Life { raft, identity, machine_ended };
    Ok((Replica { inner: Arc::new(inner) }, life))
}

/// What the log no longer holds is in the state or in a snapshot; else nothing here can be brought up to date.
fn check_continued(log: &Stated, core: &Core, archive: &Archive) -> Result<(), Fault> {
    let snapshot = archive.current().and_then(|manifest| position::decode_place(&manifest.meta).ok()?.last);
    let reached = core.place.lock().last.max(snapshot).map_or(0, |id| id.index);
    match log.purged {
        Some(purged) if purged.index > reached => Err(Fault::Damaged(format!(
            "it begins behind entry {}, and what is in the folders 'state' and 'snapshots' ends at entry {reached}: they \
             are gone or damaged",
            purged.index
        ))),
        _ => Ok(()),
    }
}

/// Raises what ends the log or Raft itself. What ends the machine was raised by its thread.
async fn watch_faults(raft: Raft, log: WalHealth, faults: FaultCell, stop: CancellationToken) {
    use openraft::async_runtime::WatchReceiver;
    let mut log = log.fault();
    let mut metrics = raft.metrics();
    loop {
        if let Some(fault) = log.borrow_and_update().clone() {
            return faults.raise(Fault::Log(fault.to_string()));
        }
        if let Err(fatal) = &metrics.borrow_and_update().running_state {
            if !stop.is_cancelled() {
                faults.raise(Fault::State(fatal.to_string()));
            }
            return;
        }
        tokio::select! {
            _ = log.changed() => {}
            changed = metrics.changed() => if changed.is_err() {
                // Whoever told of Raft is gone without a last word.
                if !stop.is_cancelled() {
                    faults.raise(Fault::Broken("Raft's task panicked".to_owned()));
                }
                return;
            },
            () = stop.cancelled() => return,
        }
    }
}
