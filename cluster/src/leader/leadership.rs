//! The state of one leadership: built when its epoch is applied, dropped when the epoch ends (P13).
//!
//! Raft may still report "this node leads" on a leader that was cut off. So a leadership never acts on that report: it
//! only proposes, and the ledger checks the epoch of each proposal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::command::{Actor, Command, Quarantine, Quarantined};
use reveille_ledger::ids::{ClaimOwner, Epoch, Fence, Hash, NodeId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{ProposeError, Replica};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::lease_grants::{LeaseGrants, LeaseRefused};
use super::replication_lag::{self, AppliedHistory, FRESH};
use crate::monitoring::disk_reserve::DiskSpace;
use crate::process::clock::LedgerClock;
use crate::process::lease::LeaseClock;
use crate::process::peer_messages::{GrantedLease, LeaseRequest, NodeMeasurements};

/// Time after which the outcome of a proposal is unknown. Actors then read the state and continue from there.
pub(crate) const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Tolerance of the time that the machine has slept. More sleep than this during a leadership ends it.
const SLEPT_MAX: Duration = Duration::from_millis(50);

/// One leadership of this node.
pub struct Leadership {
    replica: Replica,
    lease_clock: Arc<LeaseClock>,
    epoch: Epoch,
    clocks_agree: bool,
    clock: Mutex<LedgerClock>,
    grants: Mutex<LeaseGrants>,
    applied_history: Mutex<AppliedHistory>,
    reports: Mutex<BTreeMap<NodeId, NodeReport>>,
    /// The dispatcher holds it for reading from its read of the state until the claims that it proposed are in the log,
    /// or never will be. Locking it for writing waits for all such claims.
    pub(crate) claiming: Arc<tokio::sync::RwLock<()>>,
    /// Held from the last check of a removal until its proposal is answered: one node is removed at a time (P22).
    pub(crate) removing: tokio::sync::Mutex<()>,
    /// Time that this machine had slept when the leadership began. Raft's instants stop during sleep, so the
    /// acknowledgement of a quorum would look younger than it is.
    slept: Duration,
    pub(crate) ended: CancellationToken,
    /// Wakes the dispatcher: there may be something to claim.
    pub(crate) wake_dispatcher: Notify,
    /// Wakes the timer: the next due instant may have changed.
    pub(crate) wake_timer: Notify,
    /// Wakes the auditor: the time has jumped forward.
    pub(crate) wake_auditor: Notify,
}

/// An applied `EpochStart` of this node, from which its leadership is built.
pub(crate) struct StartedEpoch {
    pub epoch: Epoch,
    /// True if two voters' clocks agreed when the epoch began, or the only voter's clock was accepted (P18).
    pub clocks_agree: bool,
    /// Ledger time at `base_at`, without the offset of a test clock.
    pub base: Time,
    /// Reading of CLOCK_BOOTTIME to which `base` belongs.
    pub base_at: Duration,
    /// Reading of CLOCK_BOOTTIME when the entry was applied.
    pub applied_at: Duration,
}

/// The last lease request of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    /// The process that reported.
    pub owner: ClaimOwner,
    /// Measurements of the node's relays (P12).
    pub measured: NodeMeasurements,
    /// True if the node's state is too old for more claims (P12).
    pub behind: bool,
    /// Files that the node lacks: audience parts and attachments (P20).
    pub missing: BTreeSet<Hash>,
    /// True if the node lacks blocks of the archive (P24).
    pub lacks_archive: bool,
    /// Space on the node's volume.
    pub space: DiskSpace,
    /// True if the node stops and wants no more claims. Once true, it stays true for this incarnation.
    pub stopping: bool,
}

/// Returns the files that a node lacked at its last request (P20).
pub(crate) fn missing_files(reports: &BTreeMap<NodeId, NodeReport>, node: NodeId) -> BTreeSet<Hash> {
    reports.get(&node).map(|report| report.missing.clone()).unwrap_or_default()
}

impl Leadership {
    /// Creates the leadership of an epoch that has started.
    pub(crate) fn new(
        replica: Replica,
        lease_clock: Arc<LeaseClock>,
        started: StartedEpoch,
        ended: CancellationToken,
    ) -> Leadership {
        Leadership {
            replica,
            slept: lease_clock.slept(),
            lease_clock,
            epoch: started.epoch,
            clocks_agree: started.clocks_agree,
            clock: Mutex::new(LedgerClock::new(started.base, started.base_at)),
            grants: Mutex::new(LeaseGrants::new(started.applied_at)),
            applied_history: Mutex::default(),
            reports: Mutex::default(),
            claiming: Arc::default(),
            removing: tokio::sync::Mutex::default(),
            ended,
            wake_dispatcher: Notify::new(),
            wake_timer: Notify::new(),
            wake_auditor: Notify::new(),
        }
    }

