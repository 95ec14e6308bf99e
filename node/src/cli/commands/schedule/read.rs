//! `reveille schedule list`, `show` and `history`, and the reads of schedules that other commands share.

use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient as Service;
use reveille_proto::admin::v1::{
    GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest, ListSchedulesRequest, ScheduleState,
};

use crate::cli::args::{Paging, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::commands::{CommandContext, Page, Seen};
use crate::cli::failure::{Failure, Stop};
use crate::cli::manifest::export;
use crate::cli::view::history::HistoryView;
use crate::cli::view::schedule::{LabelledView, ScheduleView};
use crate::cli::word::name as name_of;

/// End of the message about an older node, which does not send bodies.
pub const NO_BODY: &str = "it sent no body";

pub(super) async fn list(
    context: &CommandContext<'_>,
    tenant: String,
    paging: Paging,
    selector: String,
    states: &[String],
) -> Result<(), Stop> {
    let states = states.iter().map(|word| state_of(word)).collect();
    let question =
        ListSchedulesRequest { tenant, states, stale: context.stale, selector, ..ListSchedulesRequest::default() };
    let page =
        |page_size, page_token| page(context, ListSchedulesRequest { page_size, page_token, ..question.clone() });
    if question.selector.is_empty() {
        return context.list(paging, page).await;
    }
    let labelled = async |page_size, page_token| Ok(page(page_size, page_token).await?.map(LabelledView));
    context.list(paging, labelled).await
}

fn state_of(word: &str) -> i32 {
    ScheduleState::from_str_name(&name_of("SCHEDULE_STATE_", word)).unwrap_or_default().into()
}

pub(super) async fn show(context: &CommandContext<'_>, tenant: String, name: String, watch: Watch) -> Result<(), Stop> {
    let question = GetScheduleRequest { tenant, name, stale: context.stale, with_body: false };
    let fetch = async || {
        let answer = get(context, question.clone()).await?;
        Ok(Seen::of(ScheduleView::from(answer.schedule.unwrap_or_default()), answer.freshness))
    };
    context.one(watch, fetch).await
}

pub(super) async fn manifest(context: &CommandContext<'_>, tenant: String, name: String) -> Result<(), Stop> {
    let question = GetScheduleRequest { tenant, name, stale: context.stale, with_body: true };
    let answer = get(context, question).await?;
    context.note(answer.freshness.as_ref());
    let body = answer.body.ok_or_else(|| older(NO_BODY))?;
    context.terminal.manifest(&body.name, &export::schedule(&body))
}

pub(super) async fn history(
    context: &CommandContext<'_>,
    tenant: &str,
    name: &str,
    paging: Paging,
) -> Result<(), Stop> {
    let page = async |page_size, page_token| {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let question = ListScheduleHistoryRequest { tenant, name, page_size, page_token, stale: context.stale };
        let call = |channel, question| async move { Service::new(channel).list_schedule_history(question).await };
        let answer = context.client.ask(RetrySafety::Read, question, call).await?;
        let rows = answer.entries.into_iter().map(HistoryView::from).collect();
        Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
    };
    context.list(paging, page).await
}

pub async fn page(context: &CommandContext<'_>, question: ListSchedulesRequest) -> Result<Page<ScheduleView>, Failure> {
    let selector = question.selector.clone();
    let call = |channel, question| async move { Service::new(channel).list_schedules(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    heeded(&selector, &answer.selector)?;
    let rows = answer.schedules.into_iter().map(ScheduleView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

pub async fn get(context: &CommandContext<'_>, question: GetScheduleRequest) -> Result<GetScheduleResponse, Failure> {
    let call = |channel, question| async move { Service::new(channel).get_schedule(question).await };
    context.client.ask(RetrySafety::Read, question, call).await
}

/// Fails if the node ignored the selector. An older node returns all rows, and does not echo the selector.
pub fn heeded(asked: &str, answered: &str) -> Result<(), Failure> {
    if asked.is_empty() || !answered.is_empty() { Ok(()) } else { Err(older("it chooses nothing by labels")) }
}

/// Failure because the node is older than this command and lacks a feature.
pub fn older(why: &str) -> Failure {
    let message = format!("the node is older than this command: {why}");
    Failure::general(message, "upgrade that node, or ask another with --endpoint")
}
