//! `reveille template send-test`: sends one email through the cluster and prints its outcome.
//!
//! The email is a run of its own, because there is no other way to send (P3). The run expires after `--finish-within`.
//! So the outcome is known at the end, unless the email is still in a dialogue with the relay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    self, Audience, ExplainRequest, ExplainResponse, ExplainedEventKind as Kind, Recipient, RecipientState,
    ScheduleBody, SendTestRequest,
};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::follow::passes;
use super::schedule::body;
use super::{CommandContext, ContentArgs, Exit, Failure, RecipientArgs, Stop, View, duration_to_wire, format, input};
use crate::cli::args::content::{CONTENT_FLAGS, parse_address, parse_pair};
use crate::cli::instant::parse_duration;
use crate::cli::manifest::tree::{self, Fault, Node, Shape};
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::own_objects;
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
        let view = SendTestView::checked(to, answer.opted_out);
        context.terminal.show(&view)?;
        // With `-o json`, stderr holds only the error object.
        context.checked(!answer.opted_out);
        return ended(&view);
    }
    let run = answer.run.unwrap_or_default().run;
    context.terminal.remark(&format!("on its way as {run}"));
    let unread = ExplainResponse { run: run.clone(), recipient: to, ..ExplainResponse::default() };
    let (mut view, mut waited, mut is_lost) = (SendTestView::from(unread), None, false);
    loop {
        match history(context, &tenant, &run).await {
            Ok(history) => (view, is_lost) = (SendTestView::from(history), false),
            // The last read says what is known, and names the run.
            Err(failure) if passes(&failure) => {
                if !std::mem::replace(&mut is_lost, true) && Instant::now() < end {
                    context.terminal.say(&format!("{}; asking again", failure.message));
                }
            }
            Err(failure) => return Err(failure.into()),
        }
        if view.outcome != SendTestOutcome::Waiting || Instant::now() + POLL_EVERY >= end {
            break;
        }
        waited = view.detail.clone().or(waited);
        sleep(POLL_EVERY).await;
    }
    let view = view.after(waited);
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
            (Exit::Conflict, "OPTED_OUT", "another address: this one wants no email of the tenant".to_owned())
        }
        SendTestOutcome::InDoubt | SendTestOutcome::Assumed => {
            (Exit::TimedOut, "IN_DOUBT", format!("reveille in-doubt show {run} '{FIRST}'"))
        }
        SendTestOutcome::Waiting => (Exit::TimedOut, "TIMED_OUT", explain),
    };
    Err(Failure::new(exit, reason, view.sentence(), next).into())
}

/// Outcome of the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SendTestOutcome {
    /// A relay accepted the email.
    Accepted,
    /// A relay refused the email permanently, or it could not be composed.
    Refused,
    /// The email was handed off, and the relay's reply is unknown.
    InDoubt,
    /// The email was not sent in time and never will be.
    Expired,
    /// The address has opted out.
    Suppressed,
    /// The run was cancelled.
    Cancelled,
    /// The email was in doubt, and an operator decided to take it as sent.
    Assumed,
    /// The recipient is not settled yet.
    Waiting,
    /// The email was only checked, and can be sent.
    WouldSend,
}

/// One test email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SendTestView {
    /// Name of the run; null if the email was only checked.
    pub run: Option<String>,
    /// Address of the recipient.
    pub recipient: String,
    /// Outcome of the email.
    pub outcome: SendTestOutcome,
    /// The relay that accepted or refused the email, or did not reply.
    pub relay: Option<String>,
    /// Reply code of the relay.
    pub code: Option<u32>,
    /// Enhanced status code of the reply.
    pub enhanced: Option<String>,
    /// Text of the reply.
    pub text: Option<String>,
    /// The node of the event that decided the outcome.
    pub node: Option<String>,
    /// Why, if there is no reply that says it.
    pub detail: Option<String>,
    /// True if the email was only checked.
    pub dry_run: bool,
}

