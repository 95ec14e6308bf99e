//! Two clusters with one relay: a backup of the former is restored while the former goes on (P21).
//!
//! A search of its own, because the rules within one cluster hold by [`crate::protocol`]. Here a cluster is its ledger,
//! and the handoffs that it has begun. A schedule has instants of one recipient each. The former cluster may run beside
//! the restored one for any time. The operator accepts the restore when it does not run, as the operator states.

use stateright::{Model, Property};

use crate::broken::{BrokenRule, Rules};
use crate::run::InDoubt;

/// Number of instants. Instant `n` is due at time `n`.
const INSTANTS: usize = 2;

/// Maximum number of emails of one instant, of both clusters. Without it `resend` has no end.
const EMAILS_MAX: usize = 2;

/// The first two properties judge both clusters together, by the relay's side.
pub const ONE_ACCEPT_OF_BOTH: &str = "P21 at most one accept for each instant, but for each decision";
/// The former cluster may run until the acceptance.
pub const SILENT_UNTIL_ACCEPTED: &str = "P21 a restored cluster hands nothing off before it is accepted";
/// The evidence of a relay's log settles only what the relay accepted.
pub const EVIDENCE_IS_TRUE: &str = "P21 what a log settles as sent was accepted";

/// The former cluster sent an email that its backup has as pending.
pub const SENT_SINCE: &str = "an instant is sent by the former cluster and in doubt in the restored one";
/// The restored cluster goes on after its acceptance.
pub const GOES_ON: &str = "a later instant is sent by the restored cluster without a decision";
/// A decision was wrong.
pub const DOUBLED: &str = "an instant is sent by both clusters, by decision";
/// An email of the former cluster arrives late.
pub const LATE_ARRIVAL: &str = "an email of the former cluster arrives after the acceptance";

/// An instant in one cluster's ledger, with its only recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstantState {
    /// Neither opened nor explained.
    Unopened,
    /// Explained: only a backfill opens it.
    Explained,
    /// Opened, and it waits for a claim.
    Pending,
    /// Claimed by a node of this cluster.
    Claimed,
    /// The final dot may have been written. `older`: the doubt was made by a restore, or is older.
    InDoubt {
        /// True if only an operator decides it.
        older: bool,
    },
    /// The relay accepted it.
    Sent,
    /// Closed without evidence.
    Assumed,
}

/// The ledger of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterLedger {
    /// The instants, by number.
    pub instants: [InstantState; INSTANTS],
    /// True from the restore to its acceptance.
    pub held: bool,
    /// The time of the backup and of the acceptance, if it was restored and accepted.
    pub accepted: Option<(usize, usize)>,
}

/// One of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The cluster of the backup.
    Former,
    /// The cluster that was restored.
    Restored,
}

/// One state of the search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TwoClusters {
    /// The time of both clusters.
    pub now: usize,
    /// The former cluster's ledger.
    pub former: ClusterLedger,
    /// True while the former cluster runs.
    pub is_former_alive: bool,
    /// The ledger in the backup, and its time.
    pub backup: Option<(ClusterLedger, usize)>,
    /// The restored cluster's ledger.
    pub restored: Option<ClusterLedger>,
    /// Emails past their gate that the relay has not answered.
    pub under_way: Vec<(Side, usize)>,
    /// Accepts that the cluster does not know yet.
    pub answers: Vec<(Side, usize)>,
    /// Accepts of the relay: instant, cluster.
    pub accepts: Vec<(usize, Side)>,
    /// Decisions to send an instant that may have been sent, by instant.
    pub decisions: [u8; INSTANTS],
    /// True if a handoff of the restored cluster began before the acceptance.
    pub was_early: bool,
    /// True if an email of the former cluster arrived after the acceptance.
    pub arrived_late: bool,
}

/// A step within one cluster, of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The calendar opens or explains an instant that is due.
    Fire,
    /// A node claims a pending recipient.
    Claim,
    /// A claim gives a recipient back before its gate.
    Release,
    /// A claimed recipient passes its gate.
    Pass,
    /// The relay accepts an email.
    Accept,
    /// The cluster learns of the accept.
    Settle,
    /// The owner of a claim is lost.
    Revoke,
    /// The policy `resend` decides a doubt.
    Policy,
    /// An operator closes a doubt as assumed.
    Assume,
    /// An operator sends a recipient in doubt again.
    Resend,
    /// An operator settles a doubt by the relay's log.
    ReadLog,
    /// An operator opens an explained instant.
    Backfill,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes.
    Tick,
    /// A step within a cluster, of an instant.
    Within(Move, Side, usize),
    /// A backup is made.
    Backup,
    /// The backup is restored.
    Restore,
    /// The former cluster ends for good.
    End,
    /// The operator accepts the restore.
    AcceptRestore,
}

