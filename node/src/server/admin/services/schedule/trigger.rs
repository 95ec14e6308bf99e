//! Triggers a schedule: opens one run now, to the schedule's recipients or to those that the request brings.

use reveille_ledger::ScheduleState;
use reveille_ledger::command::{Command, Trigger};
use reveille_ledger::content::Content;
use reveille_ledger::ids::OccurrenceName;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CancelledRuns, CommandOutcome};
use reveille_proto::admin::v1::{self, Run, RunCause, TriggerScheduleRequest, TriggerScheduleResponse, Warning};

use super::Found;
use super::create;
use crate::server::admin::archive::{shown_or_lost, unless_lost};
use crate::server::admin::validate::{self, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Opens the run. With `validate_only` it returns the run that would open.
pub async fn trigger(
    admin: &Admin,
    request: TriggerScheduleRequest,
    call: &Call,
) -> ApiResult<TriggerScheduleResponse> {
    let TriggerScheduleRequest { tenant, name, request_id, validate_only, audience, key_rule } = request;
    let mut fields = Fields::default();
    let request = fields.request_id(&request_id);
    if request.is_none() {
        fields.refuse("request_id", "is missing; it names the run, so that asking again opens no second one");
    }
    let rule = validate::key_rule(&mut fields, key_rule);
    let request = fields.done(request)?;
    let found = admin.find_schedule((&tenant, &name), false, call).await?;
    let limits = admin.limits();
    let of_list = |fault: ApiError| fault.rename_fields(validate::without_schedule);
    let list = match audience {
        Some(audience) => {
            let checked = admin.blocking(move |_| validate::list_of_trigger(audience, limits)).await?;
            Some(checked.map_err(of_list)?)
        }
        None => None,
    };
    let duplicates = list.as_ref().map(|list| list.duplicates.clone()).unwrap_or_default();
    let audience = list.as_ref().map(|list| validate::listed(list.to.clone())).transpose().map_err(of_list)?;
    let trigger = Trigger { schedule: found.id, request, audience, rule };
    let known = admin.context.replica.read(|ledger| ledger.check_trigger_repeat(&trigger));
    let known = known.map_err(|refusal| error_texts::refused(&refusal))?;
    // Not checked for a repeat, which gets the first answer. An edit may change the content between this check and the
    // opening of the run. A recipient whose values then do not fit is a dead letter.
    if let Some(list) = list.filter(|_| known.is_none()) {
        let content = content_of(admin, &found)?;
        let fits = admin.blocking(move |_| validate::list_fits(&content, &list, limits)).await?;
        fits.map_err(of_list)?;
    }
    if validate_only {
        admin.not_of_a_campaign(found.id)?;
        return match known {
            Some(run) => {
                let run = shown_or_lost(run, admin.show_run(run).await)?;
                Ok(TriggerScheduleResponse { duplicates, ..response(run, Vec::new(), &CancelledRuns::default(), true) })
            }
            None => Ok(TriggerScheduleResponse { duplicates, ..would_open(admin, &found, &trigger)? }),
        };
    }
    let reply = admin.write(Command::Trigger(trigger), call).await?;
    let CommandOutcome::Run { run: opened, cancelled, is_repeat } = reply.outcome else {
        return Err(error_texts::broken(format!("a trigger was answered by {:?}", reply.outcome)));
    };
    // A repeated trigger names its run, which may be archived by now.
    let reading = admin.read_run(opened, |at| {
        let mut warnings = create::warnings(at.state, &found.schedule.settings.pool);
        warnings.extend(views::inside_gap(at.own, opened));
        (views::run_of(at.own, opened).ok_or_else(|| error_texts::no_run(opened)), warnings)
    });
    let (run, warnings) = unless_lost(reading.await)?.unwrap_or_else(|error| (Err(error), Vec::new()));
    let run = shown_or_lost(opened, run)?;
    Ok(TriggerScheduleResponse { duplicates, ..response(run, warnings, &cancelled, is_repeat) })
}

fn content_of(admin: &Admin, found: &Found) -> ApiResult<Content> {
    let content = found.schedule.content;
    let content = admin.context.replica.read(|ledger| ledger.blob(&content).and_then(Content::from_blob));
    content.ok_or_else(|| {
        error_texts::changed_meanwhile(format!("the content of {} was just changed: ask again", found.schedule.name))
    })
}

/// Returns the run that would open, or the refusal.
fn would_open(admin: &Admin, found: &Found, trigger: &Trigger) -> ApiResult<TriggerScheduleResponse> {
    let Found { id, schedule, now, .. } = found;
    let list = trigger.audience.as_ref();
    if let ScheduleState::Blocked { .. } = schedule.state {
        return Err(error_texts::refused(&CommandRefusal::NotActive(schedule.state.kind())));
    }
    let checked = admin.context.replica.read(|ledger| {
        // A list that is not stored is not compared with former runs.
        let may = ledger.may_trigger(*id, *now).and_then(|()| match list {
            Some(_) => Ok(()),
            None => ledger.check_gap_leaves_recipient(*id, *now, None),
        });
        may.map(|()| (create::warnings(ledger, &schedule.settings.pool), ledger.would_cancel(*id, *now)))
    });
    let (warnings, cancelled) = checked.map_err(|refusal| error_texts::refused(&refusal))?;
    let recipients = list.map_or(schedule.recipients, |list| list.recipients.len() as u32);
    let (settings, occurrence) = (&schedule.settings, OccurrenceName::Trigger(trigger.request.clone()).to_string());
    let run = views::run_to_open(&settings.tenant, occurrence, RunCause::Trigger, recipients, *now, &settings.policies);
    let run = Run { schedule: schedule.name.to_string(), ..run };
    Ok(response(run, warnings, &cancelled, false))
}

/// Builds the response to a trigger or to its dry run.
fn response(run: Run, warnings: Vec<Warning>, cancelled: &CancelledRuns, replayed: bool) -> TriggerScheduleResponse {
    let named = cancelled.runs.iter().map(|one| v1::CancelledRun {
        run: one.run.to_string(),
        cancelled: one.cancelled,
        claimed: one.claimed,
    });
    TriggerScheduleResponse {
        run: Some(run),
        warnings,
        cancelled: named.collect(),
        cancelled_more: cancelled.more,
        replayed,
        ..TriggerScheduleResponse::default()
    }
}