impl From<v1::ExplainResponse> for SendTestView {
    fn from(history: v1::ExplainResponse) -> SendTestView {
        let kept = |text: String| (!text.is_empty()).then_some(text);
        let outcome = match history.state() {
            RecipientState::Sent => SendTestOutcome::Accepted,
            RecipientState::Dead => SendTestOutcome::Refused,
            RecipientState::InDoubt => SendTestOutcome::InDoubt,
            RecipientState::Expired => SendTestOutcome::Expired,
            RecipientState::Suppressed => SendTestOutcome::Suppressed,
            RecipientState::Cancelled => SendTestOutcome::Cancelled,
            RecipientState::Assumed => SendTestOutcome::Assumed,
            RecipientState::Pending | RecipientState::Claimed | RecipientState::Unspecified => SendTestOutcome::Waiting,
        };
        // Kinds of the events that decide an outcome. For an email that was not sent in time: what it waited for.
        let decisive: &[Kind] = match outcome {
            SendTestOutcome::Accepted => &[Kind::Sent, Kind::SentAfterAll],
            SendTestOutcome::Refused => &[Kind::Refused, Kind::NotComposed, Kind::GivenUp],
            SendTestOutcome::InDoubt | SendTestOutcome::Assumed => &[Kind::InDoubt],
            SendTestOutcome::Expired | SendTestOutcome::Waiting | SendTestOutcome::WouldSend => {
                &[Kind::Waits, Kind::GivenBack, Kind::Refused]
            }
            SendTestOutcome::Suppressed => &[Kind::Suppressed, Kind::OptedOut],
            SendTestOutcome::Cancelled => &[Kind::Cancelled],
        };
        let event = history.events.iter().rev().find(|event| decisive.contains(&event.kind()));
        // A reply's event names its relay. For an email that was not accepted, an earlier event names it.
        let relay = history.events.iter().rev().find(|event| !event.relay.is_empty()).map(|event| event.relay.clone());
        // A waiting recipient may not have been tried yet, so its last event is no reason.
        let event = event
            .or(history.events.last().filter(|_| outcome != SendTestOutcome::Waiting))
            .cloned()
            .unwrap_or_default();
        let is_reply = event.code > 0;
        SendTestView {
            run: kept(history.run),
            recipient: history.recipient,
            outcome,
            relay,
            detail: kept(wording::explained(&event)).filter(|_| !is_reply),
            code: (event.code > 0).then_some(event.code),
            enhanced: kept(event.enhanced),
            text: kept(event.text).filter(|_| is_reply),
            node: kept(event.node),
            dry_run: false,
        }
    }
}

impl SendTestView {
    /// Creates the view of an email that was only checked.
    pub fn checked(recipient: String, opted_out: bool) -> SendTestView {
        let outcome = if opted_out { SendTestOutcome::Suppressed } else { SendTestOutcome::WouldSend };
        let (run, relay, code, enhanced, text, node, detail) = Default::default();
        SendTestView { run, recipient, outcome, relay, code, enhanced, text, node, detail, dry_run: true }
    }

    /// Adds what an expired email waited for before its end.
    pub fn after(self, waited: Option<String>) -> SendTestView {
        match self.outcome {
            SendTestOutcome::Expired => SendTestView { detail: waited.or(self.detail), ..self },
            _ => self,
        }
    }

    /// Returns the relay's reply as one text.
    fn answer(&self) -> Option<String> {
        let [enhanced, text] = [&self.enhanced, &self.text].map(|part| part.as_deref().unwrap_or_default());
        Some(wording::answer(self.code?, enhanced, text))
    }

    /// Returns the relay after `word`, or an empty text if it is unknown.
    fn by(&self, word: &str) -> String {
        self.relay.as_ref().map(|relay| format!("{word}{relay}")).unwrap_or_default()
    }

    /// Returns the outcome in one line.
    pub fn sentence(&self) -> String {
        let why = self.answer().or_else(|| self.detail.clone()).unwrap_or_else(|| "nothing is known of it".to_owned());
        match self.outcome {
            SendTestOutcome::Accepted => match &self.relay {
                Some(relay) => format!("{relay} took it: {why}"),
                None => format!("a relay took it: {why}"),
            },
            SendTestOutcome::Refused => format!("refused{}: {why}", self.by(" by ")),
            SendTestOutcome::InDoubt => format!("in doubt: it may have arrived{} ({why})", self.by(" at ")),
            SendTestOutcome::Assumed => format!("it was in doubt, and was taken as sent by decision ({why})"),
            SendTestOutcome::Expired => format!("it was not sent in time, and will not be ({why})"),
            SendTestOutcome::Suppressed => format!("not sent: {} has opted out", self.recipient),
            SendTestOutcome::Cancelled => "not sent: its run was cancelled".to_owned(),
            SendTestOutcome::WouldSend => "it would be sent".to_owned(),
            SendTestOutcome::Waiting => format!("not known yet: it may still arrive ({why})"),
        }
    }
}

own_objects!(SendTestView);

impl View for SendTestView {
    const NAME: &'static str = "run";

    fn text(&self, paint: bool) -> String {
        let tone = match self.outcome {
            SendTestOutcome::Accepted | SendTestOutcome::WouldSend => Tone::Good,
            SendTestOutcome::Waiting
            | SendTestOutcome::Suppressed
            | SendTestOutcome::Cancelled
            | SendTestOutcome::Assumed => Tone::Notable,
            SendTestOutcome::Refused | SendTestOutcome::InDoubt | SendTestOutcome::Expired => Tone::Bad,
        };
        let mut pairs =
            vec![("to", Cell::from(self.recipient.as_str())), ("outcome", Cell::toned(self.sentence(), tone))];
        if !self.dry_run {
            let (run, relay) = (self.run.as_deref(), self.relay.as_deref());
            pairs.extend(
                [("run", run), ("relay", relay), ("node", self.node.as_deref())]
                    .map(|(name, value)| (name, Cell::or_dash(value))),
            );
        }
        card(pairs, paint)
    }
}
