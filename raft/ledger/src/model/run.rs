//! A run (an occurrence that opened), and the summary that remains after its details are removed (P24).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index::SharedValues;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Bitmap, BounceBreaker, CanaryState, DAY_MS, FINISH_MS_MIN, Hash, OccurrenceName, OpeningCause, Page, PauseReason,
    Policies, RecipientCounts, RecipientState, RunId, RunSlots, ScheduleId, Time,
};

/// State of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// Recipients are claimed and sent.
    Open,
    /// Nothing is claimed, and no gate passes.
    Paused {
        /// Reason of the pause.
        reason: PauseReason,
    },
    /// An operator ended it, or another run of its schedule did.
    Cancelled {
        /// The run that cancelled it (`overlap = cancel_other`); `None` if an operator did.
        by: Option<RunId>,
    },
    /// It reached its deadline.
    Expired {
        /// Reason of the pause that it was in; it is paused again if one of its recipients is sent again (P15). `None`:
        /// it was open.
        paused: Option<PauseReason>,
    },
    /// Nothing is pending or claimed, and it is not paused, cancelled or expired.
    Finished,
}

impl RunState {
    /// The state without its details.
    pub fn kind(&self) -> RunStateKind {
        match self {
            RunState::Open => RunStateKind::Open,
            RunState::Paused { .. } => RunStateKind::Paused,
            RunState::Cancelled { .. } => RunStateKind::Cancelled,
            RunState::Expired { .. } => RunStateKind::Expired,
            RunState::Finished => RunStateKind::Finished,
        }
    }

    /// The state in one word.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// True if it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RunState::Cancelled { .. })
    }
}

word_enum! {
    /// State of a run, without details.
    RunStateKind {
        /// See [`RunState::Open`].
        Open = "open",
        /// See [`RunState::Paused`].
        Paused = "paused",
        /// See [`RunState::Cancelled`].
        Cancelled = "cancelled",
        /// See [`RunState::Expired`].
        Expired = "expired",
        /// See [`RunState::Finished`].
        Finished = "finished",
    }
}

/// An occurrence that opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its position in the entry that opened it; with that entry's log index it is the run's id.
    pub place: u32,
    /// The schedule of the run.
    pub schedule: ScheduleId,
    /// Name of the schedule. After a delete another schedule may have the same name.
    pub name: Arc<str>,
    /// Name of the occurrence; unique within the schedule.
    pub occurrence: OccurrenceName,
    /// When it was due.
    pub due: Time,
    /// Why it opened.
    pub cause: OpeningCause,
    /// Hash of the content. It changes only when all recipients are erased.
    pub content: Hash,
    /// Hash of the audience. It changes only when a recipient is erased.
    pub audience: Hash,
    /// Its first slot in the page.
    pub first: u32,
    /// Number of its recipients.
    pub count: u32,
    /// Deadline: recipients that are not sent by then expire.
    pub finish_by: Time,
    /// Policies of the schedule when it opened; they never change.
    pub policies: Arc<Policies>,
    /// Its state.
    pub state: RunState,
    /// Recipients by state.
    pub counts: RecipientCounts,
    /// Log index of the entry that finished it. `None`: a recipient is pending or claimed.
    pub finished_index: Option<u64>,
    /// Ledger time of that entry.
    pub finished_at: Option<Time>,
    /// Recipients of the current series of unattributed refusals (permanent, without a named mailbox), oldest first.
    /// Ten pause the run, and from then on no recipient becomes dead by such a refusal (P6). A run of fewer recipients
    /// needs as many refusals for sender or content as the run has recipients.
    pub unattributed_refusals: Vec<u32>,
    /// Number of accepts under another fence for recipients that were already sent.
    pub known_duplicates: u32,
    /// Number of accepts for recipients that were closed as something else.
    pub contradictions: u32,
    /// Number of assumed recipients that were proved not to be sent.
    pub assumptions_disproved: u32,
    /// Number of recipients in doubt that were sent again by decision.
    pub resent: u32,
    /// The run that its instant waited for (`overlap = buffer_one`); `None` if it did not wait.
    pub waited_for: Option<RunId>,
    /// Its canary; `None` if it has none (P6).
    pub canary: Option<CanaryState>,
    /// A file that no live node has while recipients wait for it; `None` if all are available (P20).
    pub blocked: Option<MissingFile>,
    /// Counts of dead among recently decided recipients (P6).
    pub bounce_breaker: BounceBreaker,
    /// True if a requeue or a resend gave it a new deadline after it had ended. It then takes no part in `overlap`,
    /// like a backfill.
    pub reopened: bool,
    /// In the archive: the run of the same schedule that was archived before it. `None`: none was.
    pub previous: Option<RunId>,
    /// Hash of the content and the recipients that its caller gave. `None`: the schedule gave them.
    pub body_hash: Option<Hash>,
}

