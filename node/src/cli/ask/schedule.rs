//! Implements `reveille schedule …` without `backfill`, `create`, `update` and `preview`.

use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient as Service;
use reveille_proto::admin::v1::{
    self, DeleteScheduleRequest, GetScheduleRequest, ListScheduleHistoryRequest, ListSchedulesRequest,
    PauseScheduleRequest, ResumeScheduleRequest, ScheduleState, TriggerScheduleRequest,
};

use super::imported::warn_of_placeholder;
use super::schedule_reads::{NO_BODY, get, older, page};
use super::{CHECKED, CommandContext, Page, Seen, apply, backfill, create, preview, several, update};
use crate::cli::args::{ScheduleArgs, ScheduleCommand, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::import::plan::LABEL;
use crate::cli::manifest::export;
use crate::cli::view::View;
use crate::cli::view::history::HistoryView;
use crate::cli::view::run::TriggerView;
use crate::cli::view::schedule::{DeletedView, LabelledView, ResumeView, ScheduleView};
use crate::cli::word::name as name_of;
use crate::format;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: ScheduleArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        ScheduleCommand::Create(args) => Box::pin(create::run(context, tenant, *args)).await,
        ScheduleCommand::Preview(args) => preview::run(context, &tenant, &args),
        ScheduleCommand::List { paging, labels, state } => {
            let question = ListSchedulesRequest {
                tenant,
                states: state.iter().map(|word| state_of(word)).collect(),
                stale: context.stale,
                selector: labels.selector.unwrap_or_default(),
                ..ListSchedulesRequest::default()
            };
            let page = |page_size, page_token| {
                page(context, ListSchedulesRequest { page_size, page_token, ..question.clone() })
            };
            if question.selector.is_empty() {
                return context.list(paging, page).await;
            }
            let labelled = async |page_size, page_token| Ok(page(page_size, page_token).await?.map(LabelledView));
            context.list(paging, labelled).await
        }
        ScheduleCommand::Show { name, manifest: true, .. } => manifest(context, tenant, name).await,
        ScheduleCommand::Show { name, watch, .. } => show(context, tenant, name, watch).await,
        ScheduleCommand::Apply(what) => Box::pin(apply::run(context, &tenant, &what)).await,
        ScheduleCommand::Diff(what) => Box::pin(apply::diff(context, &tenant, &what)).await,
        ScheduleCommand::Update(args) => Box::pin(update::run(context, tenant, *args)).await,
        ScheduleCommand::Pause { name, labels, reason, dry_run } => match (name, labels.selector) {
            (_, Some(selector)) => {
                Box::pin(several::run(context, tenant, selector, several::Act::Pause(reason), dry_run)).await
            }
            (name, None) => pause(context, tenant, name.unwrap_or_default(), reason, dry_run).await,
        },
        ScheduleCommand::Resume { name, labels, dry_run } => match (name, labels.selector) {
            (_, Some(selector)) => {
                Box::pin(several::run(context, tenant, selector, several::Act::Resume, dry_run)).await
            }
            (name, None) => resume(context, tenant, name.unwrap_or_default(), dry_run).await,
        },
        ScheduleCommand::Trigger { name, dry_run } => trigger(context, tenant, name, dry_run).await,
        ScheduleCommand::Backfill(args) => backfill::run(context, tenant, args).await,
        ScheduleCommand::Delete { name, dry_run } => delete(context, tenant, name, dry_run).await,
        ScheduleCommand::History { name, paging } => {
            context.list(paging, |size, token| history(context, &tenant, &name, size, token)).await
        }
    }
}

fn state_of(word: &str) -> i32 {
    ScheduleState::from_str_name(&name_of("SCHEDULE_STATE_", word)).unwrap_or_default().into()
}

async fn show(context: &CommandContext<'_>, tenant: String, name: String, watch: Watch) -> Result<(), Stop> {
    let question = GetScheduleRequest { tenant, name, stale: context.stale, with_body: false };
    let fetch = async || {
        let answer = get(context, question.clone()).await?;
        Ok(Seen::of(ScheduleView::from(answer.schedule.unwrap_or_default()), answer.freshness))
    };
    context.one(watch, fetch).await
}

async fn manifest(context: &CommandContext<'_>, tenant: String, name: String) -> Result<(), Stop> {
    let question = GetScheduleRequest { tenant, name, stale: context.stale, with_body: true };
    let answer = get(context, question).await?;
    context.note(answer.freshness.as_ref());
    let body = answer.body.ok_or_else(|| older(NO_BODY))?;
    context.terminal.manifest(&body.name, &export::schedule(&body))
}

