//! The state of the ledger: what every replica holds in memory, equal to the byte at an equal index.
//!
//! A **run** is an occurrence that opened. Runs of small audiences that fall due together open as one
//! **page** and share its recipient numbers, slot by slot; a run of millions is a page of one. So the code
//! below the page knows only chunks of 65,536 slots, whatever they belong to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;
use crate::bounce_breaker::BounceBreaker;
use crate::campaign::Campaign;
use crate::canary::CanaryState;
use crate::causes::{BlockCause, DeathCause, PauseReason};
use crate::claim_history::{ClaimEventKind, ClaimHistory, DoubtReason};
use crate::closed_claims::{ClosedClaimBlock, ClosedClaimKey};
use crate::command::{MachineClock, NextInstant, OpeningCause, Relay, UnopenedReason, VoterClock};
use crate::content::{Recipients, Seal};
use crate::crash_backoff::CrashHistory;
use crate::decide::calendar::When;
use crate::deferral::Deferrals;
use crate::ids::{ClaimOwner, Epoch, Fence, GROUP, Hash, Incarnation, NodeId, Nominal, RunId, ScheduleId, Time};
use crate::injected_bugs::{self, Bug};
use crate::instant_range::InstantRange;
use crate::labels::Labels;
use crate::level::GENESIS_LEVEL;
use crate::policy::{DAY_MS, FINISH_MS_MIN, Overlap, Policies};
use crate::pool::{Day, PoolRow};
use crate::recipient_mapping::RecipientMappings;
use crate::reply::CommandOutcome;
use crate::run_events::{RunEvent, RunEventKey};
use crate::same_words::SameWords;
use crate::table::Table;
use crate::tenant::Tenant;

/// The tenant that exists from the first entry.
pub const DEFAULT_TENANT: &str = "default";
/// The pool that relays and schedules belong to unless they say otherwise.
pub const DEFAULT_POOL: &str = "default";

/// Where one recipient stands in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecipientState {
    /// To be sent, now or when its wave comes in.
    Pending,
    /// In exactly one open row.
    Claimed,
    /// Answered 250 to the final dot. Terminal.
    Sent,
    /// Refused for good, or attempts used up. Terminal.
    Dead,
    /// Opted out. Terminal.
    Suppressed,
    /// Too stale. Terminal.
    Expired,
    /// By an operator. Terminal.
    Cancelled,
    /// In doubt, and closed by policy or operator. Terminal; never counted as sent.
    Assumed,
    /// The terminator may have been written and no answer is known. Held in its row.
    InDoubt,
}

impl RecipientState {
    /// All states, in the order of their numbers.
    pub const ALL: [RecipientState; 9] = [
        RecipientState::Pending,
        RecipientState::Claimed,
        RecipientState::Sent,
        RecipientState::Dead,
        RecipientState::Suppressed,
        RecipientState::Expired,
        RecipientState::Cancelled,
        RecipientState::Assumed,
        RecipientState::InDoubt,
    ];

    /// Does nothing but an accept change it any more?
    pub fn is_terminal(self) -> bool {
        !matches!(self, RecipientState::Pending | RecipientState::Claimed | RecipientState::InDoubt)
    }
}

/// Recipients by state; the sum is the audience (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts([u32; 9]);

impl Counts {
    /// All recipients pending.
    pub fn pending(audience: u32) -> Counts {
        let mut counts = Counts::default();
        counts.0[RecipientState::Pending as usize] = audience;
        counts
    }

    /// Number of recipients in a state.
    pub fn get(&self, state: RecipientState) -> u32 {
        self.0[state as usize]
    }

    /// All recipients.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Nothing pending, nothing claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.get(RecipientState::Pending) == 0 && self.get(RecipientState::Claimed) == 0
    }

    /// Did anybody get a mail, may somebody have, or be getting one?
    pub fn mails(&self) -> bool {
        let mails = [RecipientState::Sent, RecipientState::Assumed, RecipientState::InDoubt, RecipientState::Claimed];
        mails.into_iter().any(|state| self.get(state) > 0)
    }

    pub(crate) fn set(&mut self, state: RecipientState, count: u32) {
        self.0[state as usize] = count;
    }

    pub(crate) fn transition(&mut self, from: RecipientState, to: RecipientState, count: u32) {
        self.0[from as usize] -= count;
        self.0[to as usize] += count;
    }
}

/// A node as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, for people.
    pub name: String,
    /// Its current life.
    pub incarnation: Incarnation,
    /// Log index of the entry that said so.
    pub up_index: u64,
    /// The highest ledger level that it can apply, as it announced it.
    pub level: u32,
    /// What its process drew: the same life asks again under the same number.
    pub process_nonce: u64,
    /// Log index of the last revocation of one of its rows: see [`Ledger::floor`].
    pub revoked_index: u64,
    /// Its last deaths with open rows (P12).
    pub crashes: CrashHistory,
    /// Rows of its current life were revoked, and that life has claimed nothing since: if another life comes
    /// up, this one died.
    pub lost: bool,
    /// When its current life came up; none: at level 1.
    #[cfg(feature = "next-level")]
    pub up_at: Option<Time>,
}

/// The epoch in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochState {
    /// Log index of its `EpochStart`.
    pub epoch: Epoch,
    /// Its leader.
    pub leader: ClaimOwner,
    /// Ledger time from which it counts.
    pub base: Time,
    /// Did two voters' clocks agree? If not, nothing fires (P18).
    pub clocks_agree: bool,
}

