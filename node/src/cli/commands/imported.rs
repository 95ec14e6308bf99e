//! Warns of schedules of an earlier import whose placeholder text was not replaced.

use reveille_proto::admin::v1::{GetScheduleRequest, Schedule};

use super::{CommandContext, Failure};
use crate::cli::import::plan::{LABEL, PLACEHOLDER};

/// Warns if an imported schedule still has its placeholder text. Returns true if it has.
pub async fn warn_of_placeholder(context: &CommandContext<'_>, tenant: &str, of: &Schedule) -> Result<bool, Failure> {
    if !of.labels.contains_key(LABEL) {
        return Ok(false);
    }
    let (tenant, name) = (tenant.to_owned(), of.name.clone());
    let request = GetScheduleRequest { tenant, name, stale: context.stale, with_body: true };
    let content = context.read(request).await?.body.and_then(|body| body.content).unwrap_or_default();
    let is_unwritten = content.text.is_some_and(|text| text.starts_with(PLACEHOLDER));
    if is_unwritten {
        let next = format!("reveille schedule update {} --text FILE", of.name);
        let what = format!("schedule {} was imported and still has its placeholder text", of.name);
        context.terminal.say(&format!("warning: {what}: {next}"));
    }
    Ok(is_unwritten)
}
