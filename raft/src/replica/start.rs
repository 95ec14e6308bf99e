//! Start and stop of a replica: one thread owns Raft's runtime from start to end.
//!
//! Order of the start: lock and identity, log, newest snapshot (from a peer if the own ones are damaged), apply thread,
//! peer listener, start-up delay (a promise of the former process may still hold), Raft. The stop closes the listener
//! and ends Raft at the same time, then waits for the apply thread.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use openraft::Config;
use reveille_ledger::ids::NodeId;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::archive::ArchiveReader;
use crate::election::early::EarlyElection;
use crate::election::eligibility::Eligibility;
use crate::election::role::{self, Role};
use crate::execution::Execution;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::files::{LOG_FOLDER, SNAPSHOTS_FOLDER};
use crate::identity::Identity;
use crate::known_peers;
use crate::openraft_traits::log_storage::LogStore;
use crate::openraft_traits::network::PeerNetwork;
use crate::openraft_traits::state_machine::StateMachine;
use crate::options::ReplicaOptions;
use crate::peer::client::PeerClient;
use crate::peer::dispatch::{Dispatch, StartupHandler};
use crate::peer::join::JoinHandler;
use crate::peer::log_interval::LogInterval;
use crate::peer::{Application, Handler};
use crate::replica::{Replica, ReplicaShared, runtime_watchdog};
use crate::router::Router;
use crate::snapshot::Snapshots;
use crate::snapshot::fetch::SnapshotFetch;
use crate::snapshot::manager::{self, SnapshotManager, StoredState};
use crate::snapshot::transfer::SnapshotReceiver;
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::apply_thread::ApplyThread;
use crate::wal::{LogState, OpeningReport, WalHandle, WalOptions};
use crate::{Raft, crash, injected_bugs};

/// Number of threads of Raft's runtime.
const RAFT_THREADS: usize = 2;
/// Limits of the stop: `RAFT_END` for Raft and then for the apply thread, `RUNTIME_END` for the runtime.
const RAFT_END: Duration = Duration::from_secs(5);
const RUNTIME_END: Duration = Duration::from_secs(1);

type Started = Result<Replica, FatalError>;

impl Replica {
    /// Opens the data folder, listens for peers and takes part in Raft. Returns when the applied state can be read. The
    /// state may be old until a leader is heard.
    ///
    /// Raft has its own runtime and threads, unless [`ReplicaOptions::execution`] is inline.
    pub async fn start(options: ReplicaOptions, application: Arc<dyn Application>) -> Started {
        if options.execution == Execution::Inline {
            return start_inline(options, application).await;
        }
        let (started, receiver) = oneshot::channel();
        std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || run_on_thread(options, application, started))
            .map_err(|error| FatalError::Broken(format!("Raft's thread does not start: {error}")))?;
        receiver.await.unwrap_or_else(|_| Err(FatalError::Broken("Raft's thread died at its start".to_owned())))
    }
}

/// Starts a replica on the caller's runtime, without threads.
async fn start_inline(options: ReplicaOptions, application: Arc<dyn Application>) -> Started {
    let (ended, end) = watch::channel(false);
    let (replica, running) = open(options, application, end).await?;
    let stop = replica.inner.stop.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        running.end().await.release();
        let _ = ended.send(true);
    });
    Ok(replica)
}

