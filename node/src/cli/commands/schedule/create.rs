//! `reveille schedule create`: reads the files, sends the request, and prints the next instants.

use clap::{ArgGroup, Args};
use reveille_proto::admin::v1::{CreateScheduleRequest, CreateScheduleResponse, ScheduleBody};

use super::body::{at_line, content_or_template, labels, recipients, say_left_out};
use crate::cli::args::labels::parse_label;
use crate::cli::args::when;
use crate::cli::commands::{
    CHECKED, CommandContext, ContentOrTemplateArgs, Failure, PolicyArgs, RecipientArgs, SpanArgs, Stop, WhenArgs,
    format, to_wire,
};
use crate::cli::recipients::Recipients;

/// `schedule create`.
#[derive(Clone, Debug, Args)]
#[command(groups = when::needed(), group = ArgGroup::new("audience-needed").required(true).args(["to", "recipients", "sealed"]))]
pub struct CreateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// A label, by which schedules are grouped and chosen (`-l`); may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// Create it paused
    #[arg(long)]
    pub paused: bool,
    /// With --paused: why
    #[arg(long, requires = "paused", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Check everything, print the instants, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: String,
    #[command(flatten)]
    pub span: SpanArgs,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    #[command(flatten)]
    pub content: ContentOrTemplateArgs,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

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
    say_left_out(context, recipients);
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
        (true, _) => CHECKED,
        (false, true) => "created",
        (false, false) => "exists already with the same body; nothing was changed",
    });
}

/// Builds the body that the flags describe; reads the content's files.
fn body(tenant: String, args: CreateArgs, recipients: &Recipients) -> Result<ScheduleBody, Failure> {
    let labels = labels(args.labels)?;
    let (content, template) = content_or_template(args.content)?;
    Ok(ScheduleBody {
        tenant,
        name: args.name,
        timing: Some(args.when.to_wire()),
        zone: args.zone,
        start_time: args.span.start_time.map(to_wire),
        end_time: args.span.end_time.map(to_wire),
        max_runs: args.span.max_runs,
        policies: Some(args.policies.to_wire()),
        pool: args.pool,
        priority: args.priority.into(),
        paused: args.paused.then_some(args.reason),
        content,
        audience: Some(recipients.audience.clone()),
        labels,
        template,
    })
}
