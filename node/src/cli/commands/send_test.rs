//! `reveille template send-test`: sends one email through the cluster and prints its outcome.
//!
//! The email is a run of its own, because there is no other way to send (P3). The run expires after `--finish-within`.
//! So the outcome is known at the end, unless the email is still in a dialogue with the relay.

use std::path::Path;
use std::time::Duration;

use reveille_proto::admin::v1::{Audience, ExplainRequest, ExplainResponse, Recipient, ScheduleBody, SendTestRequest};
use tokio::time::{Instant, sleep};

use super::schedule::body;
use super::{CommandContext, Exit, Failure, RecipientArgs, SendTestArgs, Stop, duration_to_wire, format, input};
use crate::cli::manifest::tree::{self, Fault, Node, Shape};
use crate::cli::view::send_test::{SendTestOutcome, SendTestView};

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
    let content = if name.is_none() { Some(body::changed_content(content)?) } else { None };
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
        let view = SendTestView::checked(to, answer.opted_out);
        context.terminal.show(&view)?;
        // With `-o json`, stderr holds only the error object.
        context.checked(!answer.opted_out);
        return ended(&view);
    }
    let run = answer.run.unwrap_or_default().run;
    context.terminal.remark(&format!("on its way as {run}"));
    let mut waited = None;
    let view = loop {
        let view = SendTestView::from(history(context, &tenant, &run).await?);
        if view.outcome != SendTestOutcome::Waiting || Instant::now() + POLL_EVERY >= end {
            break view.after(waited);
        }
        waited = view.detail.or(waited);
        sleep(POLL_EVERY).await;
    };
    context.terminal.show(&view)?;
    ended(&view)
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

/// Returns the error and exit code for the outcome.
fn ended(view: &SendTestView) -> Result<(), Stop> {
    let run = view.run.as_deref().unwrap_or_default();
    let explain = format!("reveille explain {run} '{FIRST}'");
    let (exit, reason, next) = match view.outcome {
        SendTestOutcome::Accepted | SendTestOutcome::WouldSend => return Ok(()),
        SendTestOutcome::Refused => (Exit::General, "REFUSED", explain),
        SendTestOutcome::Expired | SendTestOutcome::Cancelled => (Exit::General, "NOT_SENT", explain),
        SendTestOutcome::Suppressed => {
            (Exit::Conflict, "OPTED_OUT", "another address: this one wants no mail of the tenant".to_owned())
        }
        SendTestOutcome::InDoubt | SendTestOutcome::Assumed => {
            (Exit::TimedOut, "IN_DOUBT", format!("reveille in-doubt show {run} '{FIRST}'"))
        }
        SendTestOutcome::Waiting => (Exit::TimedOut, "TIMED_OUT", explain),
    };
    Err(Failure::new(exit, reason, view.sentence(), next).into())
}
