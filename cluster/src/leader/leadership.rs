//! What one leadership owns: built from the state when its epoch is applied, dropped when it ends (P13).
//!
//! "I lead" as Raft reports it stays true on a leader that was cut off, so nothing here touches the world
//! by it: the term only proposes, and its proposals carry the epoch, which the ledger checks. Fail-over is
//! the ordinary road: the first leader of a cluster goes through the same lines as the hundredth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::agreed_time;
use reveille_ledger::command::Command;
use reveille_ledger::ids::{ClaimOwner, Epoch, Fence, Hash, NodeId, Time};
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{ProposeError, Role, crash};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::claims::dispatcher;
use super::replication_lag::{self, FRESH, Heights};
use super::{auditor, clock_steering, fitness, timer};
use crate::node::clock::LedgerClock;
use crate::node::context::{Concerns, Site, concerns};
use crate::node::lease::{Grants, NotGranted};
use crate::node::peer_messages::{LeaseRequest, NodeMeasurements};

/// A proposal of the term is unknown after this long; its actors look at the state and go on from there.
const PATIENCE: Duration = Duration::from_secs(5);
/// An idle leader commits a `Tick` this often, so that ledger time moves (P18).
const TICK_EVERY: Duration = Duration::from_secs(10);
/// Two readings of how long the machine has slept may differ by this much.
const SLEPT_MAX: Duration = Duration::from_millis(50);
/// Pause after an epoch could not be started.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// One leadership of this node.
pub struct Term {
    site: Arc<Site>,
    epoch: Epoch,
    clocks_agree: bool,
    clock: Mutex<LedgerClock>,
    grants: Mutex<Grants>,
    heights: Mutex<Heights>,
    reports: Mutex<BTreeMap<NodeId, Report>>,
    /// Read from the look at the state until the claims that were made of it are in the log, or never will be.
    pub(crate) claiming: Arc<tokio::sync::RwLock<()>>,
    lacking: Mutex<BTreeMap<NodeId, BTreeSet<Hash>>>,
    /// How long this machine had slept when the term began: Raft's own instants stand still meanwhile,
    /// so a quorum's acknowledgement would look younger than it is.
    slept: Duration,
    ended: CancellationToken,
    /// Rings for the dispatcher: there may be something to claim.
    pub(crate) work: Notify,
    /// Rings for the timer: the next due instant may be another.
    pub(crate) due: Notify,
    /// Rings for the auditor: it is much later than before.
    pub(crate) late: Notify,
}

/// What a node said with its last question for a lease.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Which life of it did.
    pub holder: ClaimOwner,
    /// What it has measured (P12).
    pub measured: NodeMeasurements,
    /// Its state is too old for more claims (P12).
    pub behind: bool,
    /// It stops, and wants no more claims. Once said it is so for all of that life.
    pub stopping: bool,
}

