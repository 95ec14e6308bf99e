//! `reveille schedule pause`, `resume`, `trigger` and `delete` of one schedule.

use reveille_proto::admin::v1::{
    self, DeleteScheduleRequest, ResumeScheduleRequest, ResumeScheduleResponse, TriggerScheduleRequest,
};

use super::body;
use crate::cli::commands::imported::warn_of_placeholder;
use crate::cli::commands::{Answer, CHECKED, CommandContext, RecipientArgs, RetrySafety, Stop, View, format};
use crate::cli::import::plan::LABEL;
use crate::cli::next_step;
use crate::cli::view::schedule::deleted;

/// Resumes a schedule. The user first confirms what was missed; the etag makes sure that it has not changed since.
pub async fn resume(context: &CommandContext<'_>, request: ResumeScheduleRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let preview_request = ResumeScheduleRequest { validate_only: true, ..request };
    let plan = context.read(preview_request.clone()).await?;
    let schedule = plan.schedule.clone().unwrap_or_default();
    let is_unwritten = warn_of_placeholder(context, &preview_request.tenant, &schedule).await?;
    let words = missed(&plan, &schedule);
    if dry_run {
        context.terminal.say(&words);
        return context.terminal.answer(&plan, Some(&schedule));
    }
    if plan.opens_count > 0 || is_unwritten {
        let unwritten = if is_unwritten { "It would send the placeholder of its import; " } else { "" };
        context.confirm(&format!("{unwritten}{words}. Resume?")).await?;
    }
    let etag = schedule.etag;
    let request = ResumeScheduleRequest { etag, validate_only: false, ..preview_request };
    let resumed = context.change(request).await?;
    context.terminal.answer(&resumed, resumed.schedule.as_ref())
}

/// Returns in words what a resume does about the instants missed during the pause.
fn missed(plan: &ResumeScheduleResponse, schedule: &v1::Schedule) -> String {
    let opens = format::counted(plan.opens_count.into(), "run");
    let verb = if plan.opens_count == 1 { "opens" } else { "open" };
    let mut words = format!("{opens} {verb} at once for what {} missed while it was paused", schedule.name);
    if plan.explained_count > 0 {
        let skipped = format::counted(plan.explained_count.into(), "missed instant");
        words += &format!("; {skipped} will not open, and the history says why");
    }
    if plan.opens_count > 0 && schedule.labels.contains_key(LABEL) {
        let name = &schedule.name;
        words += &format!(
            "; it was imported, and cron may have sent that already: nothing opens after \
             `reveille schedule update {name} --catch-up none`"
        );
    }
    words
}

/// Opens a run. `recipients`: its own ones, if the flags name any, instead of those of the schedule.
pub async fn trigger(
    context: &CommandContext<'_>,
    request: TriggerScheduleRequest,
    recipients: &RecipientArgs,
) -> Result<(), Stop> {
    let (dry_run, tenant) = (request.validate_only, next_step::tenant_flag(&request.tenant));
    let read = if recipients.is_given() { Some(body::recipients(recipients)?) } else { None };
    let request = TriggerScheduleRequest { audience: read.as_ref().map(|read| read.audience.clone()), ..request };
    let answer = context.change(request).await.map_err(|failure| match &read {
        Some(read) => body::at_line(failure, recipients, read),
        None => failure,
    })?;
    read.iter().for_each(|read| body::say_left_out(context, read));
    context.warn(&answer.warnings, None);
    let next = format!("next: reveille run watch {}{tenant}", answer.name());
    context.terminal.show(&answer)?;
    if answer.replayed {
        context.terminal.say("an earlier call with this request id opened it; this one opened no other");
    }
    context.terminal.say(if dry_run { CHECKED } else { &next });
    Ok(())
}

pub async fn delete(context: &CommandContext<'_>, request: DeleteScheduleRequest) -> Result<(), Stop> {
    let (name, dry_run) = (request.name.clone(), request.validate_only);
    context.confirm_unless(dry_run, &format!("Delete schedule {name}? It never fires again; open runs go on.")).await?;
    let safety = if dry_run { RetrySafety::Read } else { RetrySafety::Once };
    let answer = context.client.ask(safety, request).await?;
    let words = deleted(&name, &answer, dry_run);
    context.terminal.show(&Answer::new(&answer, name, words))?;
    context.checked(dry_run);
    Ok(())
}