/// The search: the rules in force, the policy of all runs, and the number of operators' decisions to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreProtocol {
    /// All rules, or all but one.
    pub rules: Rules,
    /// Policy for recipients in doubt.
    pub in_doubt: InDoubt,
    /// Maximum number of decisions of operators to send.
    pub decisions: u8,
}

impl TwoClusters {
    fn ledger(&mut self, side: Side) -> Option<&mut ClusterLedger> {
        match side {
            Side::Former => Some(&mut self.former).filter(|_| self.is_former_alive),
            Side::Restored => self.restored.as_mut(),
        }
    }

    fn is_accepted(&self) -> bool {
        self.restored.is_some_and(|restored| restored.accepted.is_some())
    }

    fn accepts_of(&self, instant: usize) -> usize {
        self.accepts.iter().filter(|(of, _)| *of == instant).count()
    }
}

/// Removes one of the equal elements. Returns false if there is none.
fn take(list: &mut Vec<(Side, usize)>, element: (Side, usize)) -> bool {
    let found = list.iter().position(|known| *known == element);
    found.map(|position| list.remove(position)).is_some()
}

impl RestoreProtocol {
    /// Returns the state that a restore makes of a backup.
    fn restore(&self, backup: ClusterLedger) -> ClusterLedger {
        let older = InstantState::InDoubt { older: true };
        let instants = backup.instants.map(|known| match known {
            InstantState::Pending if !self.rules.enforces(BrokenRule::PendingAfterRestore) => known,
            InstantState::Pending | InstantState::Claimed | InstantState::InDoubt { .. } => older,
            _ => known,
        });
        ClusterLedger { instants, held: self.rules.enforces(BrokenRule::RestoreWithoutHold), accepted: None }
    }

    /// Returns the state of an instant that is due.
    fn fire(&self, ledger: &ClusterLedger, instant: usize) -> InstantState {
        let is_maybe_sent = |(backup, accepted): (usize, usize)| {
            let is_since_backup = instant > backup || self.rules.enforces(BrokenRule::OlderInstantFires);
            is_since_backup && instant <= accepted && self.rules.enforces(BrokenRule::InstantFiresAgain)
        };
        match ledger.accepted.is_some_and(is_maybe_sent) {
            true => InstantState::Explained,
            false => InstantState::Pending,
        }
    }

    /// Applies a step within one cluster. Returns `None` if it is not possible.
    fn within(&self, state: &mut TwoClusters, step: Move, side: Side, instant: usize) -> Option<()> {
        use InstantState::{Assumed, Claimed, Explained, InDoubt as Doubt, Pending, Sent, Unopened};
        let (now, decisions) = (state.now, state.decisions.iter().sum::<u8>());
        let attempts = state.decisions[instant];
        let was_accepted = state.accepts_of(instant) > 0;
        let under_way = state.under_way.iter().filter(|(_, of)| *of == instant).count();
        let has_room = under_way + state.accepts_of(instant) < EMAILS_MAX;
        let passed = state.under_way.contains(&(side, instant)) || state.answers.contains(&(side, instant));
        let is_accepted = state.is_accepted();
        let ledger = state.ledger(side)?;
        let (known, held) = (ledger.instants[instant], ledger.held);
        // Once for each instant, as with two attempts.
        let may_resend = self.in_doubt == InDoubt::Resend && attempts == 0;
        let by_operator = decisions < self.decisions && !held;
        let to = match (step, known) {
            (Move::Fire, Unopened) if instant <= now && !held => self.fire(ledger, instant),
            (Move::Claim, Pending) if !held => Claimed,
            (Move::Release, Claimed) if !passed => Pending,
            (Move::Pass, Claimed) if !passed && has_room => Claimed,
            (Move::Settle, Claimed | Doubt { .. }) => Sent,
            (Move::Revoke, Claimed) => Doubt { older: false },
            (Move::Policy, Doubt { older: false }) if !held && may_resend => Pending,
            (Move::Policy, Doubt { older: true })
                if self.in_doubt == InDoubt::Resend && !self.rules.enforces(BrokenRule::PolicyDecidesOlder) =>
            {
                Pending
            }
            (Move::Assume, Doubt { .. }) => Assumed,
            (Move::Resend, Doubt { .. }) | (Move::Backfill, Explained) if by_operator => Pending,
            (Move::ReadLog, Doubt { .. }) if was_accepted => Sent,
            _ => return None,
        };
        ledger.instants[instant] = to;
        let decides = match step {
            Move::Policy => known == Doubt { older: false },
            Move::Resend | Move::Backfill => true,
            _ => false,
        };
        state.decisions[instant] += u8::from(decides);
        match step {
            Move::Pass => {
                state.under_way.push((side, instant));
                state.was_early |= side == Side::Restored && !is_accepted;
            }
            Move::Settle => take(&mut state.answers, (side, instant)).then_some(())?,
            _ => {}
        }
        Some(())
    }