/// What a schedule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It fires.
    Active,
    /// Somebody stopped it.
    Paused {
        /// Why.
        reason: String,
        /// Since when.
        since: Time,
    },
    /// It cannot fire, and an operator must look.
    Blocked {
        /// Why.
        cause: BlockCause,
    },
    /// No instant is left.
    Done,
}

impl Activity {
    /// The activity without its details.
    pub fn kind(&self) -> ActivityKind {
        match self {
            Activity::Active => ActivityKind::Active,
            Activity::Paused { .. } => ActivityKind::Paused,
            Activity::Blocked { .. } => ActivityKind::Blocked,
            Activity::Done => ActivityKind::Done,
        }
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }
}

/// What a schedule does, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityKind {
    /// See [`Activity::Active`].
    Active,
    /// See [`Activity::Paused`].
    Paused,
    /// See [`Activity::MissingPart`].
    Blocked,
    /// See [`Activity::Done`].
    Done,
}

impl ActivityKind {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            ActivityKind::Active => "active",
            ActivityKind::Paused => "paused",
            ActivityKind::Blocked => "blocked",
            ActivityKind::Done => "done",
        }
    }
}

/// What moves when a schedule fires; all else of it stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Raised by whatever moves `next` other than a fire (P8).
    pub version: u64,
    /// The next instant.
    pub next: Option<NextInstant>,
    /// Every instant up to here is opened or explained; only grows (P7). Names are not ordered (an
    /// overlap hour may be told twice), so this is an instant; that no name opens twice is the history's
    /// to know.
    pub fired_through: Time,
    /// Occurrences up to here may have been forgotten (P24): a backfill cannot know which of them opened.
    pub forgotten_through: Option<Time>,
    /// Occurrences that opened.
    pub opened: u32,
    /// Time zone database that computed `next`.
    pub tzdb: String,
    /// Fires refused since the plan last moved (P8: the second one blocks).
    pub refusals: u8,
    /// The run for which the next instant had to wait until it was finished (`overlap = buffer_one`).
    pub held: Option<BlockingRun>,
    /// Instants that open before this were missed (P16), also where they have to wait for a run.
    pub missed_before: Option<Time>,
}

impl Plan {
    /// Keeps of what stood in the way only what concerns the next instant.
    pub(crate) fn forget_what_is_past(&mut self) {
        let opens = self.next.as_ref().map(NextInstant::opens);
        self.held = self.held.filter(|held| opens.is_some_and(|opens| opens <= held.through));
        self.missed_before = self.missed_before.filter(|before| opens.is_some_and(|opens| opens < *before));
    }
}

/// A run that stood in the way of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingRun {
    /// Up to then.
    pub through: Time,
    /// The run.
    pub by: RunId,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
    /// When it fires.
    pub when: When,
    /// In which zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most.
    pub max_runs: Option<u32>,
    /// Policies.
    pub policies: Policies,
    /// Pool of relays.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// Content, by hash.
    pub content: Hash,
    /// Audience, by hash.
    pub audience: Hash,
    /// Recipients in the audience.
    pub recipients: u32,
    /// What it does.
    pub activity: Activity,
    /// What moves when it fires.
    pub plan: Plan,
    /// Hash of the body that created it: the same body again is the same schedule.
    pub body: Hash,
    /// Log index of its last change by somebody.
    pub index: u64,
    /// By which people group it.
    pub labels: Labels,
}

impl Schedule {
    /// When the leader has something to do for it; none where it does not fire. At its next instant, but
    /// while that one waits for a run to be finished (`is_busy`): when it has waited too long.
    pub(crate) fn wakes_at(&self, is_busy: bool) -> Option<Time> {
        let next = self.plan.next.as_ref().filter(|_| self.activity == Activity::Active)?;
        match self.policies.overlap {
            Overlap::BufferOne if is_busy => Some(next.opens().plus_ms(self.policies.start_within_ms).plus_ms(1)),
            _ => Some(next.opens()),
        }
    }
}

/// What a run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// Recipients are claimed and sent.
    Open,
    /// Nothing is claimed, no gate passes.
    Paused {
        /// Why.
        reason: PauseReason,
    },
    /// An operator ended it, or another run of its schedule.
    Cancelled {
        /// The run for which it made way (`overlap = cancel_other`); none where an operator did it.
        made_way_for: Option<RunId>,
    },
    /// Its deadline ended it.
    Expired {
        /// Why it was paused then: it is so again when somebody of it is sent again (P15). None: it was open.
        paused: Option<PauseReason>,
    },
    /// Nothing is pending or claimed, nor is it paused, cancelled or expired.
    Finished,
}

impl RunState {
    /// The state without its details.
    pub fn kind(&self) -> RunKind {
        match self {
            RunState::Open => RunKind::Open,
            RunState::Paused { .. } => RunKind::Paused,
            RunState::Cancelled { .. } => RunKind::Cancelled,
            RunState::Expired { .. } => RunKind::Expired,
            RunState::Finished => RunKind::Finished,
        }
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// Did somebody end it before it was over?
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RunState::Cancelled { .. })
    }
}

/// What a run does, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunKind {
    /// See [`RunState::Open`].
    Open,
    /// See [`RunState::Paused`].
    Paused,
    /// See [`RunState::Cancelled`].
    Cancelled,
    /// See [`RunState::Expired`].
    Expired,
    /// See [`RunState::Finished`].
    Finished,
}

impl RunKind {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            RunKind::Open => "open",
            RunKind::Paused => "paused",
            RunKind::Cancelled => "cancelled",
            RunKind::Expired => "expired",
            RunKind::Finished => "finished",
        }
    }
}

