//! `reveille template send-test`: sends one email through the cluster and prints its outcome.
//!
//! The email is a run of its own, because there is no other way to send (P3). The run expires when the command's time
//! limit ends. So the outcome is known at the end, unless the email is still in a dialogue with the relay.

use std::time::Duration;

use reveille_proto::admin::v1::{Audience, ExplainRequest, ExplainResponse, Recipient, ScheduleBody, SendTestRequest};
use tokio::time::{Instant, sleep};

use super::CommandContext;
use super::schedule::body;
use crate::cli::args::{Format, RecipientArgs, SendTestArgs};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::instant::duration_to_wire;
use crate::cli::view::send_test::{Outcome, SendTestView};
use crate::format;

/// Time limit of the email, unless `--timeout` sets another.
const WITHIN: Duration = Duration::from_secs(60);
/// Additional wait after the deadline: the ledger records the expiry, and a relay may still answer.
const GRACE: Duration = Duration::from_secs(10);
/// Interval between two reads.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// The run's only recipient.
const FIRST: &str = "#0";

/// Sends the email, waits for its outcome and prints it.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: SendTestArgs) -> Result<(), Stop> {
    let within = context.global.timeout.unwrap_or(WITHIN);
    let end = Instant::now() + within + GRACE;
    context.client.give(within + GRACE);
    let (dry_run, to) = (args.dry_run, args.to.clone());
    let schedule = Some(ScheduleBody {
        tenant: tenant.clone(),
        pool: args.pool.clone(),
        audience: Some(audience(&args)?),
        content: Some(body::changed_content(args.content)?),
        ..ScheduleBody::default()
    });
    let request = SendTestRequest {
        schedule,
        finish_within: Some(duration_to_wire(within.try_into().unwrap_or_default())),
        request_id: context.client.request_id().to_owned(),
        validate_only: dry_run,
    };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings);
    if dry_run {
        let view = SendTestView::checked(to, answer.opted_out);
        context.terminal.show(&view)?;
        // With `-o json`, stderr holds only the error object.
        context.checked(!answer.opted_out);
        return ended(&view);
    }
    let run = answer.run.unwrap_or_default().run;
    if context.terminal.format() == Format::Table {
        context.terminal.say(&format!("on its way as {run}"));
    }
    let mut waited = None;
    let view = loop {
        let view = SendTestView::from(story(context, &tenant, &run).await?);
        if view.outcome != Outcome::Waiting || Instant::now() + POLL_EVERY >= end {
            break view.after(waited);
        }
        waited = view.detail.or(waited);
        sleep(POLL_EVERY).await;
    };
    context.terminal.show(&view)?;
    ended(&view)
}

async fn story(context: &CommandContext<'_>, tenant: &str, run: &str) -> Result<ExplainResponse, Failure> {
    let (tenant, run, recipient) = (tenant.to_owned(), run.to_owned(), FIRST.to_owned());
    let request = ExplainRequest { tenant, run, recipient, stale: false };
    context.client.ask(RetrySafety::Read, request).await
}

/// Returns an audience of the one address, with the variables of the chosen row.
fn audience(args: &SendTestArgs) -> Result<Audience, Failure> {
    let alone = || Audience {
        recipients: vec![Recipient { address: args.to.clone(), values: Vec::new() }],
        ..Audience::default()
    };
    let Some(path) = &args.recipients else { return Ok(alone()) };
    let file = RecipientArgs {
        to: Vec::new(),
        recipients: Some(path.clone()),
        sealed: None,
        skip_bad_rows: args.skip_bad_rows,
    };
    let Audience { columns, recipients, .. } = body::recipients(&file)?.audience;
    let there = format::counted(recipients.len() as u64, "recipient");
    let place = usize::try_from(args.row).unwrap_or(usize::MAX) - 1;
    match recipients.into_iter().nth(place) {
        Some(row) => {
            let recipients = vec![Recipient { address: args.to.clone(), values: row.values }];
            Ok(Audience { columns, recipients, ..Audience::default() })
        }
        None => {
            let message = format!("there is no row {}: {there}", args.row);
            Err(Failure::usage("--row", message, "a row from 1 on"))
        }
    }
}

/// Returns the error and exit code for the outcome.
fn ended(view: &SendTestView) -> Result<(), Stop> {
    let run = view.run.as_deref().unwrap_or_default();
    let explain = format!("reveille explain {run} '{FIRST}'");
    let (exit, reason, next) = match view.outcome {
        Outcome::Accepted | Outcome::WouldSend => return Ok(()),
        Outcome::Refused => (Exit::General, "REFUSED", explain),
        Outcome::Expired | Outcome::Cancelled => (Exit::General, "NOT_SENT", explain),
        Outcome::Suppressed => {
            (Exit::Conflict, "OPTED_OUT", "another address: this one wants no mail of the tenant".to_owned())
        }
        Outcome::InDoubt | Outcome::Assumed => {
            (Exit::TimedOut, "IN_DOUBT", format!("reveille in-doubt show {run} '{FIRST}'"))
        }
        Outcome::Waiting => (Exit::TimedOut, "TIMED_OUT", explain),
    };
    Err(Failure::new(exit, reason, view.sentence(), next).into())
}
