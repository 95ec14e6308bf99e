//! A run (an occurrence that opened), and the summary that remains when its details are pruned (P24).

use serde::{Deserialize, Serialize};

use crate::model::{
    BounceBreaker, CanaryState, Counts, DAY_MS, FINISH_MS_MIN, Hash, Nominal, OpeningCause, PauseReason, Policies,
    RecipientState, RunId, SameWords, ScheduleId, Time,
};

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
        /// Why it was paused then: it is paused again when a recipient of it is sent again (P15). None: it was open.
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

    /// True if it was cancelled.
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
    /// run, and from then on no recipient dies of one).
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
    /// What no live node has of its audience, as long as a recipient waits for it (P20).
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

    /// True if evidence may move a recipient back to pending, though nothing is pending or claimed. What is in doubt or
    /// assumed may turn out not to have been handed off (P14).
    pub fn may_come_back(&self) -> bool {
        self.counts.get(RecipientState::InDoubt) > 0 || self.counts.get(RecipientState::Assumed) > 0
    }

    /// When its details may go (P24): its retention after it finished, and not before the horizon of evidence
    /// while a recipient is in doubt. None while it is not finished.
    pub(super) fn kept_until(&self, present: Option<&Policies>) -> Option<Time> {
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
    /// What it sent to a sealed audience; none if it sent no email.
    pub mailing: Option<Box<Mailing>>,
}

/// The content and the audience of a send, to detect a repetition (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailing {
    /// Content, by hash.
    pub content: Hash,
    /// See [`Seal::people`](crate::model::Seal::people).
    pub people: Hash,
}

impl RunSummary {
    /// When it may go too (P24).
    pub fn kept_until(&self) -> Time {
        self.pruned_at.max(self.opened_at.plus_ms(SUMMARIES_MS))
    }
}
