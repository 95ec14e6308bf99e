//! Checks schedules of an earlier import: if they still match their line of the crontab, and if their placeholder text
//! was replaced.

use prost::Message as _;
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{self, GetScheduleRequest, ScheduleBody};

use super::schedule::read;
use super::{CommandContext, apply};
use crate::cli::failure::Failure;
use crate::cli::import::plan::{LABEL, PLACEHOLDER};
use crate::cli::view::import::Outcome;

/// Length of the mark, in hexadecimal characters of the hash.
const MARK_CHARACTERS: usize = 16;

/// Returns the body with a label that identifies the line that it was made from. The line number is not part of it,
/// because lines move.
pub fn marked(body: ScheduleBody) -> ScheduleBody {
    let placeless = ScheduleBody { paused: None, ..body.clone() };
    let mark = Hash::of(&placeless.encode_to_vec()).to_string().chars().take(MARK_CHARACTERS).collect();
    let mut body = body;
    body.labels.insert(LABEL.to_owned(), mark);
    body
}

/// Compares a body with the schedule that has its name. Returns the outcome for the line, and the reason.
pub async fn outcome_of_taken_name(
    context: &CommandContext<'_>,
    body: &ScheduleBody,
) -> Result<(Outcome, Option<String>), Failure> {
    let (answer, changes) = apply::compared(context, body).await?;
    let label = format!("labels.{LABEL}");
    let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
    let fields: Vec<&str> = fields.into_iter().filter(|field| ![label.as_str(), "labels"].contains(field)).collect();
    if fields.is_empty() {
        return Ok((Outcome::Unchanged, None));
    }
    let (mark, fields) = (answer.former_body.as_ref().and_then(|former| former.labels.get(LABEL)), fields.join(", "));
    Ok(match mark {
        Some(mark) if Some(mark) == body.labels.get(LABEL) => {
            (Outcome::Kept, Some(format!("edited since it was imported ({fields}): it is left as it is")))
        }
        Some(_) => {
            let what =
                format!("imported before, and the line or a flag says otherwise now ({fields}): it is left as it is");
            let next = format!("reveille schedule update {}, or delete it and import again", body.name);
            (Outcome::Failed, Some(format!("{what}; {next}")))
        }
        None => {
            let what = "a schedule has this name that was not imported: it is left as it is";
            (Outcome::Failed, Some(format!("{what}; --prefix makes another name")))
        }
    })
}

/// Warns if an imported schedule still has its placeholder text. Returns true if it has.
pub async fn warn_of_placeholder(
    context: &CommandContext<'_>,
    tenant: &str,
    of: &v1::Schedule,
) -> Result<bool, Failure> {
    if !of.labels.contains_key(LABEL) {
        return Ok(false);
    }
    let (tenant, name) = (tenant.to_owned(), of.name.clone());
    let request = GetScheduleRequest { tenant, name, stale: context.stale, with_body: true };
    let content = read::get(context, request).await?.body.and_then(|body| body.content).unwrap_or_default();
    let is_unwritten = content.text.is_some_and(|text| text.starts_with(PLACEHOLDER));
    if is_unwritten {
        let next = format!("reveille schedule update {} --text FILE", of.name);
        context
            .terminal
            .say(&format!("warning: schedule {} was imported and still has its placeholder text: {next}", of.name));
    }
    Ok(is_unwritten)
}