    /// Returns the epoch, which all proposals of this leadership carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns true if the clocks agreed when the epoch began ([`StartedEpoch::clocks_agree`]). Otherwise nothing fires
    /// (P18).
    pub fn clocks_agree(&self) -> bool {
        self.clocks_agree
    }

    /// Returns ledger time. Reads the state for the offset of a test clock (P19), so it must not be called while the
    /// state is being read.
    pub fn now(&self) -> Time {
        let offset_ms = self.replica.read(|ledger| ledger.head().offset_ms());
        self.stamp().plus_ms(offset_ms)
    }

    /// Returns the timestamp for entries of this leader: ledger time without the offset of a test clock, which `apply`
    /// adds (P19).
    pub(crate) fn stamp(&self) -> Time {
        self.clock.lock().now(self.lease_clock.boot())
    }

    /// Slews ledger time toward `wall`, the time on which the voters' clocks agreed at this reading of CLOCK_BOOTTIME
    /// (P18).
    pub(crate) fn steer(&self, wall: Time, boot: Duration) {
        self.clock.lock().steer(wall, boot);
    }

    /// Lets ledger time follow CLOCK_BOOTTIME only, because the clocks do not agree (P18).
    pub(crate) fn stop_steering(&self) {
        self.clock.lock().stop_steering(self.lease_clock.boot());
    }

    /// Returns true if the leadership is over.
    pub fn ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Sleeps for `time`, or until the leadership ends.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.ended.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Sleeps for `time`, or until the leadership ends or `wakeup` is notified. Each `Notify` has one waiter.
    pub(crate) async fn wait_for_wakeup(&self, wakeup: &Notify, time: Duration) {
        tokio::select! {
            () = self.sleep(time) => {}
            () = wakeup.notified() => {}
        }
    }

    /// Proposes a command in this epoch. `None` if the outcome is unknown or the leadership is over; the caller then
    /// reads the state.
    pub(crate) async fn propose(&self, command: Command) -> Option<CommandOutcome> {
        self.propose_for(&Actor::System, command).await
    }

    /// As [`Leadership::propose`], for an operator: the ledger checks the operator's token, and keeps an audit record.
    pub(crate) async fn propose_for(&self, actor: &Actor, command: Command) -> Option<CommandOutcome> {
        let deadline = std::time::Instant::now() + PROPOSAL_TIMEOUT;
        match self.replica.propose_in_epoch(self.epoch, actor, &command, deadline).await {
            Ok(reply) => {
                // Only a new epoch can make such a step of time (P18). Timestamps that are refused for their epoch or as
                // too early do not come here: the replica reports them as the end of the epoch.
                if let CommandOutcome::Refused(refusal @ CommandRefusal::TimeLeaps { .. }) = &reply.outcome {
                    tracing::warn!(%refusal, epoch = self.epoch.0, "the leadership ends");
                    self.ended.cancel();
                }
                Some(reply.outcome)
            }
            Err(error) => {
                if matches!(error, ProposeError::TooLarge { .. }) {
                    // Each caller bounds its proposals, so this is a bug, and the caller would propose the same again.
                    tracing::error!(%error, "a proposal of the leadership cannot be made: this is a defect of Reveille");
                }
                tracing::debug!(%error, "a proposal of the leadership has no answer");
                if error == ProposeError::EpochOver {
                    self.ended.cancel();
                }
                None
            }
        }
    }

    /// Proposes to take an item out of service. `None` if the outcome is unknown.
    pub(crate) async fn quarantine(&self, item: Quarantined, cause: &str) -> Option<CommandOutcome> {
        self.propose(Command::Quarantine(Quarantine { item, cause: cause.to_owned() })).await
    }

    /// Grants or refuses a node lease (P9).
    ///
    /// # Errors
    /// [`LeaseRefused`] with the reason.
    pub fn grant(&self, request: LeaseRequest) -> Result<GrantedLease, LeaseRefused> {
        let (owner, applied, now) = (request.owner, request.applied, self.lease_clock.now());
        if self.lease_clock.slept().saturating_sub(self.slept) > SLEPT_MAX {
            tracing::warn!("this machine was suspended: the leadership ends");
            self.ended.cancel();
        }
        let quorum = self.lease_clock.last_quorum_ack(&self.replica, now);
        // Lock order: ledger, then grants. The reverse order can deadlock with a waiting writer. Nothing is applied
        // during a read: a later entry finds the grant in the list, and an earlier entry is in the floor.
        let granted = self.replica.read(|ledger| {
            let current = ledger.head().current_epoch();
            if self.ended() || current != Some(self.epoch) {
                return Err(LeaseRefused::EpochOver);
            }
            let age = {
                let mut applied_history = self.applied_history.lock();
                applied_history.record(now, ledger.head().applied);
                applied_history.age(applied, now)
            };
            if ledger.removed_nodes().contains(&owner.node) {
                return Err(LeaseRefused::Removed);
            }
            self.record_report(request, age > FRESH);
            if replication_lag::must_lose_lease(ledger, owner, applied, age) {
                return Err(LeaseRefused::Behind);
            }
            let floor = ledger.lease_floor(owner.node);
            Ok(GrantedLease { length: self.grants.lock().grant(owner, floor, now, quorum)?, floor })
        })?;
        self.wake_dispatcher.notify_one();
        Ok(granted)
    }