/// Times from which a finished run may leave the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingTimes {
    /// It may be archived with all details. `None`: it stays in the state until `details_until`.
    pub archived_from: Option<Time>,
    /// Its details may be removed.
    pub details_until: Time,
}

impl LeavingTimes {
    /// True if it may leave the state at `now`, with its details or without them.
    pub(crate) fn have_come(&self, now: Time) -> bool {
        self.details_until <= now || self.archived_from.is_some_and(|from| from <= now)
    }
}

/// A file that no live node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingFile {
    /// What it is of the run.
    pub file: RunFile,
    /// Ledger time since which it is missing.
    pub since: Time,
}

/// A file that emails of a run need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
pub enum RunFile {
    /// The part of its sealed audience with this number.
    #[display("part {_0} of its audience")]
    Part(u32),
    /// An attachment of its content.
    #[display("an attachment of its content")]
    Attachment,
}

impl Run {
    /// What texts call it: its schedule's name.
    pub fn label(&self) -> &str {
        label(self.cause, &self.name)
    }

    /// Its slots in its page.
    pub(crate) fn slots(&self) -> RunSlots {
        RunSlots { first: self.first, count: self.count }
    }

    /// Its slots in a chunk of its page; empty if it has none there.
    pub fn slots_in(&self, chunk: u32) -> Bitmap {
        self.slots().in_chunk(chunk)
    }

    /// True if a recipient got an email, may have got one, or may be getting one.
    pub(crate) fn has_emails(&self) -> bool {
        self.counts.has_emails() || self.resent > 0
    }

    /// True if it is unfinished and counts for `overlap`. Backfills and reopened runs do not count: `cancel_other` does
    /// not cancel them, and they do not block a trigger.
    pub(crate) fn takes_part_in_overlap(&self) -> bool {
        !self.counts.is_finished() && self.cause != OpeningCause::Backfill && !self.reopened
    }

    /// True if it is unfinished and does not count for `overlap`.
    pub(crate) fn is_exempt_from_overlap(&self) -> bool {
        !self.counts.is_finished() && !self.takes_part_in_overlap()
    }

    /// True if it can delay its schedule's next instant. Only runs that the calendar opened can. A paused run waits for
    /// an operator, and a triggered run may take all of `finish_by`; neither may cost the schedule its next run.
    pub(crate) fn may_block_next(&self) -> bool {
        let state = match self.state {
            RunState::Open | RunState::Finished => true,
            RunState::Paused { .. } => false,
            RunState::Cancelled { .. } | RunState::Expired { .. } => self.counts.get(RecipientState::Claimed) > 0,
        };
        state && self.takes_part_in_overlap() && matches!(self.cause, OpeningCause::Due | OpeningCause::CatchUp)
    }

    /// True if it has work left at `now`. Pending recipients count until the deadline, claimed ones always. Does not
    /// check whether it may delay other runs.
    pub fn has_work_left(&self, now: Time) -> bool {
        self.counts.get(RecipientState::Claimed) > 0
            || self.counts.get(RecipientState::Pending) > 0 && self.finish_by > now
    }

    /// True if evidence may still make a recipient pending. A recipient in doubt or assumed may turn out not to be
    /// handed off (P14).
    pub fn may_become_pending(&self) -> bool {
        self.counts.get(RecipientState::InDoubt) > 0 || self.counts.get(RecipientState::Assumed) > 0
    }

    /// Times from which it may leave the state (P24); `None` while it is not finished.
    ///
    /// Its details are kept for its retention after it finished. Recipients in doubt extend this to [`DOUBT_KEPT_MS`]. It
    /// is archived `after_ms` after it finished, unless a recipient can still be decided about: one that is in doubt,
    /// assumed or dead. `stays` is true if it is not archived before its retention is over: its audience is sealed, and
    /// a node keeps the parts of an audience only for runs in the state; or another run reads what it sent.
    pub(super) fn leaving_times(&self, present: Option<&Policies>, after_ms: i64, stays: bool) -> Option<LeavingTimes> {
        let horizon_ms = if self.counts.get(RecipientState::InDoubt) > 0 { DOUBT_KEPT_MS } else { 0 };
        // A run less than `min_gap` later reads what was sent here for as long as it may claim (P17). It may have the
        // present `min_gap` of the schedule.
        let asked_ms = |policies: &Policies| {
            let claims_ms = policies.finish_by_ms.max(policies.start_within_ms.saturating_add(FINISH_MS_MIN));
            if policies.min_gap_ms > 0 { policies.min_gap_ms.saturating_add(claims_ms) } else { 0 }
        };
        let gap_ms = asked_ms(&self.policies).max(present.map_or(0, asked_ms));
        let finished_at = self.finished_at?;
        let is_decided = !self.may_become_pending() && self.counts.get(RecipientState::Dead) == 0;
        let is_decided = is_decided || injected_bugs::is(Bug::EarlyArchive);
        Some(LeavingTimes {
            archived_from: (is_decided && !stays).then(|| finished_at.plus_ms(after_ms.max(gap_ms))),
            details_until: finished_at.plus_ms(self.policies.retention_ms.max(horizon_ms).max(gap_ms)),
        })
    }
}

