//! Starts and stops a node's actors in the order that the protocol requires.
//!
//! Start (P10): the replica runs; the ledger learns this incarnation; claims of earlier incarnations are settled from
//! their journals; only then the node asks for a lease, and so for claims, and its workers run. Stop: the leader is
//! informed and grants this incarnation no more claims; what has not begun is returned; emails past the gate get their
//! answer; the leadership is handed over. The journal stays: the next incarnation settles what may still be open, and
//! deletes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::{Command, NodeUp};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::Role;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::authority_follower;
use super::context::NodeContext;
use super::proposal::propose_until_accepted;
use super::state_comparison;
use super::supervisor::Supervisor;
use crate::file_store;
use crate::leader::{lifecycle, transfer};
use crate::maintenance::scrub;
use crate::monitoring::{alarm_log, backlog_watch, disk_watch};
use crate::smtp::registry::RelayRegistry;
use crate::smtp::{CredentialStore, Dial, RelayRules, relay_follower};
use crate::worker::context::{JournalWriter, WorkerContext};
use crate::worker::journal::{Journal, JournalOwner, boot_id};
use crate::worker::lease_client::StopSignals;
use crate::worker::settler::{Settler, SettlerActor};
use crate::worker::{lease_client, recovery, workers};

/// Pause before an actor on Raft's runtime is started again.
const RESTART_AFTER: Duration = Duration::from_millis(100);
/// Maximum time of one wait for the entry of this incarnation, before the next check for a stop.
const APPLY_WAIT: Duration = Duration::from_secs(3);
/// Time that a stop reserves for the transfer of the leadership.
const TRANSFER_WITHIN: Duration = Duration::from_secs(3);
/// Maximum time that a stop waits until its own state shows the settled outcomes.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

/// Settings and dependencies of a node's actors, in addition to its context.
pub struct RuntimeOptions {
    /// Display name of this node.
    pub name: String,
    /// Name in EHLO. `None`: the address literal of each connection.
    pub hello_name: Option<String>,
    /// Credentials that this node has for relays.
    pub credentials: Arc<CredentialStore>,
    /// The operator's rules for the answers of relays.
    pub reply_rules: RelayRules,
    /// Folder of the journals, on a memory-backed file system (P11).
    pub journal_dir: PathBuf,
    /// Connects to relays.
    pub dialer: Arc<dyn Dial>,
}

/// Reason why a node cannot work.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ledger refuses this incarnation.
    #[error("the cluster refuses this node: {0}")]
    NotAccepted(CommandRefusal),
    /// The ledger has a level that this build does not know, and this node's log has no entry of that level yet (P23).
    #[error(
        "the cluster is at ledger level {level}, and this build applies up to {highest}; start a newer build on this \
         data folder"
    )]
    AboveLevel {
        /// Level of the cluster.
        level: u32,
        /// Highest level that this build applies.
        highest: u32,
    },
    /// The journal cannot be written.
    #[error("the journal cannot be written: {0}; give another folder with --journal-dir")]
    Journal(String),
    /// The node was stopped before it had started.
    #[error("stopped")]
    Stopped,
}

/// The running actors of a node.
pub struct NodeRuntime {
    /// State that the actors share.
    pub context: Arc<NodeContext>,
    /// The relays of this node.
    pub relays: Arc<RelayRegistry>,
    supervisor: Supervisor,
    leadership_handle: LeadershipHandle,
    stopping: StopSignals,
}

impl NodeRuntime {
    /// Starts the actor that runs this node's leaderships, and the one that follows rotations of the authority. A
    /// cluster needs a leader before a node can register with it, so this comes first. Must be called after the replica
    /// has started. It uses the replica's runtime: a leader's work must not wait for its workers.
    pub fn start_leadership_actor(context: &Arc<NodeContext>) -> LeadershipHandle {
        let (supervisor, stop) = (Supervisor::new(), CancellationToken::new());
        let (led, ending) = (Arc::clone(context), stop.clone());
        let actor = move || lifecycle::run(Arc::clone(&led), ending.clone());
        supervisor.run_restarting("Leadership", context.replica.runtime(), RESTART_AFTER, stop.clone(), actor);
        // A node that was down may need it before any leader accepts its certificate.
        if let Some(tls) = context.replica.tls().cloned() {
            let (context, ending) = (Arc::clone(context), stop.clone());
            let runtime = context.replica.runtime().clone();
            let actor = move || authority_follower::run(Arc::clone(&context), tls.clone(), ending.clone());
            supervisor.run_restarting("AuthorityFollower", &runtime, RESTART_AFTER, stop.clone(), actor);
        }
        LeadershipHandle { supervisor, stop }
    }