impl Term {
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
        let offset_ms = self.site.offset_ms();
        self.stamp().plus_ms(offset_ms)
    }

    /// What this leader stamps on its entries: ledger time, but for the offset of a test clock, which `apply`
    /// adds (P19).
    pub(crate) fn stamp(&self) -> Time {
        self.clock.lock().now(self.site.clock.boot())
    }

    /// P18: ledger time goes toward `wall`, what the voters' clocks agreed on at this reading of CLOCK_BOOTTIME.
    pub(crate) fn steer(&self, wall: Time, boot: Duration) {
        self.clock.lock().steer(wall, boot);
    }

    /// P18: the clocks do not agree: ledger time goes on by this machine's count.
    pub(crate) fn steer_nowhere(&self) {
        self.clock.lock().steer_nowhere(self.site.clock.boot());
    }

    /// Is it over?
    pub fn ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Sleeps, at most until the term ends.
    pub(crate) async fn sleep(&self, nap: Duration) {
        self.ended.run_until_cancelled(tokio::time::sleep(nap)).await;
    }

    /// Sleeps, at most until the term ends or the bell rings. Each bell has one who listens.
    pub(crate) async fn sleep_until_bell(&self, bell: &Notify, nap: Duration) {
        tokio::select! {
            () = self.sleep(nap) => {}
            () = bell.notified() => {}
        }
    }

    /// Proposes under this term. None when the outcome is unknown or the term is over: look at the state.
    pub(crate) async fn propose(&self, command: Command) -> Option<CommandOutcome> {
        let deadline = std::time::Instant::now() + PATIENCE;
        match self.site.replica.propose_in_epoch(self.epoch, &command, deadline).await {
            Ok(reply) => {
                if let CommandOutcome::Refused(refusal) = &reply.outcome {
                    self.heed(refusal);
                }
                Some(reply.outcome)
            }
            Err(error) => {
                if matches!(error, ProposeError::TooLarge { .. }) {
                    // Whatever proposes has bounds of its own: it would propose the same again.
                    tracing::error!(%error, "a proposal of the term cannot be made: this is a defect of Reveille");
                }
                tracing::debug!(%error, "a proposal of the term has no answer");
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
            tracing::warn!(%refusal, epoch = self.epoch.0, "the term ends");
            self.ended.cancel();
        }
    }

    /// P9: grants or refuses a node lease; answers its length and its floor.
    pub fn grant(&self, question: LeaseRequest) -> Result<(Duration, u64), NotGranted> {
        let (holder, applied, now) = (question.holder, question.applied, self.site.lease_clock());
        if self.site.slept().saturating_sub(self.slept) > SLEPT_MAX {
            tracing::warn!("this machine was suspended: the term ends");
            self.ended.cancel();
        }
        let quorum = self.site.last_quorum_ack(now);
        // The book is locked inside the look at the state, here as everywhere: nobody looks at the state while
        // he holds the book, or a writer that waits in between would stop both. Nothing is applied during a
        // look: an entry that comes later finds the grant in the book, one that came before is in the floor.
        let granted = self.site.replica.read(|ledger| {
            let current = ledger.head().epoch.map(|epoch| epoch.epoch);
            if self.ended() || current != Some(self.epoch) {
                return Err(NotGranted::EpochOver);
            }
            let age = {
                let mut heights = self.heights.lock();
                heights.note(now, ledger.head().applied);
                heights.age(applied, now)
            };
            self.note(question, age > FRESH);
            if replication_lag::is_lost(ledger, holder, applied, age) {
                return Err(NotGranted::Behind);
            }
            let floor = ledger.floor(holder.node);
            Ok((self.grants.lock().grant(holder, floor, now, quorum)?, floor))
        })?;
        self.work.notify_one();
        Ok(granted)
    }

    /// What a node says with its question. A question of a former life says nothing of the one that runs.
    fn note(&self, question: LeaseRequest, behind: bool) {
        let LeaseRequest { holder, measured, stopping, lacking, .. } = question;
        let mut reports = self.reports.lock();
        let before = reports.get(&holder.node);
        if before.is_some_and(|before| before.holder.incarnation > holder.incarnation) {
            return;
        }
        match (before.is_some_and(|before| before.behind), behind) {
            (false, true) => tracing::warn!(node = %holder.node, "a node does not apply what is committed: no claims"),
            (true, false) => tracing::info!(node = %holder.node, "a node applies again what is committed"),
            _ => {}
        }
        let stopping = stopping || before.is_some_and(|before| before.holder == holder && before.stopping);
        reports.insert(holder.node, Report { holder, measured, behind, stopping });
        self.lacking.lock().insert(holder.node, lacking.into_iter().collect());
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
    pub(crate) fn reports(&self) -> BTreeMap<NodeId, Report> {
        self.reports.lock().clone()
    }

    /// P13: a leader acts and answers only while the last `EpochStart` in its applied state is its own.
    pub(crate) fn is_in_force(&self) -> bool {
        let current = self.site.replica.read(|ledger| ledger.head().epoch.map(|epoch| epoch.epoch));
        !self.ended() && current == Some(self.epoch)
    }

    /// P9: may this holder's lease be regarded as over?
    pub fn lease_is_over(&self, holder: ClaimOwner) -> bool {
        self.grants.lock().is_over(holder, self.site.clock.boot())
    }

    /// P15: may every grant to this holder that knows nothing of the entry be regarded as over?
    pub(crate) fn lease_is_over_below(&self, holder: ClaimOwner, index: u64) -> bool {
        self.grants.lock().is_over_below(holder, index, self.site.clock.boot())
    }

    /// P12: may this holder be given claims? It has a lease of this term, learns of what it is given, and goes on.
    pub(crate) fn may_claim(&self, holder: ClaimOwner) -> bool {
        let reports = self.reports.lock();
        let wants = |report: &Report| report.holder == holder && !report.behind && !report.stopping;
        reports.get(&holder.node).is_some_and(wants) && self.grants.lock().runs(holder, self.site.clock.boot())
    }

    /// How many nodes have a lease and are behind.
    pub(crate) fn nodes_behind(&self) -> usize {
        let (reports, grants, now) = (self.reports.lock(), self.grants.lock(), self.site.clock.boot());
        reports.values().filter(|report| report.behind && grants.runs(report.holder, now)).count()
    }

    /// P9: revokes rows whose holders' leases are over. From before the proposal until it is known to be
    /// applied those holders are granted nothing; an unknown answer is asked again, with whatever is left.
    pub(crate) async fn revoke(&self, mut rows: BTreeMap<Fence, ClaimOwner>) {
        let revocation = {
            let (mut grants, now) = (self.grants.lock(), self.site.clock.boot());
            // Somebody may have come back since the auditor looked.
            rows.retain(|_, holder| grants.is_over(*holder, now));
            grants.revoke(rows.values().copied())
        };
        if self.propose(Command::Revoke(rows.into_keys().collect())).await.is_some() {
            self.grants.lock().revoked(revocation);
        }
    }

    /// Is a revocation on its way whose end is not known?
    pub(crate) fn is_revoking(&self) -> bool {
        self.grants.lock().is_revoking()
    }
}

/// Stands for this node's leaderships, one after the other, until the node stops.
pub(crate) async fn run(site: Arc<Site>, stop: CancellationToken) {
    let mut role = site.replica.role();
    loop {
        let raft_term = raft_term_of(*role.borrow_and_update());
        match raft_term {
            Some(raft_term) => {
                let over = stop.child_token();
                let changed =
                    async { while role.changed().await.is_ok() && raft_term_of(*role.borrow()) == Some(raft_term) {} };
                tokio::select! {
                    () = lead(&site, raft_term, over.clone()) => {}
                    () = stop.cancelled() => {}
                    () = changed => {}
                }
                over.cancel();
                crash::point("lifecycle.leadership-lost");
                site.leave_term();
                tokio::time::sleep(RETRY_AFTER).await;
            }
            None => {
                tokio::select! {
                    // The replica is gone, and the node is about to stop: nothing is left to lead.
                    changed = role.changed() => if changed.is_err() { stop.cancelled().await },
                    () = stop.cancelled() => {}
                }
            }
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

fn raft_term_of(role: Role) -> Option<u64> {
    match role {
        Role::Leader { term } => Some(term),
        Role::Follower { .. } | Role::Candidate | Role::Stopped => None,
    }
}

/// One epoch from its start to its end. Returns when another epoch is needed.
async fn lead(site: &Arc<Site>, raft_term: u64, ended: CancellationToken) {
    let Some(term) = begin(site, raft_term, ended.clone()).await else { return };
    let term = Arc::new(term);
    tracing::info!(epoch = term.epoch.0, clocks_agree = term.clocks_agree, "this node leads");
    site.enter_term(Arc::clone(&term));
    let mut actors = JoinSet::new();
    actors.spawn(timer::run(Arc::clone(site), Arc::clone(&term)));
    actors.spawn(dispatcher::run(Arc::clone(site), Arc::clone(&term)));
    actors.spawn(auditor::run(Arc::clone(site), Arc::clone(&term)));
    actors.spawn(fitness::run(Arc::clone(site), Arc::clone(&term)));
    actors.spawn(tick(Arc::clone(&term)));
    actors.spawn(listen(Arc::clone(site), Arc::clone(&term)));
    actors.spawn(clock_steering::run(Arc::clone(site), Arc::clone(&term)));
    // An actor that held the state of a leadership is never revived: the term ends with its first.
    if let Some(Err(panic)) = actors.join_next().await {
        tracing::error!(%panic, epoch = term.epoch.0, "an actor of the term failed: the term ends");
    }
    ended.cancel();
    site.leave_term();
    while actors.join_next().await.is_some() {}
}

/// Commits the `EpochStart` and makes the term from what was applied.
async fn begin(site: &Arc<Site>, raft_term: u64, ended: CancellationToken) -> Option<Term> {
    let (start, read_at) = clock_steering::epoch_start(site).await;
    let agreed = agreed_time(start.voters, &start.readings);
    let command = Command::EpochStart(start);
    let reply = match site.replica.propose_as_leader(raft_term, command, std::time::Instant::now() + PATIENCE).await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%error, "no epoch yet");
            return None;
        }
    };
    let CommandOutcome::EpochStarted { epoch, base, clocks_agree } = reply.outcome else { return None };
    let applied_at = site.clock.boot();
    // No entry but this one was applied under the epoch: the offset is the one that went into its base (P19).
    let base = base.plus_ms(-site.offset_ms());
    // A base that the clocks agreed on is the time at which they were read; what the commit took has passed since.
    let base_at = if agreed == Some(base) { read_at } else { applied_at };
    Some(Term {
        site: Arc::clone(site),
        epoch,
        clocks_agree,
        clock: Mutex::new(LedgerClock::new(base, base_at)),
        grants: Mutex::new(Grants::new(applied_at)),
        heights: Mutex::default(),
        reports: Mutex::default(),
        claiming: Arc::default(),
        lacking: Mutex::default(),
        slept: site.slept(),
        ended,
        work: Notify::new(),
        due: Notify::new(),
        late: Notify::new(),
    })
}

async fn tick(term: Arc<Term>) {
    while !term.ended() {
        term.ended.run_until_cancelled(tokio::time::sleep(TICK_EVERY)).await;
        if !term.ended() {
            term.propose(Command::Tick).await;
        }
    }
}

/// Rings the bell when an entry made work; ends the term when another epoch was applied.
async fn listen(site: Arc<Site>, term: Arc<Term>) {
    let mut hints = site.replica.effects();
    while let Some(Some(hint)) = term.ended.run_until_cancelled(hints.next()).await {
        let current = site.replica.read(|ledger| ledger.head().epoch.map(|epoch| epoch.epoch));
        if current != Some(term.epoch) {
            tracing::info!(epoch = term.epoch.0, "another epoch began: the term ends");
            return;
        }
        match concerns(&hint) {
            Concerns::Timer => term.due.notify_one(),
            Concerns::Dispatcher => term.work.notify_one(),
            Concerns::Everybody => {
                term.due.notify_one();
                term.work.notify_one();
                term.late.notify_one();
            }
            Concerns::Nobody => {}
        }
    }
}
