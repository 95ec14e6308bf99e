//! `reveille template send-test`: sends one email through the cluster and prints its outcome.
//!
//! The email is a run of its own, because there is no other way to send (P3). The run expires after `--finish-within`.
//! So the outcome is known at the end, unless the email is still in a dialogue with the relay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    Audience, ExplainRequest, ExplainResponse, ExplainedEvent, ExplainedEventKind as Kind, Recipient, RecipientState,
    ScheduleBody, SendTestRequest,
};
use tokio::time::{Instant, sleep};

use super::follow::passes;
use super::schedule::body;
use super::{Answer, CommandContext, ContentArgs, Exit, Failure, RecipientArgs, Stop, duration_to_wire, format, input};
use crate::cli::args::content::{CONTENT_FLAGS, parse_address, parse_pair};
use crate::cli::instant::parse_duration;
use crate::cli::manifest::tree::{self, Fault, Node, Shape};
use crate::cli::wording;

/// `template send-test`.
#[derive(Debug, Args)]
pub struct SendTestArgs {
    /// A stored template: NAME, which is the newest version, or NAME@VERSION
    #[arg(conflicts_with_all = CONTENT_FLAGS)]
    pub name: Option<String>,
    /// The address that gets it
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub to: String,
    /// CSV whose row has the variables; its address gets nothing
    #[arg(long, value_name = "FILE.csv")]
    pub recipients: Option<PathBuf>,
    /// Which row of it, from 1
    #[arg(long, value_name = "N", default_value_t = 1, requires = "recipients", value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    /// Leave out rows that cannot be used
    #[arg(long, requires = "recipients")]
    pub skip_bad_rows: bool,
    /// The recipient's variables: YAML or JSON with a value for each name; replaces those of the row
    #[arg(long = "values", value_name = "FILE")]
    pub values_file: Option<PathBuf>,
    /// A variable of the recipient; may be repeated, and replaces those of the row and of the file
    #[arg(long = "value", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub values: Vec<(String, String)>,
    /// What is not sent this long after the call expires, from 1s to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1m")]
    pub finish_within: SignedDuration,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Check it with the cluster, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentArgs,
}

/// Wait after the deadline of the email, unless `--timeout` sets the end: the ledger records the expiry, and a relay may
/// still answer.
const GRACE: Duration = Duration::from_secs(10);
/// Interval between two reads.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// The run's only recipient.
const FIRST: &str = "#0";

/// Sends the email, waits for its outcome and prints it.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: SendTestArgs) -> Result<(), Stop> {
    let limit = context.global.timeout.unwrap_or(args.finish_within.unsigned_abs() + GRACE);
    let end = Instant::now() + limit;
    context.client.set_timeout(limit);
    let (dry_run, to) = (args.dry_run, args.to.clone());
    let audience = Some(audience(&args)?);
    let SendTestArgs { name, pool, content, finish_within, .. } = args;
    let content = if name.is_none() { Some(body::content(content)?) } else { None };
    let (tenant_name, template) = (tenant.clone(), name.unwrap_or_default());
    let schedule =
        Some(ScheduleBody { tenant: tenant_name, pool, audience, content, template, ..ScheduleBody::default() });
    let request = SendTestRequest {
        schedule,
        finish_within: Some(duration_to_wire(finish_within)),
        request_id: context.client.request_id().to_owned(),
        validate_only: dry_run,
    };
    let answer = context.change(request).await.map_err(named)?;
    context.warn(&answer.warnings, None);
    if dry_run {
        let words = if answer.opted_out { "has opted out" } else { "would get it" };
        context.terminal.show(&Answer::new(&answer, "", format!("{to} {words}")))?;
        // With `-o json`, stderr holds only the error object.
        context.checked(!answer.opted_out);
        return if answer.opted_out { Err(opted_out(&to).into()) } else { Ok(()) };
    }
    let run = answer.run.unwrap_or_default().run;
    context.terminal.remark(&format!("on its way as {run}"));
    let mut found = ExplainResponse { run: run.clone(), recipient: to, ..ExplainResponse::default() };
    let (mut why, mut is_lost) = ("nothing is known of it".to_owned(), false);
    loop {
        match history(context, &tenant, &run).await {
            Ok(history) => (found, is_lost) = (history, false),
            // The last read says what is known, and names the run.
            Err(failure) if passes(&failure) => {
                if !std::mem::replace(&mut is_lost, true) && Instant::now() < end {
                    context.terminal.say(&format!("{}; asking again", failure.message));
                }
            }
            Err(failure) => return Err(failure.into()),
        }
        // The history of an expired email no longer has what it waited for.
        why = reason(&found.events).unwrap_or(why);
        if !is_waiting(found.state()) || Instant::now() + POLL_EVERY >= end {
            break;
        }
        sleep(POLL_EVERY).await;
    }
    context.terminal.show(&found)?;
    ended(&found, &why)
}

async fn history(context: &CommandContext<'_>, tenant: &str, run: &str) -> Result<ExplainResponse, Failure> {
    let (tenant, run, recipient) = (tenant.to_owned(), run.to_owned(), FIRST.to_owned());
    let request = ExplainRequest { tenant, run, recipient, stale: false };
    context.read(request).await
}

