//! `reveille schedule create`: reads the files, sends the request, and prints the next instants.

use reveille_proto::admin::v1::{CreateScheduleRequest, CreateScheduleResponse};

use super::body::{at_line, body, recipients};
use crate::cli::commands::{CommandContext, CreateArgs, Stop, format};
use crate::cli::recipients::{self, Recipients};

/// Limit of duplicates that are named by their lines; the rest is only counted.
const DUPLICATES_SHOWN: usize = 5;

/// Creates the schedule.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: CreateArgs) -> Result<(), Stop> {
    let recipients = recipients(&args.recipients)?;
    let (given, dry_run) = (args.recipients.clone(), args.dry_run);
    let schedule = Some(body(tenant, args, &recipients)?);
    let request_id = context.client.request_id().to_owned();
    let request = CreateScheduleRequest { schedule, request_id, validate_only: dry_run };
    let answer = context.change(request).await.map_err(|failure| at_line(failure, &given, &recipients))?;
    print_notes(context, &recipients, &answer, dry_run);
    context.terminal.answer(&answer, answer.schedule.as_ref())
}

fn print_notes(context: &CommandContext<'_>, recipients: &Recipients, answer: &CreateScheduleResponse, dry_run: bool) {
    if let Some(unusable) = recipients::unusable(&recipients.audience.columns) {
        context.terminal.say(&format!("warning: {unusable}"));
    }
    for bad in &recipients.bad {
        context.terminal.say(&format!("left out: {bad}"));
    }
    if !answer.duplicates.is_empty() {
        let count = format::counted(answer.duplicates.len() as u64, "duplicate");
        let line = |place: u32| recipients.lines.get(place as usize).copied().unwrap_or_default();
        let named = answer.duplicates.iter().take(DUPLICATES_SHOWN);
        let mut named: Vec<String> =
            named.map(|one| format!("line {} repeats line {}", line(one.recipient), line(one.same_as))).collect();
        named.extend((answer.duplicates.len() > DUPLICATES_SHOWN).then(|| "and others".to_owned()));
        let named = named.join(", ");
        context.terminal.say(&format!("{count} left out, as each address gets one email a run: {named}"));
    }
    context.warn(&answer.warnings, None);
    context.terminal.say(match (dry_run, answer.created) {
        (true, _) => "checked; nothing was changed",
        (false, true) => "created",
        (false, false) => "exists already with the same body; nothing was changed",
    });
}