async fn pause(
    context: &CommandContext<'_>,
    tenant: String,
    name: String,
    reason: String,
    dry_run: bool,
) -> Result<(), Stop> {
    let question = PauseScheduleRequest { tenant, name, reason, validate_only: dry_run };
    let call = |channel, question| async move { Service::new(channel).pause_schedule(question).await };
    let answer = context.client.ask(RetrySafety::Repeatable, question, call).await?;
    context.terminal.show(&ScheduleView::from(answer.schedule.unwrap_or_default()))?;
    context.checked(dry_run);
    Ok(())
}

/// Resumes a schedule. The user first confirms what was missed; the etag makes sure that it has not changed since.
async fn resume(context: &CommandContext<'_>, tenant: String, name: String, dry_run: bool) -> Result<(), Stop> {
    let call = |channel, question| async move { Service::new(channel).resume_schedule(question).await };
    let preview_request = ResumeScheduleRequest { tenant, name, etag: String::new(), validate_only: true };
    let plan = context.client.ask(RetrySafety::Read, preview_request.clone(), call).await?;
    let schedule = plan.schedule.clone().unwrap_or_default();
    let is_unwritten = warn_of_placeholder(context, &preview_request.tenant, &schedule).await?;
    let view = ResumeView::from(plan);
    let words = missed(&view, &schedule);
    if dry_run {
        context.terminal.say(&words);
        return context.terminal.show(&view);
    }
    if view.opens_count > 0 || is_unwritten {
        let unwritten = if is_unwritten { "It would send the placeholder of its import; " } else { "" };
        context.terminal.confirm(&format!("{unwritten}{words}. Resume?"))?;
    }
    let etag = schedule.etag;
    let question = ResumeScheduleRequest { etag, validate_only: false, ..preview_request };
    let resumed = context.client.ask(RetrySafety::Repeatable, question, call).await?;
    context.terminal.show(&ResumeView::from(resumed))
}

/// Returns in words what a resume does about the instants missed during the pause.
fn missed(view: &ResumeView, schedule: &v1::Schedule) -> String {
    let opens = format::counted(view.opens_count.into(), "run");
    let verb = if view.opens_count == 1 { "opens" } else { "open" };
    let mut words = format!("{opens} {verb} at once for what {} missed while it was paused", schedule.name);
    if view.explained_count > 0 {
        let skipped = format::counted(view.explained_count.into(), "missed instant");
        words += &format!("; {skipped} will not open, and the history says why");
    }
    if view.opens_count > 0 && schedule.labels.contains_key(LABEL) {
        let name = &schedule.name;
        words += &format!(
            "; it was imported, and cron may have sent that already: nothing opens after \
             `reveille schedule update {name} --catch-up none`"
        );
    }
    words
}

async fn trigger(context: &CommandContext<'_>, tenant: String, name: String, dry_run: bool) -> Result<(), Stop> {
    let request_id = context.client.request_id().to_owned();
    let question = TriggerScheduleRequest { tenant, name, request_id, validate_only: dry_run };
    let call = |channel, question| async move { Service::new(channel).trigger_schedule(question).await };
    let answer = context.change(question, call).await?;
    for warning in &answer.warnings {
        context.terminal.say(&format!("warning: {warning}"));
    }
    let view = TriggerView::from(answer);
    let next = format!("next: reveille run watch {}", view.name());
    context.terminal.show(&view)?;
    context.terminal.say(if dry_run { CHECKED } else { &next });
    Ok(())
}

async fn delete(context: &CommandContext<'_>, tenant: String, name: String, dry_run: bool) -> Result<(), Stop> {
    if !dry_run {
        context.terminal.confirm(&format!("Delete schedule {name}? It never fires again; open runs go on."))?;
    }
    let question = DeleteScheduleRequest { tenant, name: name.clone(), validate_only: dry_run };
    let call = |channel, question| async move { Service::new(channel).delete_schedule(question).await };
    let nature = if dry_run { RetrySafety::Read } else { RetrySafety::Once };
    let answer = context.client.ask(nature, question, call).await?;
    context.terminal.show(&DeletedView { name, index: answer.index, open_runs: answer.open_runs, dry_run })?;
    context.checked(dry_run);
    Ok(())
}

async fn history(
    context: &CommandContext<'_>,
    tenant: &str,
    name: &str,
    page_size: i32,
    page_token: String,
) -> Result<Page<HistoryView>, Failure> {
    let (tenant, name) = (tenant.to_owned(), name.to_owned());
    let question = ListScheduleHistoryRequest { tenant, name, page_size, page_token, stale: context.stale };
    let call = |channel, question| async move { Service::new(channel).list_schedule_history(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.entries.into_iter().map(HistoryView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}
