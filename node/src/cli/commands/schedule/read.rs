//! `reveille schedule list`, and the reads of schedules that other commands share.

use reveille_proto::admin::v1::{ListSchedulesRequest, Schedule, ScheduleState};

use crate::cli::commands::{CommandContext, Failure, ListPage, Listing, Paging, Stop};
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

/// Reads one page of the schedules.
pub async fn page(context: &CommandContext<'_>, request: ListSchedulesRequest) -> Result<ListPage<Schedule>, Failure> {
    let selector = request.selector.clone();
    let answer = context.read(request).await?;
    heeded(&selector, &answer.selector)?;
    Ok(ListSchedulesRequest::page(answer))
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