/// A recipient in doubt may be resolved for this long after its run finished, by an owner that returns with its journal
/// (P24). Milliseconds.
pub const DOUBT_KEPT_MS: i64 = 30 * DAY_MS;

/// How long summaries of runs, their names and explained instants are kept, from the opening or the due time on (P24).
/// Never shorter than the details. Milliseconds.
pub const SUMMARIES_MS: i64 = 400 * DAY_MS;

/// Summary of a run that has left the state (P24).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Tenant of the run.
    pub tenant: Arc<str>,
    /// The schedule of the run.
    pub schedule: ScheduleId,
    /// Name of the schedule.
    pub name: Arc<str>,
    /// Name of the occurrence; unique within the schedule.
    pub occurrence: OccurrenceName,
    /// When it was due.
    pub due: Time,
    /// Why it opened.
    pub cause: OpeningCause,
    /// Ledger time at which it opened.
    pub opened_at: Time,
    /// Deadline: recipients that were not sent by then expired.
    pub finish_by: Time,
    /// Its last state.
    pub state: RunState,
    /// Number of recipients by state. Recipients in doubt stay so for ever: the claims that evidence could name are
    /// removed.
    pub counts: RecipientCounts,
    /// Log index of the entry that finished it.
    pub finished_index: Option<u64>,
    /// Number of accepts under another fence for recipients that were already sent.
    pub known_duplicates: u32,
    /// Number of accepts for recipients that were closed as something else.
    pub contradictions: u32,
    /// Number of assumed recipients that were proved not to be sent.
    pub assumptions_disproved: u32,
    /// Number of recipients in doubt that were sent again by decision.
    pub resent: u32,
    /// Log index of the entry that removed its details from the state.
    pub archived_index: u64,
    /// Ledger time of that entry.
    pub archived_at: Time,
    /// The run that its instant waited for; `None` if it did not wait.
    pub waited_for: Option<RunId>,
    /// Content and recipients of its send to a sealed audience; `None` if it sent no email, or its audience is not
    /// sealed.
    pub mailing: Option<Box<Mailing>>,
    /// The run of the same schedule that was archived before it. `None`: none was.
    pub previous: Option<RunId>,
}

/// Content and recipients of a send, by which a repetition is detected (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailing {
    /// Hash of the content.
    pub content: Hash,
    /// See [`Seal::recipients_hash`](crate::model::Seal::recipients_hash).
    pub recipients: Hash,
}

fn label(cause: OpeningCause, name: &str) -> &str {
    if cause.is_message() { "a message" } else { name }
}

impl RunSummary {
    /// Returns the summary of a run that the entry at this log index archives, at this ledger time.
    pub(crate) fn of(page: &Page, run: &Run, (archived_index, archived_at): (u64, Time)) -> RunSummary {
        RunSummary {
            tenant: page.tenant.clone(),
            schedule: run.schedule,
            name: run.name.clone(),
            occurrence: run.occurrence.clone(),
            due: run.due,
            cause: run.cause,
            opened_at: page.opened_at,
            finish_by: run.finish_by,
            state: run.state.clone(),
            counts: run.counts,
            finished_index: run.finished_index,
            known_duplicates: run.known_duplicates,
            contradictions: run.contradictions,
            assumptions_disproved: run.assumptions_disproved,
            resent: run.resent,
            archived_index,
            archived_at,
            waited_for: run.waited_for,
            mailing: None,
            previous: run.previous,
        }
    }

    /// See [`Run::label`].
    pub fn label(&self) -> &str {
        label(self.cause, &self.name)
    }

    /// Shares its texts with other summaries.
    pub(crate) fn intern(&mut self, shared: &mut SharedValues) {
        [&mut self.tenant, &mut self.name].into_iter().for_each(|text| shared.texts.intern(text));
    }

    /// When the summary in the state may be removed too (P24).
    pub fn kept_until(&self) -> Time {
        self.archived_at.max(self.opened_at.plus_ms(SUMMARIES_MS))
    }
}