    /// Registers this incarnation, recovers, and starts to work. Waits until there is a leader; `cancel` ends the wait.
    pub async fn start(
        context: Arc<NodeContext>,
        leadership_handle: LeadershipHandle,
        options: RuntimeOptions,
        cancel: &CancellationToken,
    ) -> Result<NodeRuntime, StartError> {
        register_incarnation(&context, &options, cancel).await?;
        let boot = boot_id().map_err(|error| StartError::Journal(error.to_string()))?;
        recovery::settle_earlier_incarnations(&context, &options.journal_dir, &boot, cancel).await;
        let owner = JournalOwner { cluster: context.cluster(), process: context.me };
        let journal = Journal::create(&options.journal_dir, &owner, &boot)
            .map_err(|error| StartError::Journal(error.to_string()))?;
        let RuntimeOptions { name, hello_name, credentials, reply_rules, dialer, .. } = options;
        let relays = Arc::new(RelayRegistry::new(dialer, name, hello_name, credentials, reply_rules));
        context.set_relays(Arc::clone(&relays));
        let (settler, settling) = Settler::new(Arc::clone(&context));
        let stopping = StopSignals::default();
        let supervisor = Supervisor::new();
        let journal = JournalWriter::new(journal, supervisor.stop_reporter());
        let stop = stopping.stop_requested.clone();
        let workers = WorkerContext::new(Arc::clone(&context), Arc::clone(&relays), journal, settler, stop);
        let runtime = NodeRuntime { context, relays, supervisor, leadership_handle, stopping };
        runtime.run_actors(workers, settling);
        Ok(runtime)
    }

    fn run_actors(&self, workers: WorkerContext, settling: SettlerActor) {
        let (work, raft) = (Handle::current(), self.context.replica.runtime());
        let StopSignals { stop_requested, all_settled, .. } = &self.stopping;
        let (relays, pause) = (Arc::clone(&self.relays), Duration::from_secs(1));
        relay_follower::follow(&self.context, &relays);
        self.restarting("RelayFollower", &work, pause, stop_requested, move |context, stopping| {
            relay_follower::run(context, Arc::clone(&relays), stopping.stop_requested)
        });
        self.restarting("AlarmLog", &work, pause, stop_requested, |context, stopping| {
            alarm_log::run(context, stopping.stop_requested)
        });
        self.restarting("BacklogWatch", &work, pause, stop_requested, |context, stopping| {
            backlog_watch::run(context, stopping.stop_requested)
        });
        self.restarting("FileFetcher", &work, pause, stop_requested, |context, stopping| {
            file_store::fetcher::run(context, stopping.stop_requested)
        });
        if self.context.disk.is_kept() {
            self.restarting("DiskWatch", &work, pause, stop_requested, |context, stopping| {
                disk_watch::run(context, stopping.stop_requested)
            });
        }
        self.restarting("Scrub", &work, pause, stop_requested, |context, stopping| {
            scrub::run(context, stopping.stop_requested)
        });
        self.restarting("StateComparison", &work, pause, stop_requested, |context, stopping| {
            state_comparison::run(context, stopping.stop_requested)
        });
        // On Raft's runtime: a lease that is not prolonged puts all of the node's claims in doubt.
        self.restarting("LeaseClient", raft, RESTART_AFTER, all_settled, lease_client::run);
        // These two have the handoffs past the gate and the outcomes that are not settled.
        let workers = workers::run(Arc::new(workers), self.stopping.clone());
        self.supervisor.run_essential("Workers", stop_requested.clone(), workers);
        let settled = all_settled.clone();
        self.supervisor.run_essential("Settler", stop_requested.clone(), async move {
            // After the settler has ended in any way, this incarnation needs no lease.
            let settled = settled.drop_guard();
            settling.run().await;
            drop(settled);
        });
    }