/// Returns an audience of the one address. Its variables are those of the chosen row, of `--values`, and of
/// `--value`; a later one replaces a former one of the same name.
fn audience(args: &SendTestArgs) -> Result<Audience, Failure> {
    let mut pairs = row(args)?;
    let of_file = args.values_file.as_deref().map(values).transpose()?.unwrap_or_default();
    for (name, value) in of_file.into_iter().chain(args.values.iter().cloned()) {
        pairs.retain(|(known, _)| *known != name);
        pairs.push((name, value));
    }
    let (columns, values) = pairs.into_iter().unzip();
    let recipients = vec![Recipient { address: args.to.clone(), values }];
    Ok(Audience { columns, recipients, ..Audience::default() })
}

/// Names the template as this command does.
fn named(failure: Failure) -> Failure {
    const FIELD: &str = "schedule.template";
    let message = failure.message.replace(&format!("{FIELD}: "), "NAME: ");
    let field = failure.field.clone().map(|field| if field == FIELD { "NAME".to_owned() } else { field });
    Failure { message, field, ..failure }
}

/// Returns the variables of the chosen row, or none.
fn row(args: &SendTestArgs) -> Result<Vec<(String, String)>, Failure> {
    let Some(path) = &args.recipients else { return Ok(Vec::new()) };
    let (recipients, skip_bad_rows) = (Some(path.clone()), args.skip_bad_rows);
    let file = RecipientArgs { to: Vec::new(), recipients, sealed: None, skip_bad_rows };
    let Audience { columns, recipients, .. } = body::recipients(&file)?.audience;
    let there = format::counted(recipients.len() as u64, "recipient");
    let place = usize::try_from(args.row).unwrap_or(usize::MAX) - 1;
    let row = recipients
        .into_iter()
        .nth(place)
        .ok_or_else(|| Failure::usage("--row", format!("there is no row {}: {there}", args.row), "a row from 1 on"))?;
    Ok(columns.into_iter().zip(row.values).collect())
}

/// Reads the names and values of a YAML or JSON file.
fn values(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = input::text_file(path)?;
    let wrong = |fault: Fault| Failure::file(format!("{}:{}", path.display(), fault.line), fault.message);
    let mut documents = tree::read(&text).map_err(wrong)?;
    let (Some(Node { shape: Shape::Map(pairs), .. }), true) = (documents.pop(), documents.is_empty()) else {
        return Err(wrong(Fault::new(1, "it needs one line `NAME: VALUE` for each variable")));
    };
    let pair = |(name, node): (String, Node)| match node.shape {
        Shape::Text(value) | Shape::Plain(value) => Ok((name, value)),
        _ => Err(wrong(Fault::new(node.line, format!("the value of `{name}` is {}, not a text", node.noun())))),
    };
    pairs.into_iter().map(pair).collect()
}

/// Returns the details of the last event that says what became of the email, or why it waits.
fn reason(events: &[ExplainedEvent]) -> Option<String> {
    let tells = |event: &&ExplainedEvent| {
        !matches!(event.kind(), Kind::Opened | Kind::Claimed | Kind::Asked | Kind::CanaryPassed | Kind::Expired)
    };
    events.iter().rev().filter(tells).map(wording::explained).find(|words| !words.is_empty())
}

/// True if the recipient is not settled yet.
fn is_waiting(state: RecipientState) -> bool {
    matches!(state, RecipientState::Pending | RecipientState::Claimed | RecipientState::Unspecified)
}

/// Returns the error and exit code for the state of the email.
fn ended(found: &ExplainResponse, why: &str) -> Result<(), Stop> {
    use RecipientState::{Assumed, Cancelled, Claimed, Dead, Expired, InDoubt, Pending, Sent, Suppressed, Unspecified};
    let run = &found.run;
    let relay = found.events.iter().rev().map(|event| event.relay.as_str()).find(|relay| !relay.is_empty());
    let by = |word: &str| relay.map(|relay| format!(" {word} {relay}")).unwrap_or_default();
    let explain = format!("reveille explain {run} '{FIRST}'");
    let (exit, reason, message, next) = match found.state() {
        Sent => return Ok(()),
        Suppressed => return Err(opted_out(&found.recipient).into()),
        Dead => (Exit::General, "REFUSED", format!("refused{}: {why}", by("by")), explain),
        Expired => (Exit::General, "NOT_SENT", format!("it was not sent in time, and will not be ({why})"), explain),
        Cancelled => (Exit::General, "NOT_SENT", "not sent: its run was cancelled".to_owned(), explain),
        InDoubt | Assumed => {
            let message = format!("in doubt: it may have arrived{} ({why})", by("at"));
            (Exit::TimedOut, "IN_DOUBT", message, format!("reveille in-doubt show {run} '{FIRST}'"))
        }
        Pending | Claimed | Unspecified => {
            (Exit::TimedOut, "TIMED_OUT", format!("not known yet: it may still arrive ({why})"), explain)
        }
    };
    Err(Failure::new(exit, reason, message, next).into())
}

fn opted_out(recipient: &str) -> Failure {
    let message = format!("not sent: {recipient} has opted out");
    Failure::new(Exit::Conflict, "OPTED_OUT", message, "another address: this one wants no email of the tenant")
}