    fn happens(&self, state: &mut TwoClusters, step: Step) -> Option<()> {
        match step {
            Step::Tick => state.now = Some(state.now + 1).filter(|now| *now <= INSTANTS)?,
            Step::Within(Move::Accept, side, instant) => {
                take(&mut state.under_way, (side, instant)).then_some(())?;
                state.accepts.push((instant, side));
                state.answers.push((side, instant));
                state.arrived_late |= side == Side::Former && state.is_accepted();
            }
            Step::Backup => {
                let is_first = state.backup.is_none() && state.is_former_alive;
                is_first.then(|| state.backup = Some((state.former, state.now)))?;
            }
            Step::Restore => {
                let (backup, _) = state.backup.filter(|_| state.restored.is_none())?;
                state.restored = Some(self.restore(backup));
            }
            Step::End => state.is_former_alive.then(|| state.is_former_alive = false)?,
            Step::AcceptRestore => {
                let (is_over, now) = (!state.is_former_alive, state.now);
                let (_, backup_at) = state.backup?;
                let restored = state.restored.as_mut().filter(|known| is_over && known.accepted.is_none())?;
                (restored.held, restored.accepted) = (false, Some((backup_at, now)));
            }
            Step::Within(step, side, instant) => self.within(state, step, side, instant)?,
        }
        Some(())
    }
}

impl Model for RestoreProtocol {
    type State = TwoClusters;
    type Action = Step;

    fn init_states(&self) -> Vec<TwoClusters> {
        let former = ClusterLedger { instants: [InstantState::Unopened; INSTANTS], held: false, accepted: None };
        vec![TwoClusters {
            now: 0,
            former,
            is_former_alive: true,
            backup: None,
            restored: None,
            under_way: Vec::new(),
            answers: Vec::new(),
            accepts: Vec::new(),
            decisions: [0; INSTANTS],
            was_early: false,
            arrived_late: false,
        }]
    }

    fn actions(&self, _: &TwoClusters, actions: &mut Vec<Step>) {
        use Move::*;
        actions.extend([Step::Tick, Step::Backup, Step::Restore, Step::End, Step::AcceptRestore]);
        let all = [Fire, Claim, Release, Pass, Accept, Settle, Revoke, Policy, Assume, Resend, ReadLog, Backfill];
        for side in [Side::Former, Side::Restored] {
            for instant in 0..INSTANTS {
                actions.extend(all.map(|of| Step::Within(of, side, instant)));
            }
        }
    }

    fn next_state(&self, last: &TwoClusters, step: Step) -> Option<TwoClusters> {
        let mut next = last.clone();
        self.happens(&mut next, step)?;
        [&mut next.under_way, &mut next.answers].into_iter().for_each(|list| list.sort_unstable());
        next.accepts.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONE_ACCEPT_OF_BOTH, |_, state| {
                (0..INSTANTS).all(|instant| state.accepts_of(instant) <= 1 + usize::from(state.decisions[instant]))
            }),
            Property::<Self>::always(SILENT_UNTIL_ACCEPTED, |_, state| !state.was_early),
            Property::<Self>::always(EVIDENCE_IS_TRUE, |_, state| {
                let is_true = |instant: usize| {
                    !is_restored_as(state, instant, InstantState::Sent) || state.accepts_of(instant) > 0
                };
                (0..INSTANTS).all(is_true)
            }),
            Property::<Self>::sometimes(SENT_SINCE, |_, state| {
                let is_since = |instant: usize| {
                    is_restored_as(state, instant, InstantState::InDoubt { older: true })
                        && state.former.instants[instant] == InstantState::Sent
                };
                (0..INSTANTS).any(is_since)
            }),
            Property::<Self>::sometimes(GOES_ON, |_, state| {
                let goes_on = |instant: usize| {
                    state.decisions[instant] == 0 && state.accepts.contains(&(instant, Side::Restored))
                };
                (0..INSTANTS).any(goes_on)
            }),
            Property::<Self>::sometimes(DOUBLED, |_, state| {
                let is_of_both = |instant: usize| {
                    [Side::Former, Side::Restored].map(|side| state.accepts.contains(&(instant, side)))
                };
                (0..INSTANTS).any(|instant| is_of_both(instant) == [true, true])
            }),
            Property::<Self>::sometimes(LATE_ARRIVAL, |_, state| state.arrived_late),
        ]
    }
}

fn is_restored_as(state: &TwoClusters, instant: usize, known: InstantState) -> bool {
    state.restored.is_some_and(|restored| restored.instants[instant] == known)
}