/// An occurrence that opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its schedule.
    pub schedule: ScheduleId,
    /// The schedule's name, which may be used again after a delete.
    pub name: String,
    /// Its own name among the schedule's occurrences.
    pub nominal: Nominal,
    /// When it was due.
    pub due: Time,
    /// Why it opened.
    pub cause: OpeningCause,
    /// Content, by hash: frozen.
    pub content: Hash,
    /// Audience, by hash: frozen.
    pub audience: Hash,
    /// Its first slot in the page.
    pub first: u32,
    /// Its recipients.
    pub count: u32,
    /// What is not sent by then expires.
    pub finish_by: Time,
    /// Policies: frozen.
    pub policies: Policies,
    /// What it does.
    pub state: RunState,
    /// Recipients by state.
    pub counts: Counts,
    /// Log index of the entry after which nothing was pending or claimed.
    pub finished_index: Option<u64>,
    /// Ledger time of that entry.
    pub finished_at: Option<Time>,
    /// Recipients whose refusals for good, in a row, do not name a mailbox, oldest first (P6: ten pause the
    /// run, and from then on nobody dies of one).
    pub policy_refusals: Vec<u32>,
    /// Recipients that died of the same words, by the words seen last (P6).
    pub same_words: Vec<SameWords>,
    /// The same recipient was accepted under two fences.
    pub known_duplicates: u32,
    /// An accept for a recipient that was closed as something else.
    pub contradictions: u32,
    /// A definite not-sent for a recipient that was assumed.
    pub assumptions_disproved: u32,
    /// Recipients that were sent again by decision while in doubt.
    pub resent: u32,
    /// The run for which its instant had to wait until that was finished (`overlap = buffer_one`).
    pub waited_for: Option<RunId>,
    /// Those who go first, and how they fare (P6).
    pub canary: Option<CanaryState>,
    /// What no live node has of its audience, as long as somebody waits for it (P20).
    pub blocked: Option<MissingPart>,
    /// How many have died of those decided lately (P6).
    pub bounce_breaker: BounceBreaker,
    /// A requeue or a resend gave it a deadline of its own after it was over: like a backfill, it takes no part in
    /// `overlap`.
    pub reopened: bool,
}

/// A part of an audience that no live node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPart {
    /// Its place in the seal.
    pub part: u32,
    /// Since when.
    pub since: Time,
}

impl Run {
    /// Is it unfinished, and do its schedule's other runs see it (`overlap`)? Backfills and reopened runs go beside
    /// them: `cancel_other` leaves them alone, and a trigger is not refused because of them.
    pub(crate) fn takes_part_in_overlap(&self) -> bool {
        !self.counts.is_finished() && self.cause != OpeningCause::Backfill && !self.reopened
    }

    /// Is it unfinished, and do its schedule's other runs not see it?
    pub(crate) fn goes_beside(&self) -> bool {
        !self.counts.is_finished() && !self.takes_part_in_overlap()
    }

    /// May it hold up its schedule's next instant? Only what the calendar opened does. A paused run waits for an
    /// operator, and a triggered run may take all of `finish_by`: neither may cost the schedule its next run.
    pub(crate) fn may_hold_up(&self) -> bool {
        let state = match self.state {
            RunState::Open | RunState::Finished => true,
            RunState::Paused { .. } => false,
            RunState::Cancelled { .. } | RunState::Expired { .. } => self.counts.get(RecipientState::Claimed) > 0,
        };
        state && self.takes_part_in_overlap() && matches!(self.cause, OpeningCause::Due | OpeningCause::CatchUp)
    }

    /// Does it stand in the way of another run at `now`, if it may? What is past its deadline expires, so only what
    /// is claimed of it does.
    pub fn holds_up(&self, now: Time) -> bool {
        self.counts.get(RecipientState::Claimed) > 0
            || self.counts.get(RecipientState::Pending) > 0 && self.finish_by > now
    }

    /// May evidence send somebody back to pending, though nothing is pending or claimed? What is in doubt or
    /// assumed may turn out not to have been handed off (P14).
    pub fn may_come_back(&self) -> bool {
        self.counts.get(RecipientState::InDoubt) > 0 || self.counts.get(RecipientState::Assumed) > 0
    }

    /// When its details may go (P24): its retention after it finished, and not before the horizon of evidence
    /// while somebody is in doubt. None while it is not finished.
    fn kept_until(&self, present: Option<&Policies>) -> Option<Time> {
        let horizon_ms = if self.counts.get(RecipientState::InDoubt) > 0 { EVIDENCE_MS } else { 0 };
        // P17: as long as a run less than the gap later may claim, it asks what was sent here; and such a run has
        // the gap that its schedule has by then.
        let asked_ms = |policies: &Policies| {
            let claims_ms = policies.finish_by_ms.max(policies.start_within_ms.saturating_add(FINISH_MS_MIN));
            if policies.min_gap_ms > 0 { policies.min_gap_ms.saturating_add(claims_ms) } else { 0 }
        };
        let gap_ms = asked_ms(&self.policies).max(present.map_or(0, asked_ms));
        Some(self.finished_at?.plus_ms(self.policies.retention_ms.max(horizon_ms).max(gap_ms)))
    }
}

/// What is in doubt may be resolved for this long after its run finished, by a owner that comes back with its
/// journal (P24). Milliseconds.
pub const EVIDENCE_MS: i64 = 30 * DAY_MS;
/// Summaries of runs, their names and explained instants are kept this long after what they tell of, and
/// never shorter than the details (P24). Milliseconds.
pub const SUMMARIES_MS: i64 = 400 * DAY_MS;

