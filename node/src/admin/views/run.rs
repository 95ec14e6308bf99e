//! A run as a message.

use reveille_ledger::command::Cause;
use reveille_ledger::ids::RunId;
use reveille_ledger::{Page, Run, RunState, Standing};
use reveille_proto::admin::v1;

use super::timestamp;

/// A run of a page.
pub fn run(id: RunId, page: &Page, run: &Run) -> v1::Run {
    let (state, reason) = run_state(&run.state);
    let count = |standing| run.counts.get(standing);
    v1::Run {
        run: id.to_string(),
        tenant: page.tenant.clone(),
        schedule: run.name.clone(),
        nominal: run.nominal.to_string(),
        cause: cause(run.cause).into(),
        state: state.into(),
        reason,
        audience: run.count,
        counts: Some(v1::RunCounts {
            pending: count(Standing::Pending),
            claimed: count(Standing::Claimed),
            sent: count(Standing::Sent),
            assumed: count(Standing::Assumed),
            dead: count(Standing::Dead),
            suppressed: count(Standing::Suppressed),
            expired: count(Standing::Expired),
            cancelled: count(Standing::Cancelled),
            in_doubt: count(Standing::InDoubt),
        }),
        opened_index: id.index,
        finished_index: run.finished_index,
        due: Some(timestamp(run.due)),
        opened_at: Some(timestamp(page.opened_at)),
        finish_by: Some(timestamp(run.finish_by)),
        known_duplicates: run.known_duplicates,
        resent: run.resent,
    }
}

fn cause(cause: Cause) -> v1::RunCause {
    match cause {
        Cause::Due => v1::RunCause::Due,
        Cause::CatchUp => v1::RunCause::CatchUp,
        Cause::Trigger => v1::RunCause::Trigger,
    }
}

/// What it does, and why where somebody said so.
pub fn run_state(state: &RunState) -> (v1::RunState, String) {
    match state {
        RunState::Open => (v1::RunState::Open, String::new()),
        RunState::Paused { reason } => (v1::RunState::Paused, reason.clone()),
        RunState::Finished => (v1::RunState::Finished, String::new()),
        RunState::Cancelled => (v1::RunState::Cancelled, String::new()),
        RunState::Expired => (v1::RunState::Expired, String::new()),
    }
}

/// Where a recipient stands.
pub fn recipient_state(standing: Standing) -> v1::RecipientState {
    match standing {
        Standing::Pending => v1::RecipientState::Pending,
        Standing::Claimed => v1::RecipientState::Claimed,
        Standing::Sent => v1::RecipientState::Sent,
        Standing::Assumed => v1::RecipientState::Assumed,
        Standing::Dead => v1::RecipientState::Dead,
        Standing::Suppressed => v1::RecipientState::Suppressed,
        Standing::Expired => v1::RecipientState::Expired,
        Standing::Cancelled => v1::RecipientState::Cancelled,
        Standing::InDoubt => v1::RecipientState::InDoubt,
    }
}
