//! Reads of schedules that several commands share, and checks for nodes that are older than the command.

use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient as Service;
use reveille_proto::admin::v1::{GetScheduleRequest, GetScheduleResponse, ListSchedulesRequest};

use super::{CommandContext, Page};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Failure;
use crate::cli::view::schedule::ScheduleView;

/// End of the message about an older node, which does not send bodies.
pub(super) const NO_BODY: &str = "it sent no body";

pub(super) async fn page(
    context: &CommandContext<'_>,
    question: ListSchedulesRequest,
) -> Result<Page<ScheduleView>, Failure> {
    let selector = question.selector.clone();
    let call = |channel, question| async move { Service::new(channel).list_schedules(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    heeded(&selector, &answer.selector)?;
    let rows = answer.schedules.into_iter().map(ScheduleView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

pub(super) async fn get(
    context: &CommandContext<'_>,
    question: GetScheduleRequest,
) -> Result<GetScheduleResponse, Failure> {
    let call = |channel, question| async move { Service::new(channel).get_schedule(question).await };
    context.client.ask(RetrySafety::Read, question, call).await
}

/// Fails if the node ignored the selector. An older node returns all rows, and does not echo the selector.
pub(super) fn heeded(asked: &str, answered: &str) -> Result<(), Failure> {
    if asked.is_empty() || !answered.is_empty() { Ok(()) } else { Err(older("it chooses nothing by labels")) }
}

/// Failure because the node is older than this command and lacks a feature.
pub(super) fn older(why: &str) -> Failure {
    let message = format!("the node is older than this command: {why}");
    Failure::general(message, "upgrade that node, or ask another with --endpoint")
}