    /// Records the report in a lease request. A request of an earlier incarnation is ignored.
    fn record_report(&self, request: LeaseRequest, behind: bool) {
        let LeaseRequest { owner, measured, stopping, missing, lacks_archive, space, .. } = request;
        let mut reports = self.reports.lock();
        let before = reports.get(&owner.node);
        if before.is_some_and(|before| before.owner.incarnation > owner.incarnation) {
            return;
        }
        match (before.is_some_and(|before| before.behind), behind) {
            (false, true) => tracing::warn!(node = %owner.node, "a node does not apply what is committed: no claims"),
            (true, false) => tracing::info!(node = %owner.node, "a node applies again what is committed"),
            _ => {}
        }
        let stopping = stopping || before.is_some_and(|before| before.owner == owner && before.stopping);
        let missing = missing.into_iter().collect();
        let report = NodeReport { owner, measured, behind, missing, lacks_archive, space, stopping };
        reports.insert(owner.node, report);
    }

    /// Waits until every claim that was proposed before this call is in the log, or never will be.
    pub(crate) async fn until_claims_are_in_the_log(&self) {
        drop(self.claiming.write().await);
    }

    /// Returns the last report of each node.
    pub(crate) fn reports(&self) -> BTreeMap<NodeId, NodeReport> {
        self.reports.lock().clone()
    }

    /// Returns true if the last `EpochStart` in the applied state is this leadership's own. Otherwise the leader must
    /// neither act nor answer (P13).
    pub(crate) fn is_in_force(&self) -> bool {
        let current = self.replica.read(|ledger| ledger.head().current_epoch());
        !self.ended() && current == Some(self.epoch)
    }

    /// Returns true if this owner's leases are over, margin included (P9).
    pub fn lease_is_over(&self, owner: ClaimOwner) -> bool {
        self.grants.lock().is_over(owner, self.lease_clock.boot())
    }

    /// Returns true if every grant to this owner with a floor below `index` is over, margin included (P15).
    pub(crate) fn lease_is_over_below(&self, owner: ClaimOwner, index: u64) -> bool {
        self.grants.lock().is_over_below(owner, index, self.lease_clock.boot())
    }

    /// Returns true if this owner may get claims, as far as this leadership knows (P12): it has a lease of this
    /// leadership, applies the log, has space to record what it sends, and does not stop.
    pub(crate) fn may_claim(&self, owner: ClaimOwner) -> bool {
        let reports = self.reports.lock();
        let is_able = |report: &NodeReport| !report.behind && report.space != DiskSpace::Exhausted && !report.stopping;
        let wants = |report: &NodeReport| report.owner == owner && is_able(report);
        reports.get(&owner.node).is_some_and(wants) && self.grants.lock().has_lease(owner, self.lease_clock.boot())
    }

    /// Returns true if the last process of this node that asked for a lease has one.
    pub(crate) fn has_lease(&self, node: NodeId) -> bool {
        let (reports, grants) = (self.reports.lock(), self.grants.lock());
        reports.get(&node).is_some_and(|report| grants.has_lease(report.owner, self.lease_clock.boot()))
    }

    /// Returns the number of nodes with a lease whose state is too old for claims.
    pub(crate) fn nodes_behind(&self) -> usize {
        let (reports, grants, now) = (self.reports.lock(), self.grants.lock(), self.lease_clock.boot());
        reports.values().filter(|report| report.behind && grants.has_lease(report.owner, now)).count()
    }

    /// Revokes claims whose owners' leases are over (P9). These owners get no lease from before the proposal until it
    /// is known to be applied. After an unknown outcome the auditor proposes again, with the claims that are left.
    pub(crate) async fn revoke(&self, mut claims: BTreeMap<Fence, ClaimOwner>) {
        let revocation = {
            let (mut grants, now) = (self.grants.lock(), self.lease_clock.boot());
            // A node may have got a lease again since the auditor's check.
            claims.retain(|_, owner| grants.is_over(*owner, now));
            grants.revoke(claims.values().copied())
        };
        if self.propose(Command::Revoke(claims.into_keys().collect())).await.is_some() {
            self.grants.lock().revoked(revocation);
        }
    }

    /// Returns true if a revocation was proposed and its outcome is not known.
    pub(crate) fn is_revoking(&self) -> bool {
        self.grants.lock().is_revoking()
    }
}
