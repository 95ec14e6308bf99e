//! Builds the message of a run.

use reveille_ledger::bounce_breaker::BounceBreaker;
use reveille_ledger::canary::CanaryState;
use reveille_ledger::causes::PauseReason;
use reveille_ledger::command::OpeningCause;
use reveille_ledger::ids::{OccurrenceName, RunId, Time};
use reveille_ledger::policy::Policies;
use reveille_ledger::{Ledger, MissingFile, RecipientCounts, RecipientState, RunFile, RunState, RunSummary};
use reveille_proto::admin::v1;

use super::timestamp;
use crate::server::admin::enums::OnWire;

/// Builds the message of a run, or of its summary if its details are removed. Returns `None` if the ledger has neither.
pub fn run_of(ledger: &Ledger, id: RunId) -> Option<v1::Run> {
    let summary = summary(id, &ledger.summary_of(id)?);
    let Some(run) = ledger.run(id) else { return Some(summary) };
    let (canary, blocked) = (run.canary.map(canary), run.blocked.map(missing_file));
    let etag = ledger.run_etag(id);
    Some(v1::Run { audience: run.count, archived_index: None, canary, blocked, etag, ..summary })
}

/// Returns the run that would open now, or at `due`.
pub fn run_to_open(
    tenant: &str,
    occurrence: String,
    cause: v1::RunCause,
    recipients: u32,
    due: Time,
    policies: &Policies,
) -> v1::Run {
    v1::Run {
        tenant: tenant.to_owned(),
        occurrence,
        cause: cause.into(),
        state: v1::RunState::Open.into(),
        audience: recipients,
        counts: Some(v1::RunCounts { pending: recipients, ..v1::RunCounts::default() }),
        due_time: Some(timestamp(due)),
        finish_by_time: Some(timestamp(due.plus_ms(policies.finish_by_ms))),
        ..v1::Run::default()
    }
}

/// Builds the message of a file that no live node has (P20).
pub fn missing_file(MissingFile { file, since }: MissingFile) -> v1::MissingFile {
    let (kind, part) = match file {
        RunFile::Part(part) => (v1::MissingFileKind::AudiencePart, part),
        RunFile::Attachment => (v1::MissingFileKind::Attachment, 0),
    };
    v1::MissingFile { kind: kind.into(), part, missing_time: Some(timestamp(since)) }
}

/// Builds the message of a pause.
pub fn pause(reason: &PauseReason) -> v1::Pause {
    let with = |cause: v1::PauseCause| v1::Pause { cause: cause.into(), ..v1::Pause::default() };
    match reason {
        PauseReason::Operator(text) => v1::Pause { text: text.clone(), ..with(v1::PauseCause::Operator) },
        PauseReason::Quarantined(text) => v1::Pause { text: text.clone(), ..with(v1::PauseCause::Quarantined) },
        PauseReason::UnattributedRefusals { count, code, enhanced, text } => v1::Pause {
            count: *count,
            code: u32::from(*code),
            enhanced: enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default(),
            text: text.clone(),
            ..with(v1::PauseCause::UnattributedRefusals)
        },
        PauseReason::Canary(state) => v1::Pause { canary: Some(canary(*state)), ..with(v1::PauseCause::Canary) },
        PauseReason::BounceBreaker(BounceBreaker { dead, decided, .. }) => {
            v1::Pause { count: *dead, decided: *decided, ..with(v1::PauseCause::BounceBreaker) }
        }
    }
}

/// Builds the message of a canary.
pub fn canary(CanaryState { recipients, bad_max, undecided, bad, verdict, .. }: CanaryState) -> v1::RunCanary {
    v1::RunCanary { recipients, undecided, bad, bad_max, verdict: verdict.wire().into() }
}

fn summary(id: RunId, summary: &RunSummary) -> v1::Run {
    let (paused, cancelled_by) = match &summary.state {
        RunState::Paused { reason } => (Some(reason), None),
        RunState::Expired { paused } => (paused.as_ref(), None),
        RunState::Cancelled { by } => (None, *by),
        RunState::Open | RunState::Finished => (None, None),
    };
    v1::Run {
        run: id.to_string(),
        tenant: summary.tenant.to_string(),
        schedule: summary.name.to_string(),
        occurrence: occurrence(summary.cause, &summary.occurrence),
        cause: summary.cause.wire().into(),
        state: run_state(&summary.state).into(),
        pause: paused.map(pause),
        audience: u32::try_from(summary.counts.total()).unwrap_or(u32::MAX),
        counts: Some(counts(&summary.counts)),
        opened_index: id.index,
        finished_index: summary.finished_index,
        due_time: Some(timestamp(summary.due)),
        open_time: Some(timestamp(summary.opened_at)),
        finish_by_time: Some(timestamp(summary.finish_by)),
        known_duplicates: summary.known_duplicates,
        resent: summary.resent,
        archived_index: Some(summary.archived_index),
        waited_for: summary.waited_for.map(|former| former.to_string()).unwrap_or_default(),
        canary: None,
        blocked: None,
        lost: false,
        etag: String::new(),
        cancelled_by: cancelled_by.map(|other| other.to_string()).unwrap_or_default(),
    }
}

/// Returns the name of an occurrence: of a message its key.
pub(super) fn occurrence(cause: OpeningCause, occurrence: &OccurrenceName) -> String {
    match occurrence {
        OccurrenceName::Trigger(key) if cause.is_message() => key.clone(),
        occurrence => occurrence.to_string(),
    }
}

/// Converts the counts of recipients.
pub(super) fn counts(counts: &RecipientCounts) -> v1::RunCounts {
    let count = |state| counts.get(state);
    v1::RunCounts {
        pending: count(RecipientState::Pending),
        claimed: count(RecipientState::Claimed),
        sent: count(RecipientState::Sent),
        assumed: count(RecipientState::Assumed),
        dead: count(RecipientState::Dead),
        suppressed: count(RecipientState::Suppressed),
        expired: count(RecipientState::Expired),
        cancelled: count(RecipientState::Cancelled),
        in_doubt: count(RecipientState::InDoubt),
    }
}

/// Returns the state of a run.
pub fn run_state(state: &RunState) -> v1::RunState {
    match state {
        RunState::Open => v1::RunState::Open,
        RunState::Paused { .. } => v1::RunState::Paused,
        RunState::Finished => v1::RunState::Finished,
        RunState::Cancelled { .. } => v1::RunState::Cancelled,
        RunState::Expired { .. } => v1::RunState::Expired,
    }
}

/// Returns the state of a recipient as text.
pub fn state_word(state: RecipientState) -> &'static str {
    match state {
        RecipientState::Pending => "pending",
        RecipientState::Claimed => "claimed",
        RecipientState::Sent => "sent",
        RecipientState::Assumed => "assumed to be sent",
        RecipientState::Dead => "dead",
        RecipientState::Suppressed => "suppressed",
        RecipientState::Expired => "expired",
        RecipientState::Cancelled => "cancelled",
        RecipientState::InDoubt => "in doubt",
    }
}