/// Runs a replica from start to stop.
fn run_on_thread(options: ReplicaOptions, application: Arc<dyn Application>, started: oneshot::Sender<Started>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RAFT_THREADS)
        .thread_name("raft-worker")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(FatalError::Broken(format!("Raft's runtime does not start: {error}"))));
            return;
        }
    };
    let (ended, end) = watch::channel(false);
    let identity = runtime.block_on(async {
        match open(options, application, end).await {
            Ok((replica, running)) => {
                let stop = replica.inner.stop.clone();
                // If the caller is gone, the replica is dropped, which stops it.
                let _ = started.send(Ok(replica));
                stop.cancelled().await;
                Some(running.end().await)
            }
            Err(fatal_error) => {
                let _ = started.send(Err(fatal_error));
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

/// The parts of a running replica that the stop must end.
struct RunningRaft {
    raft: Raft,
    identity: Arc<Identity>,
    apply_ended: oneshot::Receiver<()>,
}

impl RunningRaft {
    /// Ends Raft, which closes the log, and waits for the apply thread. The folder stays locked.
    async fn end(self) -> Arc<Identity> {
        if tokio::time::timeout(RAFT_END, self.raft.shutdown()).await.is_err() {
            tracing::warn!("Raft did not end in time");
        }
        if tokio::time::timeout(RAFT_END, self.apply_ended).await.is_err() {
            tracing::warn!("the thread that applies did not end in time");
        }
        self.identity
    }
}

async fn open(
    options: ReplicaOptions,
    application: Arc<dyn Application>,
    ended: watch::Receiver<bool>,
) -> Result<(Replica, RunningRaft), FatalError> {
    let identity = Arc::new(Identity::open(&options.data_dir, options.node)?);
    let opened = open_locked(options, Arc::clone(&identity), application, ended).await;
    if opened.is_err() {
        // Needed because the peer listener may keep the identity alive a little longer.
        identity.release();
    }
    opened
}

/// The log, opened.
struct OpenedLog {
    log: LogStore,
    report: OpeningReport,
    health: WalHandle,
}

/// Opens the log. Fails if the folder is not whole.
fn open_log(options: &ReplicaOptions, identity: &Identity) -> Result<OpenedLog, FatalError> {
    let log_options = WalOptions {
        execution: options.execution,
        sync_batches: injected_bugs::log_is_synced(),
        ..WalOptions::new(options.node.0)
    };
    let (log, report) = match &options.log_disk {
        Some(disk) => LogStore::open_on(Arc::clone(disk), &log_options)?,
        None => LogStore::open(&options.data_dir.join(LOG_FOLDER), &log_options)?,
    };
    if report.records > 0 && identity.cluster().is_none() {
        return Err(FatalError::Foreign(format!(
            "{} has a log, and its file 'identity' is missing or names no cluster: the folder is not whole",
            options.data_dir.display()
        )));
    }
    // Its vote would count, and what it has acknowledged would be lost.
    if report.records == 0 && !known_peers::read(&options.data_dir).is_empty() {
        return Err(FatalError::Foreign(format!(
            "{} is the folder of a member, and its log (the folder '{LOG_FOLDER}') is gone",
            options.data_dir.display()
        )));
    }
    let health = log.health();
    Ok(OpenedLog { log, report, health })
}

/// The state of the newest snapshot, and what applies entries to it.
struct LoadedState {
    applied_state: Arc<AppliedState>,
    snapshots: Arc<SnapshotManager>,
    apply_thread: ApplyThread,
    apply_ended: oneshot::Receiver<()>,
}

/// Loads the newest readable snapshot. If the log has purged entries after it, fetches one from a peer.
async fn load_snapshot(
    options: &ReplicaOptions,
    log: &mut LogStore,
    client: &PeerClient,
) -> Result<StoredState, FatalError> {
    let path = options.data_dir.join(SNAPSHOTS_FOLDER);
    let load = || StoredState::load(&path, options.highest_level);
    let (mut stored, state) = (load()?, log.state());
    if let (Err(gap), Some(purged)) = (check_continued(&state, &stored), state.purged) {
        let peers = known_peers::read(&options.data_dir);
        if peers.is_empty() {
            return Err(gap);
        }
        tracing::warn!(%gap, "this node asks the other nodes for a snapshot");
        let folder = Arc::new(Snapshots::open(&path).map_err(|error| FatalError::State(error.to_string()))?);
        let (execution, at_least) = (options.execution, purged.index);
        let fetch = SnapshotFetch { client, peers: &peers, folder, execution, at_least };
        fetch.run(options.snapshot_wait).await?;
        stored = load()?;
        check_continued(&state, &stored)?;
    }
    if let Some(last) = &stored.position.last {
        log.fit_to(last).await.map_err(|error| FatalError::Log(error.to_string()))?;
    }
    Ok(stored)
}

/// Loads the newest snapshot and starts the apply thread.
async fn load_state(
    options: &ReplicaOptions,
    log: &mut LogStore,
    health: &WalHandle,
    client: &PeerClient,
) -> Result<LoadedState, FatalError> {
    let stored = load_snapshot(options, log, client).await?;
    let applied_state = AppliedState::new(stored.ledger, stored.position, client.fatal_errors.clone());
    let applied_state = Arc::new(applied_state.of_log(health.clone(), options.highest_level));
    let execution = options.execution;
    let snapshots = SnapshotManager::new(stored.folder, stored.manifest, Arc::clone(&applied_state), execution);
    let (apply_thread, apply_ended) = ApplyThread::start(Arc::clone(&applied_state), execution)?;
    Ok(LoadedState { applied_state, snapshots: Arc::new(snapshots), apply_thread, apply_ended })
}

/// Starts Raft. Returns after it has published its first metrics: members and status are read from them.
async fn start_raft(
    node: NodeId,
    config: Arc<Config>,
    network: PeerNetwork,
    log: LogStore,
    state_machine: StateMachine,
    fatal_errors: &FatalErrorCell,
) -> Result<Raft, FatalError> {
    let failed = |error: String| fatal_errors.get().unwrap_or(FatalError::State(error));
    let raft = Raft::new(node.0, config, network, log, state_machine).await;
    let raft = raft.map_err(|error| failed(error.to_string()))?;
    raft.is_initialized().await.map_err(|error| failed(error.to_string()))?;
    Ok(raft)
}

async fn open_locked(
    options: ReplicaOptions,
    identity: Arc<Identity>,
    application: Arc<dyn Application>,
    ended: watch::Receiver<bool>,
) -> Result<(Replica, RunningRaft), FatalError> {
    let config = Arc::new(options.config()?);
    let fatal_errors = FatalErrorCell::new();
    let OpenedLog { mut log, report, health } = open_log(&options, &identity)?;
    let client = PeerClient {
        transport: Arc::clone(&options.transport),
        identity: Arc::clone(&identity),
        fatal_errors: fatal_errors.clone(),
    };
    let LoadedState { applied_state, snapshots, apply_thread, apply_ended } =
        load_state(&options, &mut log, &health, &client).await?;

    let handler = Arc::new(StartupHandler { dispatch: OnceLock::new() });
    let stop = CancellationToken::new();
    // An error after this line closes the listener again.
    let close_listener = stop.clone().drop_guard();
    let listening = options.transport.serve(Arc::clone(&handler) as Arc<dyn Handler>, stop.clone()).await;
    listening.map_err(|error| FatalError::Listen(error.to_string()))?;

    if report.records > 0 {
        crash::point("lifecycle.catch-up-start");
        tokio::time::sleep(injected_bugs::startup_delay(options.startup_delay)).await;
    }
    let network = PeerNetwork { client: client.clone(), snapshots: Arc::clone(&snapshots) };
    let state_machine = StateMachine { apply_thread, snapshots: Arc::clone(&snapshots) };
    let raft = start_raft(options.node, Arc::clone(&config), network, log, state_machine, &fatal_errors).await?;
    applied_state.go_live();

    let role = watch::Sender::new(Role::Follower { leader: None });
    let router = Arc::new(Router::new(raft.clone(), Arc::clone(&applied_state), client, role.subscribe()));
    let eligibility = Eligibility::new(report.tail_truncated.then_some(report.waited), health.clone());
    if raft.voter_ids().eq([options.node.0]) {
        eligibility.set_only_voter();
    }
    let early_election = EarlyElection {
        raft: raft.clone(),
        own: options.node,
        role: role.subscribe(),
        liveness: router.leader_liveness.clone(),
        eligibility: eligibility.clone(),
        promised: Duration::from_millis(config.election_timeout_max),
        heartbeat: Duration::from_millis(config.heartbeat_interval),
        runtime: Handle::current(),
    };
    let dispatch = Dispatch {
        identity: Arc::clone(&identity),
        raft: raft.clone(),
        router: Arc::clone(&router),
        eligibility: eligibility.clone(),
        early_election,
        snapshots: Arc::clone(&snapshots),
        receiver: SnapshotReceiver::new(Arc::clone(&snapshots)),
        application: Arc::clone(&application),
        refusals_logged: LogInterval::default(),
        join: JoinHandler {
            tls: options.tls.clone(),
            raft: raft.clone(),
            router: Arc::clone(&router),
            role: role.subscribe(),
            changing: Mutex::default(),
        },
    };
    // This succeeds: only this line sets it.
    let _ = handler.dispatch.set(dispatch);

    tokio::spawn(role::follow(raft.server_metrics(), role, router.leader_liveness.clone(), stop.clone()));
    let candidate = raft.clone();
    let set_candidacy = move |may_campaign| candidate.runtime_config().elect(may_campaign);
    tokio::spawn(eligibility.clone().run(options.execution, set_candidacy, stop.clone()));
    let folder = (options.data_dir.clone(), options.node);
    tokio::spawn(known_peers::keep(raft.server_metrics(), folder, options.execution, stop.clone()));
    tokio::spawn(runtime_watchdog::watch(stop.clone()));
    let archive = ArchiveReader::new(Arc::clone(&applied_state), Arc::clone(&snapshots));
    tokio::spawn(manager::run(
        Arc::clone(&snapshots),
        raft.clone(),
        health.clone(),
        options.snapshot_every,
        stop.clone(),
    ));
    tokio::spawn(watch_fatal_errors(raft.clone(), health.clone(), fatal_errors.clone(), stop.clone()));

    let inner = ReplicaShared {
        raft: raft.clone(),
        applied_state,
        archive,
        identity: Arc::clone(&identity),
        process_nonce: options.process_nonce,
        router,
        eligibility,
        application,
        snapshots,
        tls: options.tls,
        fatal_errors,
        log: health,
        execution: options.execution,
        runtime: Handle::current(),
        stop: close_listener.disarm(),
        ended,
    };
    let running = RunningRaft { raft, identity, apply_ended };
    Ok((Replica { inner: Arc::new(inner) }, running))
}

/// Fails if the log has purged entries that no readable snapshot contains: this node could not continue.
pub(crate) fn check_continued(log: &LogState, stored: &StoredState) -> Result<(), FatalError> {
    let reached = stored.position.last.map_or(0, |id| id.index);
    match log.purged {
        Some(purged) if purged.index > reached => Err(FatalError::Damaged(format!(
            "it begins behind entry {}, and the newest readable snapshot in the folder 'snapshots' ends at entry \
             {reached}: snapshots are gone or damaged",
            purged.index
        ))),
        _ => Ok(()),
    }
}

/// Raises errors of the log and of Raft. The apply thread raises its own.
async fn watch_fatal_errors(raft: Raft, log: WalHandle, fatal_errors: FatalErrorCell, stop: CancellationToken) {
    use openraft::async_runtime::WatchReceiver;
    let mut log = log.failure();
    let mut metrics = raft.metrics();
    loop {
        if let Some(fatal_error) = log.borrow_and_update().clone() {
            return fatal_errors.raise(FatalError::Log(fatal_error.to_string()));
        }
        if let Err(fatal) = &metrics.borrow_and_update().running_state {
            if !stop.is_cancelled() {
                fatal_errors.raise(FatalError::State(fatal.to_string()));
            }
            return;
        }
        tokio::select! {
            _ = log.changed() => {}
            changed = metrics.changed() => if changed.is_err() {
                // The sender of the metrics was dropped without a final state.
                if !stop.is_cancelled() {
                    fatal_errors.raise(FatalError::Broken("Raft's task panicked".to_owned()));
                }
                return;
            },
            () = stop.cancelled() => return,
        }
    }
}
