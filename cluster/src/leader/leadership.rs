//! What one leadership owns: built from the state when its epoch is applied, dropped when it ends (P13).
//!
//! "I lead" as Raft reports it stays true on a leader that was cut off, so nothing here touches the world
//! by it: the leadership only proposes, and its proposals carry the epoch, which the ledger checks. Fail-over is
//! the ordinary road: the first leader of a cluster goes through the same lines as the hundredth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::command::Command;
use reveille_ledger::ids::{ClaimOwner, Epoch, Fence, Hash, NodeId, Time};
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{ProposeError, Replica};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::lease_grants::{LeaseGrants, LeaseRefused};
use super::replication_lag::{self, AppliedHistory, FRESH};
use crate::node::clock::LedgerClock;
use crate::node::lease::LeaseClock;
use crate::node::peer_messages::{LeaseRequest, NodeMeasurements};

/// A proposal of the leadership is unknown after this long; its actors look at the state and go on from there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Two readings of how long the machine has slept may differ by this much.
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
    /// Read from the look at the state until the claims that were made of it are in the log, or never will be.
    pub(crate) claiming: Arc<tokio::sync::RwLock<()>>,
    lacking: Mutex<BTreeMap<NodeId, BTreeSet<Hash>>>,
    /// How long this machine had slept when the leadership began: Raft's own instants stand still meanwhile,
    /// so a quorum's acknowledgement would look younger than it is.
    slept: Duration,
    pub(crate) ended: CancellationToken,
    /// Wakes the dispatcher: there may be something to claim.
    pub(crate) work: Notify,
    /// Wakes the timer: the next due instant may have changed.
    pub(crate) due: Notify,
    /// Wakes the auditor: the time has jumped forward.
    pub(crate) late: Notify,
}

/// What a node said with its last question for a lease.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    /// The process that reported.
    pub owner: ClaimOwner,
    /// What it has measured (P12).
    pub measured: NodeMeasurements,
    /// Its state is too old for more claims (P12).
    pub behind: bool,
    /// It stops, and wants no more claims. Once said it is so for all of that life.
    pub stopping: bool,
}

impl Leadership {
    /// The leadership of an epoch whose `EpochStart` was applied at `applied_at`, with ledger time `base` at `base_at`.
    pub(crate) fn new(
        replica: Replica,
        lease_clock: Arc<LeaseClock>,
        (epoch, clocks_agree): (Epoch, bool),
        (base, base_at): (Time, Duration),
        applied_at: Duration,
        ended: CancellationToken,
    ) -> Leadership {
        Leadership {
            replica,
            slept: lease_clock.slept(),
            lease_clock,
            epoch,
            clocks_agree,
            clock: Mutex::new(LedgerClock::new(base, base_at)),
            grants: Mutex::new(LeaseGrants::new(applied_at)),
            applied_history: Mutex::default(),
            reports: Mutex::default(),
            claiming: Arc::default(),
            lacking: Mutex::default(),
            ended,
            work: Notify::new(),
            due: Notify::new(),
            late: Notify::new(),
        }
    }

    /// The epoch that its proposals carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Did two voters' clocks agree when the epoch began? If not, nothing fires (P18).
    pub fn clocks_agree(&self) -> bool {
        self.clocks_agree
    }

    /// Ledger time. Looks at the state for the offset of a test clock (P19): not to be asked inside a look.
    pub fn now(&self) -> Time {
        let offset_ms = self.replica.read(|ledger| ledger.head().offset_ms());
        self.stamp().plus_ms(offset_ms)
    }

    /// What this leader stamps on its entries: ledger time, but for the offset of a test clock, which `apply`
    /// adds (P19).
    pub(crate) fn stamp(&self) -> Time {
        self.clock.lock().now(self.lease_clock.boot())
    }

    /// P18: ledger time goes toward `wall`, what the voters' clocks agreed on at this reading of CLOCK_BOOTTIME.
    pub(crate) fn steer(&self, wall: Time, boot: Duration) {
        self.clock.lock().steer(wall, boot);
    }

    /// P18: the clocks do not agree: ledger time goes on by this machine's count.
    pub(crate) fn steer_nowhere(&self) {
        self.clock.lock().steer_nowhere(self.lease_clock.boot());
    }

    /// Is it over?
    pub fn ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Sleeps, at most until the leadership ends.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.ended.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Sleeps, at most until the leadership ends or `wakeup` is notified. Each `Notify` has one waiter.
    pub(crate) async fn wait_for_wakeup(&self, wakeup: &Notify, time: Duration) {
        tokio::select! {
            () = self.sleep(time) => {}
            () = wakeup.notified() => {}
        }
    }

