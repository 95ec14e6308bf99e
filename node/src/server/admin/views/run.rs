//! Builds the message of a run.

use reveille_ledger::canary::{CanaryState, CanaryVerdict};
use reveille_ledger::causes::PauseReason;
use reveille_ledger::command::OpeningCause;
use reveille_ledger::ids::{Nominal, RunId};
use reveille_ledger::{Ledger, MissingFile, Page, RecipientCounts, RecipientState, Run, RunFile, RunState, RunSummary};
use reveille_proto::admin::v1;

use super::timestamp;

/// Builds the message of a run, or of its summary if its details are removed. Returns `None` if the ledger has neither.
pub fn run_of(ledger: &Ledger, id: RunId) -> Option<v1::Run> {
    let kept = ledger.page_of(id).and_then(|(_, page, place)| Some(run(id, page, page.runs.get(place)?)));
    kept.or_else(|| Some(summary(id, ledger.summaries().get(&id)?)))
}

fn run(id: RunId, page: &Page, run: &Run) -> v1::Run {
    let (state, reason) = run_state(&run.state);
    v1::Run {
        run: id.to_string(),
        tenant: page.tenant.to_string(),
        schedule: run.name.to_string(),
        nominal: nominal(run.cause, &run.nominal),
        cause: cause(run.cause).into(),
        state: state.into(),
        reason,
        audience: run.count,
        counts: Some(counts(&run.counts)),
        opened_index: id.index,
        finished_index: run.finished_index,
        due_time: Some(timestamp(run.due)),
        open_time: Some(timestamp(page.opened_at)),
        finish_by_time: Some(timestamp(run.finish_by)),
        known_duplicates: run.known_duplicates,
        resent: run.resent,
        archived_index: None,
        waited_for: run.waited_for.map(|former| former.to_string()).unwrap_or_default(),
        canary: run.canary.map(canary),
        blocked: blocked(run),
    }
}

/// Says which audience part a run waits for, and how to provide it (P20). Returns an empty text if none is missing.
pub fn blocked(run: &Run) -> String {
    run.blocked.map_or_else(String::new, |MissingFile { file, since }| {
        let again = match file {
            RunFile::Part(_) => "import the same list again",
            RunFile::Attachment => "send the same file with another message or template",
        };
        format!("no live node has {file}, since {since}: start one that has it, or {again}")
    })
}

fn canary(trial: CanaryState) -> v1::RunCanary {
    let verdict = match trial.verdict {
        CanaryVerdict::Undecided => v1::CanaryVerdict::Undecided,
        CanaryVerdict::Passed => v1::CanaryVerdict::Passed,
        CanaryVerdict::Held => v1::CanaryVerdict::Held,
        CanaryVerdict::Overruled => v1::CanaryVerdict::Overruled,
    };
    let CanaryState { recipients, bad_max, undecided, bad, .. } = trial;
    v1::RunCanary { recipients, undecided, bad, bad_max, verdict: verdict.into() }
}

fn summary(id: RunId, summary: &RunSummary) -> v1::Run {
    let (state, reason) = run_state(&summary.state);
    v1::Run {
        run: id.to_string(),
        tenant: summary.tenant.to_string(),
        schedule: summary.name.to_string(),
        nominal: nominal(summary.cause, &summary.nominal),
        cause: cause(summary.cause).into(),
        state: state.into(),
        reason,
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
        blocked: String::new(),
    }
}

/// Returns the name of an occurrence: of a message its key.
fn nominal(cause: OpeningCause, nominal: &Nominal) -> String {
    match nominal {
        Nominal::Trigger(key) if cause.is_message() => key.clone(),
        nominal => nominal.to_string(),
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

/// Converts the cause of a run.
pub(super) fn cause(cause: OpeningCause) -> v1::RunCause {
    match cause {
        OpeningCause::Due => v1::RunCause::Due,
        OpeningCause::CatchUp => v1::RunCause::CatchUp,
        OpeningCause::Trigger => v1::RunCause::Trigger,
        OpeningCause::Backfill => v1::RunCause::Backfill,
        OpeningCause::Test => v1::RunCause::Test,
        OpeningCause::Message => v1::RunCause::Message,
    }
}

/// Says that another run of the schedule cancelled this one.
pub fn made_way(run: RunId) -> String {
    format!("overlap: {run} opened, and overlap is cancel_other")
}

/// Says that the deadline ended the run, and that it was paused then. A pause stays until it is revoked (P15).
fn expired(paused: Option<&PauseReason>) -> String {
    let expired = "finish_by: what was not sent by then expired";
    match paused {
        None => expired.to_owned(),
        Some(reason) => {
            let reason = reason.to_string();
            let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
            format!("{expired}; it was paused{reason}, and is paused again when recipients of it are requeued")
        }
    }
}

/// Returns the state, and the reason if it is known.
pub fn run_state(state: &RunState) -> (v1::RunState, String) {
    match state {
        RunState::Open => (v1::RunState::Open, String::new()),
        RunState::Paused { reason } => (v1::RunState::Paused, reason.to_string()),
        RunState::Finished => (v1::RunState::Finished, String::new()),
        RunState::Cancelled { by } => (v1::RunState::Cancelled, by.map(made_way).unwrap_or_default()),
        RunState::Expired { paused } => (v1::RunState::Expired, expired(paused.as_ref())),
    }
}

/// Converts the state of a recipient.
pub fn recipient_state(state: RecipientState) -> v1::RecipientState {
    match state {
        RecipientState::Pending => v1::RecipientState::Pending,
        RecipientState::Claimed => v1::RecipientState::Claimed,
        RecipientState::Sent => v1::RecipientState::Sent,
        RecipientState::Assumed => v1::RecipientState::Assumed,
        RecipientState::Dead => v1::RecipientState::Dead,
        RecipientState::Suppressed => v1::RecipientState::Suppressed,
        RecipientState::Expired => v1::RecipientState::Expired,
        RecipientState::Cancelled => v1::RecipientState::Cancelled,
        RecipientState::InDoubt => v1::RecipientState::InDoubt,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_expired_in_a_pause_says_that_the_pause_is_not_over() {
        let shown_state = |paused: Option<&str>| {
            run_state(&RunState::Expired { paused: paused.map(|words| PauseReason::Operator(words.to_owned())) })
        };
        let expired = "finish_by: what was not sent by then expired";
        assert_eq!(shown_state(None), (v1::RunState::Expired, expired.to_owned()));
        let again = "and is paused again when recipients of it are requeued";
        assert_eq!(shown_state(Some("wrong price")).1, format!("{expired}; it was paused (wrong price), {again}"));
        assert_eq!(shown_state(Some("")).1, format!("{expired}; it was paused, {again}"));
    }
}