    /// Runs an actor, and starts another one if it ends before `stop`.
    fn restarting<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        runtime: &Handle,
        pause: Duration,
        stop: &CancellationToken,
        mut actor: impl FnMut(Arc<NodeContext>, StopSignals) -> F + Send + 'static,
    ) {
        let (context, stopping) = (Arc::clone(&self.context), self.stopping.clone());
        let actor = move || actor(Arc::clone(&context), stopping.clone());
        self.supervisor.run_restarting(name, runtime, pause, stop.clone(), actor);
    }

    /// Returns why the node must stop. Set after the journal failed, or an actor that cannot be replaced.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.supervisor.failed()
    }

    /// Stops within `limit`. What has not begun is returned, and emails past the gate get their answer if it comes
    /// in time. Returns true if nothing of this incarnation is left open.
    ///
    /// The leadership is handed over last, so that outcomes still get into the log. The journal stays: the next start
    /// settles what a running claim may have left open.
    pub async fn stop(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        self.context.mark_stopping();
        self.stopping.stop_requested.cancel();
        let answered = self.relays.close(left().saturating_sub(TRANSFER_WITHIN)).await;
        let settled = tokio::time::timeout(left().saturating_sub(TRANSFER_WITHIN), self.supervisor.ended()).await;
        self.stopping.all_settled.cancel();
        // The leader answers for outcomes. Its applied state must be visible here before open claims are counted.
        let _ = self.context.replica.linearizable(Instant::now() + left().min(CATCH_UP_WITHIN)).await;
        transfer_leadership(&self.context, Instant::now() + left().min(TRANSFER_WITHIN)).await;
        self.leadership_handle.stop.cancel();
        let led = tokio::time::timeout(left().max(TRANSFER_WITHIN), self.leadership_handle.supervisor.ended()).await;
        let me = self.context.me;
        let open = self.context.replica.read(|ledger| ledger.claims().iter().any(|(_, claim)| claim.owner == me));
        let clean = answered && settled.is_ok() && led.is_ok() && !open;
        if !clean {
            tracing::warn!(
                answered,
                settled = settled.is_ok(),
                open,
                "stopped with something open: the next start settles it"
            );
        }
        clean
    }
}

/// A node whose leadership actor runs, and no other actor yet.
pub struct LeadershipHandle {
    supervisor: Supervisor,
    stop: CancellationToken,
}

/// Registers this incarnation in the ledger. Only then may it own a claim (P10).
async fn register_incarnation(
    context: &NodeContext,
    options: &RuntimeOptions,
    cancel: &CancellationToken,
) -> Result<(), StartError> {
    let (level, process_nonce) = (context.replica.highest_level(), context.replica.process_nonce());
    let up = NodeUp { owner: context.me, name: options.name.clone(), level, process_nonce };
    // A removed node learns of its removal from its peers. Until it has left the membership, its vote may be needed
    // (P22).
    let is_final = |refusal: &CommandRefusal| match refusal {
        CommandRefusal::OldIncarnation { .. } => true,
        CommandRefusal::NotPossible(why) => !matches!(why, Impossible::NodeRemoved(_)),
        _ => false,
    };
    let reply = propose_until_accepted(context, &Command::NodeUp(up), is_final, cancel).await;
    let reply = reply.map_err(|_| StartError::Stopped)?;
    if let CommandOutcome::Refused(refusal) = reply.outcome {
        if let CommandRefusal::OldIncarnation { .. } = refusal {
            context.replica.mark_outdated(&refusal.to_string());
        }
        return Err(match refusal {
            CommandRefusal::NotPossible(Impossible::LevelTooLow { ledger, node }) => {
                StartError::AboveLevel { level: ledger, highest: node }
            }
            refusal => StartError::NotAccepted(refusal),
        });
    }
    wait_until_applied(context, reply.index, cancel).await
}

async fn wait_until_applied(context: &NodeContext, index: u64, cancel: &CancellationToken) -> Result<(), StartError> {
    loop {
        let applied = context.replica.wait_applied(index, Instant::now() + APPLY_WAIT);
        match cancel.run_until_cancelled(applied).await {
            None => return Err(StartError::Stopped),
            Some(Some(_)) => return Ok(()),
            Some(None) => {}
        }
    }
}

/// Transfers the leadership to another voter, so that no election is needed.
async fn transfer_leadership(context: &NodeContext, deadline: Instant) {
    if matches!(*context.replica.role().borrow(), Role::Leader { .. }) {
        transfer::transfer_to_any(context, |_| true, deadline).await;
    }
}