    /// Proposes under this leadership. None when the outcome is unknown or the leadership is over: look at the state.
    pub(crate) async fn propose(&self, command: Command) -> Option<CommandOutcome> {
        let deadline = std::time::Instant::now() + PATIENCE;
        match self.replica.propose_in_epoch(self.epoch, &command, deadline).await {
            Ok(reply) => {
                if let CommandOutcome::Refused(refusal) = &reply.outcome {
                    self.heed(refusal);
                }
                Some(reply.outcome)
            }
            Err(error) => {
                if matches!(error, ProposeError::TooLarge { .. }) {
                    // Whatever proposes has bounds of its own: it would propose the same again.
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

    /// P18: ledger time was not moved for too long, and only a new epoch can set it right. A stamp that was
    /// refused for its epoch, or as too early, never comes here: the replica says that the epoch is over.
    fn heed(&self, refusal: &Refusal) {
        if matches!(refusal, Refusal::TimeLeaps { .. }) {
            tracing::warn!(%refusal, epoch = self.epoch.0, "the leadership ends");
            self.ended.cancel();
        }
    }

    /// P9: grants or refuses a node lease; answers its length and its floor.
    pub fn grant(&self, question: LeaseRequest) -> Result<(Duration, u64), LeaseRefused> {
        let (owner, applied, now) = (question.owner, question.applied, self.lease_clock.now());
        if self.lease_clock.slept().saturating_sub(self.slept) > SLEPT_MAX {
            tracing::warn!("this machine was suspended: the leadership ends");
            self.ended.cancel();
        }
        let quorum = self.lease_clock.last_quorum_ack(&self.replica, now);
        // Lock order: ledger, then grants. The reverse can deadlock with a waiting writer. Nothing is applied during a
        // read: a later entry finds the grant in the list, an earlier one is in the floor.
        let granted = self.replica.read(|ledger| {
            let current = ledger.head().epoch.map(|epoch| epoch.epoch);
            if self.ended() || current != Some(self.epoch) {
                return Err(LeaseRefused::EpochOver);
            }
            let age = {
                let mut applied_history = self.applied_history.lock();
                applied_history.note(now, ledger.head().applied);
                applied_history.age(applied, now)
            };
            self.note(question, age > FRESH);
            if replication_lag::is_lost(ledger, owner, applied, age) {
                return Err(LeaseRefused::Behind);
            }
            let floor = ledger.floor(owner.node);
            Ok((self.grants.lock().grant(owner, floor, now, quorum)?, floor))
        })?;
        self.work.notify_one();
        Ok(granted)
    }

    /// What a node says with its question. A question of a former life says nothing of the one that runs.
    fn note(&self, question: LeaseRequest, behind: bool) {
        let LeaseRequest { owner, measured, stopping, lacking, .. } = question;
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
        reports.insert(owner.node, NodeReport { owner, measured, behind, stopping });
        self.lacking.lock().insert(owner.node, lacking.into_iter().collect());
    }

    /// P20: what a node last said that it lacks.
    pub(crate) fn lacking(&self, node: NodeId) -> BTreeSet<Hash> {
        self.lacking.lock().get(&node).cloned().unwrap_or_default()
    }

    /// Returns when every claim that was made before a node said that it stops is in the log, or never will be.
    pub(crate) async fn until_claims_are_in_the_log(&self) {
        drop(self.claiming.write().await);
    }

    /// What the nodes said last.
    pub(crate) fn reports(&self) -> BTreeMap<NodeId, NodeReport> {
        self.reports.lock().clone()
    }

    /// P13: a leader acts and answers only while the last `EpochStart` in its applied state is its own.
    pub(crate) fn is_in_force(&self) -> bool {
        let current = self.replica.read(|ledger| ledger.head().epoch.map(|epoch| epoch.epoch));
        !self.ended() && current == Some(self.epoch)
    }

    /// P9: may this owner's lease be regarded as over?
    pub fn lease_is_over(&self, owner: ClaimOwner) -> bool {
        self.grants.lock().is_over(owner, self.lease_clock.boot())
    }

    /// P15: may every grant to this owner that knows nothing of the entry be regarded as over?
    pub(crate) fn lease_is_over_below(&self, owner: ClaimOwner, index: u64) -> bool {
        self.grants.lock().is_over_below(owner, index, self.lease_clock.boot())
    }

    /// P12: may this owner be given claims? It has a lease of this leadership, learns of what it is given, and goes on.
    pub(crate) fn may_claim(&self, owner: ClaimOwner) -> bool {
        let reports = self.reports.lock();
        let wants = |report: &NodeReport| report.owner == owner && !report.behind && !report.stopping;
        reports.get(&owner.node).is_some_and(wants) && self.grants.lock().runs(owner, self.lease_clock.boot())
    }

    /// How many nodes have a lease and are behind.
    pub(crate) fn nodes_behind(&self) -> usize {
        let (reports, grants, now) = (self.reports.lock(), self.grants.lock(), self.lease_clock.boot());
        reports.values().filter(|report| report.behind && grants.runs(report.owner, now)).count()
    }

    /// P9: revokes claims whose owners' leases are over. From before the proposal until it is known to be
    /// applied those owners are granted nothing; an unknown answer is asked again, with whatever is left.
    pub(crate) async fn revoke(&self, mut claims: BTreeMap<Fence, ClaimOwner>) {
        let revocation = {
            let (mut grants, now) = (self.grants.lock(), self.lease_clock.boot());
            // A node may have come back since the auditor looked.
            claims.retain(|_, owner| grants.is_over(*owner, now));
            grants.revoke(claims.values().copied())
        };
        if self.propose(Command::Revoke(claims.into_keys().collect())).await.is_some() {
            self.grants.lock().revoked(revocation);
        }
    }

    /// Is a revocation on its way whose end is not known?
    pub(crate) fn is_revoking(&self) -> bool {
        self.grants.lock().is_revoking()
    }
}
