//! The reads of schedules that several commands share.

use reveille_proto::admin::v1::{ListSchedulesRequest, Schedule};

use crate::cli::commands::{CommandContext, Failure, ListPage, Listing};

/// Reads one page of the schedules.
pub async fn page(context: &CommandContext<'_>, request: ListSchedulesRequest) -> Result<ListPage<Schedule>, Failure> {
    let selector = request.selector.clone();
    let answer = context.read(request).await?;
    check_selector_was_applied(&selector, &answer.selector)?;
    Ok(ListSchedulesRequest::page(answer))
}

/// Fails if an older node ignored the selector: it answers with all rows, and does not echo the selector.
pub fn check_selector_was_applied(requested: &str, answered: &str) -> Result<(), Failure> {
    if requested.is_empty() || !answered.is_empty() { Ok(()) } else { Err(older("it chooses nothing by labels")) }
}

/// Failure because the node is older than this command and lacks a feature.
pub fn older(why: &str) -> Failure {
    let message = format!("the node is older than this command: {why}");
    Failure::general(message, "upgrade that node, or ask another with --endpoint")
}