/// What is left of a run whose details were pruned (P24).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Tenant.
    pub tenant: String,
    /// Its schedule.
    pub schedule: ScheduleId,
    /// The schedule's name.
    pub name: String,
    /// Its own name among the schedule's occurrences.
    pub nominal: Nominal,
    /// When it was due.
    pub due: Time,
    /// Why it opened.
    pub cause: OpeningCause,
    /// When it opened.
    pub opened_at: Time,
    /// What was not sent by then expired.
    pub finish_by: Time,
    /// How it ended.
    pub state: RunState,
    /// Recipients by state. Who is in doubt here stays so for ever: the rows that evidence could name are
    /// gone.
    pub counts: Counts,
    /// Log index of the entry after which nothing was pending or claimed.
    pub finished_index: Option<u64>,
    /// The same recipient was accepted under two fences.
    pub known_duplicates: u32,
    /// An accept for a recipient that was closed as something else.
    pub contradictions: u32,
    /// A definite not-sent for a recipient that was assumed.
    pub assumptions_disproved: u32,
    /// Recipients that were sent again by decision while in doubt.
    pub resent: u32,
    /// Log index of the entry that pruned it.
    pub pruned_index: u64,
    /// When.
    pub pruned_at: Time,
    /// The run for which its instant had to wait.
    pub waited_for: Option<RunId>,
    /// What it sent to a sealed audience; none where nobody got a mail of it.
    pub mailing: Option<Box<Mailing>>,
}

/// What was sent, and to whom: the same again is somebody's mistake (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailing {
    /// Content, by hash.
    pub content: Hash,
    /// See [`Seal::people`].
    pub people: Hash,
}

impl RunSummary {
    /// When it may go too (P24).
    pub fn kept_until(&self) -> Time {
        self.pruned_at.max(self.opened_at.plus_ms(SUMMARIES_MS))
    }
}

/// Runs that opened together and share slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Tenant.
    pub tenant: String,
    /// Pool of relays.
    pub pool: String,
    /// Priority.
    pub priority: u8,
    /// When its runs were due.
    pub due: Time,
    /// Ledger time at which it opened.
    pub opened_at: Time,
    /// Cluster incarnation in which it opened: part of every Message-ID (P21).
    pub cluster_incarnation: u64,
    /// Its runs, by place; slots of one follow those of the other.
    pub runs: Vec<Run>,
    /// Slots in all.
    pub slots: u32,
}

impl Page {
    /// Index of the run to which a slot of the page belongs.
    pub fn run_of_slot(&self, slot: u32) -> Option<usize> {
        let place = self.runs.partition_point(|run| run.first <= slot).checked_sub(1)?;
        (slot < self.runs[place].first + self.runs[place].count).then_some(place)
    }

    /// Does any run of it have something pending or claimed?
    pub fn is_open(&self) -> bool {
        self.runs.iter().any(|run| !run.counts.is_finished())
    }
}

/// 65,536 slots of a page: where each recipient stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// One set a state; they are disjoint and together all slots (P1).
    pub sets: [Bitmap; 9],
    /// Pending recipients that wait for an instant: by 30 s bucket since the epoch.
    pub waves: BTreeMap<i64, Bitmap>,
    /// Counted attempts, where there are any.
    pub attempts: BTreeMap<u16, u8>,
    /// Recipients that a relay has deferred, until their state is terminal; of those that expired, the last answer.
    pub deferrals: Deferrals,
    /// Who was being prepared when its owner died, and has not come past a gate since (P12): pending, or
    /// held by a row of its own.
    pub crash_suspects: Bitmap,
    /// Of those suppressed: who got a mail of another run too near to this one (P17).
    pub suppressed_by_gap: Bitmap,
    /// Who goes by another pool than their page's, since somebody requeued them so: by pool, disjoint, none empty,
    /// whatever they stand at.
    pub pool_overrides: BTreeMap<String, Bitmap>,
}

impl Chunk {
    /// These slots by the pool that they go by; none is their page's own. No part is empty.
    pub fn by_pool(&self, slots: &Bitmap) -> Vec<(Option<&str>, Bitmap)> {
        let mut rest = slots.clone();
        let mut parts = Vec::new();
        for (pool, moved) in &self.pool_overrides {
            parts.push((Some(pool.as_str()), rest.and(moved)));
            rest.remove(moved);
        }
        parts.insert(0, (None, rest));
        parts.retain(|(_, slots)| !slots.is_empty());
        parts
    }

    /// The pool that a slot goes by, where it is not its page's own.
    pub fn pool_of(&self, slot: u16) -> Option<&str> {
        self.pool_overrides.iter().find(|(_, slots)| slots.contains(slot)).map(|(pool, _)| pool.as_str())
    }

    /// Is nothing of it pending or claimed?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.set(RecipientState::Pending).is_empty() && self.set(RecipientState::Claimed).is_empty()
    }

    /// Takes as little memory as it can: not much of it is expected to move any more.
    pub(crate) fn rest(&mut self) {
        self.sets.iter_mut().for_each(Bitmap::optimize);
    }

    /// The slots of one state.
    pub fn set(&self, state: RecipientState) -> &Bitmap {
        &self.sets[state as usize]
    }

    /// Where a slot stands.
    pub fn state(&self, slot: u16) -> Option<RecipientState> {
        RecipientState::ALL.into_iter().find(|state| self.set(*state).contains(slot))
    }

    /// Pending slots whose wave has come in by `now`.
    pub fn claimable(&self, now: Time) -> Bitmap {
        let mut slots = self.set(RecipientState::Pending).clone();
        for waiting in self.waves.range(bucket_after(now)..).map(|(_, slots)| slots) {
            slots.remove(waiting);
        }
        slots
    }

    /// When the next wave comes in after `now`.
    pub fn next_wave(&self, now: Time) -> Option<Time> {
        self.waves.range(bucket_after(now)..).next().map(|(bucket, _)| wave_start(*bucket))
    }
}

