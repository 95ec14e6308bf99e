//! `reveille schedule backfill`: counts the occurrences that would open, asks for confirmation, and opens them.

use clap::Args;
use jiff::Timestamp;
use reveille_proto::admin::v1::{BackfillScheduleRequest, BackfillScheduleResponse};

use crate::cli::commands::{Answer, CommandContext, Failure, Stop, format, to_wire};
use crate::cli::instant::{parse_instant, text};
use crate::cli::next_step;
use crate::cli::view::some;

/// `schedule backfill`.
#[derive(Debug, Args)]
pub struct BackfillArgs {
    /// Its name
    pub name: String,
    /// From this instant on
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub start_time: Timestamp,
    /// Up to this instant; at most as far as the schedule has come
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub end_time: Timestamp,
    /// Occurrences at most, oldest first [default: 1000, and what is left is an error]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub max: Option<u32>,
    /// Count what would open, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Limit of occurrences that one command opens, if `--max` does not give one.
const OCCURRENCES_MAX: u32 = 1_000;

/// Opens the occurrences, or only counts them with `--dry-run`.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: BackfillArgs) -> Result<(), Stop> {
    let of_tenant = next_step::tenant_flag(&tenant);
    let request = BackfillScheduleRequest {
        tenant,
        name: args.name.clone(),
        start_time: Some(to_wire(args.start_time)),
        end_time: Some(to_wire(args.end_time)),
        max: args.max.unwrap_or(OCCURRENCES_MAX),
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
    };
    let preview_request = BackfillScheduleRequest { validate_only: true, ..request.clone() };
    let preview = context.read(preview_request).await?;
    if args.dry_run {
        return report(context, &args, &of_tenant, preview);
    }
    if preview.opened > 0 && preview.first_run.is_empty() {
        context.confirm(&format!("{}. Open them now?", missing(&args, &preview))).await?;
    }
    let answer = context.change(request).await?;
    report(context, &args, &of_tenant, answer)
}

/// Returns what a backfill would open, in words.
fn missing(args: &BackfillArgs, preview: &BackfillScheduleResponse) -> String {
    let never = format::counted((preview.opened + preview.inside_gap).into(), "occurrence");
    let mut rest = format!("{} opened before", format::count(preview.opened_before.into()));
    if preview.inside_gap > 0 {
        rest += &format!("; {} inside the min gap stay closed", format::count(preview.inside_gap.into()));
    }
    format!("{never} of {} between {} and {} never opened ({rest})", args.name, args.start_time, args.end_time)
}

/// Prints what was opened, or would be. Occurrences that remain are an error, unless `--max` limited the number.
fn report(
    context: &CommandContext<'_>,
    args: &BackfillArgs,
    of_tenant: &str,
    answer: BackfillScheduleResponse,
) -> Result<(), Stop> {
    let rest = text(answer.rest_time.as_ref());
    context.terminal.show(&Answer::new(&answer, args.name.as_str(), sentence(&answer)))?;
    let Some(rest) = rest else { return Ok(()) };
    let next =
        format!("reveille schedule backfill {} --start-time {rest} --end-time {}{of_tenant}", args.name, args.end_time);
    if args.max.is_some() {
        // The user chose the number with `--max`, so a remainder is no error.
        context.terminal.say(&format!("next: {next}"));
        return Ok(());
    }
    let message = format!("only the first {} were examined", format::counted(OCCURRENCES_MAX.into(), "occurrence"));
    Err(Failure::partly(message, next).into())
}

/// Returns in words which occurrences a backfill opened, or would open.
fn sentence(answer: &BackfillScheduleResponse) -> String {
    let mut said = format::counted(answer.opened.into(), "occurrence");
    if let (Some(first), Some(last)) = (&answer.first, &answer.last) {
        said = format!("{said}, {} to {}", first.local, last.local);
    }
    let said = match (some(&answer.first_run), some(&answer.last_run)) {
        (Some(first), Some(last)) => format!("{said}, opened as {first} to {last}"),
        _ => format!("{said}; {} had opened before", answer.opened_before),
    };
    let said = match answer.inside_gap {
        0 => said,
        inside => {
            let inside = format::count(inside.into());
            format!("{said}; {inside} inside the min gap, where no recipient would get an email")
        }
    };
    match text(answer.rest_time.as_ref()) {
        Some(rest) => format!("{said}; what comes from {rest} on is not among them"),
        None => said,
    }
}
