//! Builds the message of a run.

use reveille_ledger::canary::CanaryState;
use reveille_ledger::causes::PauseReason;
use reveille_ledger::command::OpeningCause;
use reveille_ledger::ids::{Nominal, RunId, Time};
use reveille_ledger::policy::Policies;
use reveille_ledger::{Ledger, MissingFile, RecipientCounts, RecipientState, Run, RunFile, RunState, RunSummary};
use reveille_proto::admin::v1;

use super::timestamp;
use crate::server::admin::enums::OnWire;

/// Builds the message of a run, or of its summary if its details are removed. Returns `None` if the ledger has neither.
pub fn run_of(ledger: &Ledger, id: RunId) -> Option<v1::Run> {
    let summary = summary(id, &ledger.summary_of(id)?);
    let Some(run) = ledger.run(id) else { return Some(summary) };
    let (canary, blocked) = (run.canary.map(canary), blocked(run));
    Some(v1::Run { audience: run.count, archived_index: None, canary, blocked, ..summary })
}

/// Returns the run that would open now, or at `due`.
pub fn run_to_open(
    tenant: &str,
    nominal: String,
    cause: v1::RunCause,
    recipients: u32,
    due: Time,
    policies: &Policies,
) -> v1::Run {
    v1::Run {
        tenant: tenant.to_owned(),
        nominal,
        cause: cause.into(),
        state: v1::RunState::Open.into(),
        audience: recipients,
        counts: Some(v1::RunCounts { pending: recipients, ..v1::RunCounts::default() }),
        due_time: Some(timestamp(due)),
        finish_by_time: Some(timestamp(due.plus_ms(policies.finish_by_ms))),
        ..v1::Run::default()
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

fn canary(CanaryState { recipients, bad_max, undecided, bad, verdict, .. }: CanaryState) -> v1::RunCanary {
    v1::RunCanary { recipients, undecided, bad, bad_max, verdict: verdict.wire().into() }
}

fn summary(id: RunId, summary: &RunSummary) -> v1::Run {
    let (state, reason) = run_state(&summary.state);
    v1::Run {
        run: id.to_string(),
        tenant: summary.tenant.to_string(),
        schedule: summary.name.to_string(),
        nominal: nominal(summary.cause, &summary.nominal),
        cause: summary.cause.wire().into(),
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
pub(super) fn nominal(cause: OpeningCause, nominal: &Nominal) -> String {
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