/// Width of a retry wave. Milliseconds.
pub const WAVE_MS: i64 = 30_000;

/// The first bucket that has not come in at `now`.
pub fn bucket_after(now: Time) -> i64 {
    now.0.div_euclid(WAVE_MS) + 1
}

/// When a bucket comes in; at the end of time where that is.
pub fn wave_start(bucket: i64) -> Time {
    Time(bucket.saturating_mul(WAVE_MS))
}

/// A claim row: the right of one owner to send one slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// Who works it.
    pub owner: ClaimOwner,
    /// Ledger time of the claim: the `Date` of its mails.
    pub claimed_at: Time,
    /// What was granted; never changes.
    pub granted: Bitmap,
    /// Still claimed.
    pub claimed: Bitmap,
    /// In doubt: held here until evidence or a decision.
    pub in_doubt: Bitmap,
    /// Accepted under this fence.
    pub sent: Bitmap,
    /// Closed as assumed while in doubt in this row.
    pub assumed: Bitmap,
    /// What became of whom in it, and when.
    pub history: ClaimHistory,
}

impl Claim {
    /// Nothing claimed and nothing in doubt: only evidence is left.
    pub fn is_closed(&self) -> bool {
        self.claimed.is_empty() && self.in_doubt.is_empty()
    }

    /// Was it taken from its owner, whose lease was over (P9)?
    pub fn was_revoked(&self) -> bool {
        self.history.iter().any(|event| event.what == ClaimEventKind::InDoubt(DoubtReason::OwnerLost))
    }

    /// What is known of the doubt in which it holds a slot: why nobody knows, and since when; none where it
    /// does not hold it so.
    pub fn doubt(&self, slot: u16) -> Option<(DoubtReason, Time)> {
        if !self.in_doubt.contains(slot) {
            return None;
        }
        let mine = self.history.iter().filter(|event| event.slots(&self.granted).contains(slot));
        let mut doubts = mine.filter_map(|event| match event.what {
            ClaimEventKind::InDoubt(doubt) => Some((doubt, event.at)),
            _ => None,
        });
        let (first, since) = doubts.next()?;
        Some((doubts.next_back().map_or(first, |(last, _)| last), since))
    }
}

/// A recipient that will not be sent: the dead-letter list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Basic code of the last answer; 0 where no relay was asked.
    pub code: u16,
    /// Enhanced status code.
    pub enhanced: Option<(u8, u16, u16)>,
    /// The answer, or the cause.
    pub cause: DeathCause,
    /// Counted attempts.
    pub attempts: u8,
    /// Since when.
    pub since: Time,
    /// Taken off the list by an operator.
    pub discarded: bool,
}

impl DeadLetter {
    /// The answer, or the cause.
    pub fn text(&self) -> &str {
        self.cause.text()
    }
}

/// What became of an instant of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstantOutcome {
    /// It opened as this run.
    Opened(RunId),
    /// It did not open, nor did those after it. No other row's name lies within such a range, but where the
    /// clocks of a zone go back.
    Explained {
        /// Those after it.
        instants: InstantRange,
        /// Why.
        reason: UnopenedReason,
        /// Log index of the entry that said so.
        index: u64,
    },
}

impl InstantOutcome {
    /// The last instant that this row tells of, by its name; a civil one as if it were UTC.
    pub fn last(&self, first: &Nominal) -> Nominal {
        match self {
            InstantOutcome::Opened(_) => first.clone(),
            InstantOutcome::Explained { instants, .. } => instants.last(first),
        }
    }

    /// The run as which it opened, if it did.
    pub fn run(&self) -> Option<RunId> {
        match self {
            InstantOutcome::Opened(run) => Some(*run),
            InstantOutcome::Explained { .. } => None,
        }
    }
}

/// A stored answer to a request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// Hash of the body that was asked.
    pub body: Hash,
    /// Log index of the entry that answered.
    pub index: u64,
    /// What it answered.
    pub outcome: CommandOutcome,
    /// When.
    pub at: Time,
}

/// A blob and how many schedules and runs hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Schedules and runs that name it.
    pub references: u64,
}

/// A single voter's clock, and how long its machine had run when it showed that (P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoleClock {
    /// Its wall clock.
    pub reading: VoterClock,
    /// Its machine.
    pub machine: MachineClock,
}

/// The one row that changes with every entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Index of the last entry that was applied.
    pub applied: u64,
    /// Ledger time (P18).
    pub now: Time,
    /// The epoch in force.
    pub epoch: Option<EpochState>,
    /// The clock of a cluster of one voter, as it was last agreed with.
    pub sole_clock: Option<SoleClock>,
    /// Raft group.
    pub group: u32,
    /// Incarnation of the cluster: raised by a restore (P21).
    pub cluster_incarnation: u64,
    /// Level of the ledger (P23).
    pub level: u32,
    /// Log index of the last opt-out, pause or cancel: see [`Ledger::floor`].
    pub forbidden_index: u64,
    /// The clock that is moved by hand; none where real time is kept (P19).
    pub test_clock: Option<TestClock>,
}

/// A clock that is moved by hand (P19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestClock {
    /// Log index of the entry that chose it.
    pub index: u64,
    /// How far ledger time is ahead of the leader's clock; only grows. Milliseconds.
    pub offset_ms: i64,
}

impl Head {
    /// How far ledger time is ahead of the leader's clock: zero but for a test clock (P19). Milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.test_clock.map_or(0, |clock| clock.offset_ms)
    }
}

