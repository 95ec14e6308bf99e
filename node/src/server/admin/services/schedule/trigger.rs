//! Shows what a trigger would open, without opening it.

use reveille_ledger::Activity;
use reveille_ledger::ids::Nominal;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CancelledRuns;
use reveille_proto::admin::v1::{self, Run, RunCause, RunCounts, RunState, TriggerScheduleResponse};

use super::Found;
use super::create;
use crate::server::admin::{Admin, ApiResult, error_texts, views};

/// Returns the run that would open, or the refusal.
pub fn would_open(admin: &Admin, found: &Found, request: &str) -> ApiResult<TriggerScheduleResponse> {
    let Found { id, schedule, now, .. } = found;
    if let Activity::Blocked { .. } = schedule.activity {
        return Err(error_texts::refused(&CommandRefusal::NotActive(schedule.activity.kind())));
    }
    let checked = admin.context.replica.read(|ledger| {
        let may = ledger.may_trigger(*id, *now).and_then(|()| ledger.check_gap_leaves_recipient(*id, *now));
        may.map(|()| (create::warnings(ledger, &schedule.settings.pool), ledger.would_cancel(*id, *now)))
    });
    let (warnings, cancelled) = checked.map_err(|refusal| error_texts::refused(&refusal))?;
    let run = Run {
        tenant: schedule.settings.tenant.to_string(),
        schedule: schedule.name.to_string(),
        nominal: Nominal::Trigger(request.to_owned()).to_string(),
        cause: RunCause::Trigger.into(),
        state: RunState::Open.into(),
        audience: schedule.recipients,
        counts: Some(RunCounts { pending: schedule.recipients, ..RunCounts::default() }),
        due: Some(views::timestamp(*now)),
        finish_by: Some(views::timestamp(now.plus_ms(schedule.settings.policies.finish_by_ms))),
        ..Run::default()
    };
    Ok(response(run, warnings, &cancelled))
}

/// Builds the response to a trigger or to its dry run.
pub fn response(run: Run, warnings: Vec<String>, cancelled: &CancelledRuns) -> TriggerScheduleResponse {
    let named = cancelled.runs.iter().map(|one| v1::CancelledRun {
        run: one.run.to_string(),
        cancelled: one.cancelled,
        claimed: one.claimed,
    });
    TriggerScheduleResponse { run: Some(run), warnings, cancelled: named.collect(), cancelled_more: cancelled.more }
}
