//! `reveille schedule list`, `show` and `history`, and the reads of schedules that other commands share.

use reveille_proto::admin::v1::{
    GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest, ListSchedulesRequest, Schedule, ScheduleState,
};
use reveille_proto::{ListPage, Listing};

use crate::cli::args::{Paging, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::commands::{CommandContext, Seen};
use crate::cli::failure::{Failure, Stop};
use crate::cli::word::name as name_of;

pub(super) async fn list(
    context: &CommandContext<'_>,
    tenant: String,
    paging: Paging,
    selector: String,
    states: &[String],
) -> Result<(), Stop> {
    let states = states.iter().map(|word| state_of(word)).collect();
    let request = ListSchedulesRequest { tenant, states, selector, ..ListSchedulesRequest::default() };
    context.list(paging, |size, token| page(context, request.clone().at(context.stale, size, token))).await
}

fn state_of(word: &str) -> i32 {
    ScheduleState::from_str_name(&name_of("SCHEDULE_STATE_", word)).unwrap_or_default().into()
}

pub(super) async fn show(context: &CommandContext<'_>, tenant: String, name: String, watch: Watch) -> Result<(), Stop> {
    let request = GetScheduleRequest { tenant, name, stale: context.stale, with_body: false };
    let fetch = async || {
        let answer = get(context, request.clone()).await?;
        Ok(Seen::of(answer.schedule.unwrap_or_default(), answer.freshness))
    };
    context.one(watch, fetch).await
}

pub(super) async fn history(
    context: &CommandContext<'_>,
    tenant: String,
    name: String,
    paging: Paging,
) -> Result<(), Stop> {
    context.list_of(paging, ListScheduleHistoryRequest { tenant, name, ..Default::default() }).await
}

/// Reads one page of the schedules.
pub async fn page(context: &CommandContext<'_>, request: ListSchedulesRequest) -> Result<ListPage<Schedule>, Failure> {
    let selector = request.selector.clone();
    let answer = context.client.ask(RetrySafety::Read, request).await?;
    heeded(&selector, &answer.selector)?;
    Ok(ListSchedulesRequest::page(answer))
}

pub async fn get(context: &CommandContext<'_>, request: GetScheduleRequest) -> Result<GetScheduleResponse, Failure> {
    context.client.ask(RetrySafety::Read, request).await
}

/// Fails if the node ignored the selector. An older node returns all rows, and does not echo the selector.
pub fn heeded(requested: &str, answered: &str) -> Result<(), Failure> {
    if requested.is_empty() || !answered.is_empty() { Ok(()) } else { Err(older("it chooses nothing by labels")) }
}

/// Failure because the node is older than this command and lacks a feature.
pub fn older(why: &str) -> Failure {
    let message = format!("the node is older than this command: {why}");
    Failure::general(message, "upgrade that node, or ask another with --endpoint")
}