/// The whole state. Rows are public to be read; only `apply` changes them.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) head: Head,
    pub(crate) nodes: Table<NodeId, Node>,
    pub(crate) relays: Table<String, Relay>,
    pub(crate) schedules: Table<ScheduleId, Schedule>,
    pub(crate) history: Table<(ScheduleId, Nominal), InstantOutcome>,
    pub(crate) blobs: Table<Hash, StoredBlob>,
    pub(crate) pages: Table<RunId, Page>,
    pub(crate) chunks: Table<(RunId, u32), Chunk>,
    pub(crate) claims: Table<Fence, Claim>,
    pub(crate) closed_claims: Table<ClosedClaimKey, ClosedClaimBlock>,
    pub(crate) dead: Table<(RunId, u32), DeadLetter>,
    pub(crate) opted_out: Table<(String, String), OptedOut>,
    pub(crate) answers: Table<(String, String), StoredAnswer>,
    pub(crate) summaries: Table<RunId, RunSummary>,
    pub(crate) run_events: Table<RunEventKey, Vec<RunEvent>>,
    pub(crate) audiences: Table<(String, String), SealedAudience>,
    pub(crate) campaigns: Table<(String, String), Campaign>,
    pub(crate) tenants: Table<String, Tenant>,
    pub(crate) taken_back: Table<(String, String), TakenBack>,
    pub(crate) pools: Table<String, PoolRow>,
    pub(crate) derived: Derived,
}

/// A large audience: its seal is kept by hash (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedAudience {
    /// Hash of its seal.
    pub seal: Hash,
    /// Its recipients.
    pub rows: u32,
    /// Log index of the entry that sealed it.
    pub index: u64,
    /// When.
    pub at: Time,
}

/// When somebody opted out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptedOut {
    /// Log index.
    pub index: u64,
    /// Ledger time.
    pub at: Time,
    /// Log index of the last entry that said so again.
    pub last: u64,
}

/// How an opt-out was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// Log index.
    pub index: u64,
    /// Ledger time.
    pub at: Time,
    /// Why.
    pub reason: String,
}

/// Indices that are computed from the rows and never stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    pub names: BTreeMap<(String, String), ScheduleId>,
    pub due: BTreeSet<(Time, ScheduleId)>,
    pub open_pages: BTreeSet<RunId>,
    /// Runs of which somebody got a mail, may have, or may be getting one, by their nominal instants (P17).
    pub mailed: BTreeSet<(ScheduleId, Time, RunId)>,
    /// Such runs whose details were pruned: whom they mailed is forgotten (P17, P24).
    pub forgotten: BTreeSet<(ScheduleId, Time, RunId)>,
    /// Runs to sealed audiences, and what is left of those that mailed somebody, by content (P20).
    pub to_seals: BTreeSet<(Hash, RunId)>,
    /// Where people of edited lists stand in the former ones (P17); as far as it was asked.
    pub mappings: RecipientMappings,
    /// Runs that take part in `overlap` (`Run::takes_part_in_overlap`).
    pub unfinished: BTreeSet<(ScheduleId, RunId)>,
    /// The other unfinished runs: they go beside those of the calendar.
    pub going_beside: BTreeSet<(ScheduleId, RunId)>,
    /// Of `unfinished`: runs that may hold up the next instant (`Run::may_hold_up`).
    pub holding: BTreeSet<(ScheduleId, RunId)>,
    /// Seals that somebody holds.
    pub seals: BTreeSet<Hash>,
    pub answers_by_index: BTreeMap<u64, (String, String)>,
    pub answers_of_tenant: BTreeMap<String, BTreeSet<u64>>,
    /// Recipients of a tenant that are claimed; who has none is not named (P12).
    pub claimed: BTreeMap<String, u32>,
    /// The same by pool (P25).
    pub claimed_by_pool: BTreeMap<String, u32>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new()
    }
}

impl Ledger {
    /// The state before the first entry.
    pub fn new() -> Ledger {
        Ledger {
            head: Head {
                applied: 0,
                now: Time(0),
                epoch: None,
                sole_clock: None,
                group: GROUP,
                cluster_incarnation: 1,
                level: GENESIS_LEVEL,
                forbidden_index: 0,
                test_clock: None,
            },
            nodes: Table::default(),
            relays: Table::default(),
            schedules: Table::default(),
            history: Table::default(),
            blobs: Table::default(),
            pages: Table::default(),
            chunks: Table::default(),
            claims: Table::default(),
            closed_claims: Table::default(),
            dead: Table::default(),
            opted_out: Table::default(),
            answers: Table::default(),
            summaries: Table::default(),
            run_events: Table::default(),
            audiences: Table::default(),
            campaigns: Table::default(),
            tenants: Table::default(),
            taken_back: Table::default(),
            pools: Table::default(),
            derived: Derived::default(),
        }
    }

    /// Index, time, epoch.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Nodes by id.
    pub fn nodes(&self) -> &Table<NodeId, Node> {
        &self.nodes
    }

    /// Relays by name.
    pub fn relays(&self) -> &Table<String, Relay> {
        &self.relays
    }

    /// Schedules by number.
    pub fn schedules(&self) -> &Table<ScheduleId, Schedule> {
        &self.schedules
    }

    /// What became of each instant.
    pub fn history(&self) -> &Table<(ScheduleId, Nominal), InstantOutcome> {
        &self.history
    }

    /// Pages by their first run.
    pub fn pages(&self) -> &Table<RunId, Page> {
        &self.pages
    }

    /// Chunks by page and number.
    pub fn chunks(&self) -> &Table<(RunId, u32), Chunk> {
        &self.chunks
    }

    /// Rows with something claimed or in doubt, by fence.
    pub fn claims(&self) -> &Table<Fence, Claim> {
        &self.claims
    }

    /// Dead letters by run and recipient number.
    pub fn dead(&self) -> &Table<(RunId, u32), DeadLetter> {
        &self.dead
    }

    /// What is left of runs that were pruned (P24).
    pub fn summaries(&self) -> &Table<RunId, RunSummary> {
        &self.summaries
    }

    /// What befell a run's recipients without a row's doing, by run, log index and chunk.
    pub fn run_events(&self) -> &Table<RunEventKey, Vec<RunEvent>> {
        &self.run_events
    }

    /// Opt-outs by tenant and address key.
    pub fn opted_out(&self) -> &Table<(String, String), OptedOut> {
        &self.opted_out
    }

    /// Opt-outs that were taken back, by tenant and address key.
    pub fn taken_back(&self) -> &Table<(String, String), TakenBack> {
        &self.taken_back
    }

    /// Sealed audiences by tenant and name (P20).
    pub fn audiences(&self) -> &Table<(String, String), SealedAudience> {
        &self.audiences
    }

    /// Campaigns by tenant and name (P7).
    pub fn campaigns(&self) -> &Table<(String, String), Campaign> {
        &self.campaigns
    }

    /// Bounds of tenants by name, where somebody has set them (P12).
    pub fn tenants(&self) -> &Table<String, Tenant> {
        &self.tenants
    }

    /// The bounds of a tenant.
    pub fn tenant(&self, name: &str) -> Tenant {
        if self.tenants.is_empty() {
            return Tenant::default();
        }
        self.tenants.get(&name.to_owned()).copied().unwrap_or_default()
    }

    /// Every tenant that has bounds, schedules or campaigns, and the default one; from this name on, in order.
    pub fn tenant_names_from(&self, from: String) -> impl Iterator<Item = String> + '_ {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let from = next.take()?;
            let place = (from.clone(), String::new());
            let bounded = self.tenants.range(from.clone()..).next().map(|(name, _)| name.as_str());
            let scheduled = self.derived.names.range(place.clone()..).next().map(|((tenant, _), _)| tenant.as_str());
            let campaigning = self.campaigns.range(place..).next().map(|((tenant, _), _)| tenant.as_str());
            let default = Some(DEFAULT_TENANT).filter(|name| *name >= from.as_str());
            let found = [bounded, scheduled, campaigning, default].into_iter().flatten().min()?.to_owned();
            // The first name that comes after it.
            next = Some(format!("{found}\0"));
            Some(found)
        })
    }

    /// Recipients of a tenant that are claimed (P12).
    pub fn claimed_by_tenant(&self, tenant: &str) -> u32 {
        self.derived.claimed.get(tenant).copied().unwrap_or(0)
    }

    /// Pools of which something is set, by name (P25).
    pub fn pools(&self) -> &Table<String, PoolRow> {
        &self.pools
    }

    /// Do emails of this pool carry `X-Reveille-Run` and `X-Reveille-Fence`?
    pub fn has_reveille_headers(&self, pool: &str) -> bool {
        self.pools.get(&pool.to_owned()).is_none_or(|row| row.reveille_headers)
    }

    /// Recipients of a pool that are claimed (P25).
    pub fn claimed_by_pool(&self, pool: &str) -> u32 {
        self.derived.claimed_by_pool.get(pool).copied().unwrap_or(0)
    }

    /// How many more may be claimed for a pool today; none where there is no bound (P25).
    pub fn room_today(&self, pool: &str, now: Time) -> Option<u32> {
        if self.pools.is_empty() || injected_bugs::is(Bug::NoWarmUpCap) {
            return None;
        }
        let (day, row) = (Day::of(now), self.pools.get(&pool.to_owned())?);
        let used = row.spent(day).saturating_add(self.claimed_by_pool(pool));
        Some(row.cap(day)?.saturating_sub(used))
    }

    /// The seal of an audience, where it is a sealed one.
    pub fn seal(&self, audience: &Hash) -> Option<Seal> {
        Recipients::seal_from_blob(self.blob(audience)?)
    }

    /// Every seal that somebody holds: an audience, a schedule or a run. Its parts are needed.
    pub fn seals(&self) -> impl Iterator<Item = Seal> + '_ {
        self.derived.seals.iter().filter_map(|hash| self.seal(hash))
    }

    /// The schedule of that name.
    pub fn schedule_named(&self, tenant: &str, name: &str) -> Option<(ScheduleId, &Schedule)> {
        let number = *self.derived.names.get(&(tenant.to_owned(), name.to_owned()))?;
        Some((number, self.schedules.get(&number)?))
    }

    /// Active schedules in the order in which they fall due.
    pub fn due(&self) -> impl Iterator<Item = (Time, ScheduleId)> + '_ {
        self.derived.due.iter().copied()
    }

    /// Unfinished runs of a schedule that take part in `overlap`, oldest first: no backfills, no reopened runs.
    pub fn unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.unfinished, id)
    }

    /// All unfinished runs of a schedule.
    pub(crate) fn all_unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.unfinished(id).chain(self.listed(&self.derived.going_beside, id))
    }

    /// Of those that take part in `overlap`: runs that may hold up the schedule's next instant. No paused and no triggered ones.
    pub fn holding(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.holding, id)
    }

    fn listed<'a>(
        &'a self,
        index: &'a BTreeSet<(ScheduleId, RunId)>,
        id: ScheduleId,
    ) -> impl Iterator<Item = (RunId, &'a Run)> + 'a {
        let first = RunId { index: 0, place: 0 };
        let of = index.range((id, first)..).take_while(move |(schedule, _)| *schedule == id);
        of.filter_map(|(_, run)| Some((*run, self.run(*run)?)))
    }

    /// The run for which the next instant of a schedule waits, where that is due and has to (`buffer_one`).
    pub fn waits_for(&self, id: ScheduleId) -> Option<RunId> {
        let opens = self.schedules.get(&id)?.plan.next.as_ref()?.opens();
        let waits = opens <= self.head.now && self.waits_at(id, self.head.now);
        let mut holding = self.holding(id).filter(|(_, run)| run.holds_up(self.head.now));
        holding.next().map(|(run, _)| run).filter(|_| waits)
    }

    /// Does an instant that is due at `now` wait for a run? Not for one of which nothing is claimed and whose
    /// deadline is over: it expires when the instant opens.
    pub fn waits_at(&self, id: ScheduleId, now: Time) -> bool {
        let Some(schedule) = self.schedules.get(&id) else { return false };
        let is_due = schedule.plan.next.as_ref().is_some_and(|next| next.due <= now);
        let waits = schedule.wakes_at(true) != schedule.wakes_at(false);
        is_due && waits && self.holding(id).any(|(_, run)| run.holds_up(now))
    }

    /// Pages with something pending or claimed, oldest first.
    pub fn open_pages(&self) -> impl Iterator<Item = (RunId, &Page)> + '_ {
        self.derived.open_pages.iter().filter_map(|id| Some((*id, self.pages.get(id)?)))
    }

    /// When all details of a page may go (P24); none while one of its runs is not finished.
    pub fn kept_until(&self, page: &Page) -> Option<Time> {
        let until = |run: &Run| run.kept_until(self.schedules.get(&run.schedule).map(|schedule| &schedule.policies));
        page.runs.iter().map(until).try_fold(Time(i64::MIN), |latest, until| Some(latest.max(until?)))
    }

    /// The page of a run, and the run's place in it.
    pub fn page_of(&self, run: RunId) -> Option<(RunId, &Page, usize)> {
        let (id, page) = self.pages.range(..=run).next_back()?;
        let place = run.place.checked_sub(id.place)? as usize;
        (id.index == run.index && place < page.runs.len()).then_some((*id, page, place))
    }

    /// A run.
    pub fn run(&self, run: RunId) -> Option<&Run> {
        let (_, page, place) = self.page_of(run)?;
        page.runs.get(place)
    }

    /// All runs, in the order in which they opened.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (RunId, &Page, &Run)> + '_ {
        self.pages.iter().flat_map(|(id, page)| {
            let name = move |place: usize| RunId { index: id.index, place: id.place + place as u32 };
            page.runs.iter().enumerate().map(move |(place, run)| (name(place), page, run))
        })
    }

    /// The bytes of a content or an audience.
    pub fn blob(&self, hash: &Hash) -> Option<&[u8]> {
        self.blobs.get(hash).map(|blob| blob.bytes.as_slice())
    }

    /// Bytes of all contents and audiences. Costs a look at each.
    pub fn blob_bytes(&self) -> usize {
        self.blobs.iter().map(|(_, blob)| blob.bytes.len()).sum()
    }

    /// The stored answer to a request id of a tenant.
    pub fn answer_to(&self, tenant: &str, request: &str) -> Option<&StoredAnswer> {
        self.answers.get(&(tenant.to_owned(), request.to_owned()))
    }

    /// Where a recipient of a run stands.
    pub fn state(&self, run: RunId, recipient: u32) -> Option<RecipientState> {
        let (page, chunk, slot) = self.slot_of(run, recipient)?;
        self.chunks.get(&(page, chunk))?.state(slot)
    }

    /// Is there a relay that a pool's mail could go by?
    pub fn serves(&self, pool: &str) -> bool {
        self.relays.iter().any(|(_, relay)| relay.pool == pool && relay.max_sessions > 0)
    }

    /// The pool by which a slot of a page goes.
    pub fn pool_of<'a>(&'a self, id: RunId, page: &'a Page, chunk: u32, slot: u16) -> &'a str {
        self.chunks.get(&(id, chunk)).and_then(|chunk| chunk.pool_of(slot)).unwrap_or(&page.pool)
    }

    /// The pool by which what a row holds goes: all of it by one (P4). Who has left it may go by another since.
    pub fn pool_of_claim<'a>(&'a self, page: &'a Page, row: &Claim) -> &'a str {
        let held = row.claimed.min().or(row.in_doubt.min());
        held.map_or(&page.pool, |slot| self.pool_of(row.page, page, row.chunk, slot))
    }

    /// Page, chunk and slot of a recipient of a run.
    pub fn slot_of(&self, run: RunId, recipient: u32) -> Option<(RunId, u32, u16)> {
        let (page, whole, place) = self.page_of(run)?;
        let run = &whole.runs[place];
        let slot = (recipient < run.count).then(|| run.first + recipient)?;
        Some((page, slot / crate::bitmap::CHUNK, (slot % crate::bitmap::CHUNK) as u16))
    }

    /// The floor of a node (P9, P15): the last entry that forbids hand-offs which it may have been granted
    /// before. Whoever grants a lease names it, and a gate passes under that grant only in a state that
    /// includes it.
    pub fn floor(&self, node: NodeId) -> u64 {
        let revoked = self.nodes.get(&node).map_or(0, |node| node.revoked_index);
        self.head.forbidden_index.max(revoked)
    }

    /// Is this owner the node's current life (P4)?
    pub fn is_current(&self, owner: ClaimOwner) -> bool {
        self.nodes.get(&owner.node).is_some_and(|node| node.incarnation == owner.incarnation)
    }
}
