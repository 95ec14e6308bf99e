//! Implements `reveille run …` without `watch`, and `reveille explain`.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use reveille_proto::admin::v1::{
    CancelRunRequest, ExplainRequest, GetRunRequest, GetScheduleRequest, ListRelaysRequest, ListRunRecipientsRequest,
    ListRunsRequest, PauseRunRequest, RecipientState, ResumeRunRequest, Run, RunState,
};

use super::export::{ExportFormat, export};
use super::{
    CommandContext, EtagArgs, Failure, Format, OfTenant, Paging, RetrySafety, Seen, SelectorArgs, Stop, Watch, to_wire,
    watch,
};
use crate::cli::doctor;
use crate::cli::instant::parse_instant;
use crate::cli::view::barrier::sentence;
use crate::cli::view::run::would_cancel;
use crate::cli::word::values;

/// A run is named rINDEX.PLACE, or NAME@INSTANT by its schedule and nominal instant.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Runs, latest first
    #[command(after_long_help = "\
Examples:
  reveille run list
  reveille run list --schedule morning --state open,paused
  reveille run list --since-time 2026-03-08T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(long = "state", value_delimiter = ',', value_parser = ["open", "paused", "finished", "cancelled", "expired"])]
        states: Vec<String>,
        /// Only those that opened then or later
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        since_time: Option<Timestamp>,
        /// Only those that opened before then
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        until_time: Option<Timestamp>,
    },
    /// One run: the states of its recipients, and what it waits for
    #[command(
        after_long_help = "Examples:\n  reveille run show r1042.0\n  reveille run show morning@2026-03-08T09:00:00 -o json"
    )]
    Show {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// The recipients of a run, by number: state, last answer of a relay, attempts; also of an archived run
    ///
    /// With `-o csv` and `-o jsonl` all of them, page by page as they come; otherwise up to --limit. Addresses and
    /// texts need the role `pii`.
    #[command(after_long_help = "\
Examples:
  reveille run recipients r1042.0 --state dead,in_doubt
  reveille run recipients r1042.0 -o csv > recipients.csv
  reveille run recipients morning@2026-03-08T09:00:00 --state sent -o jsonl")]
    Recipients {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Only those in one of these states
        #[arg(
            long = "state",
            value_delimiter = ',',
            value_parser = [
                "pending", "claimed", "sent", "assumed", "dead", "suppressed", "expired", "cancelled", "in_doubt",
            ]
        )]
        states: Vec<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Follow a run until nothing of it is pending; one object a line with -o json
    #[command(after_long_help = "Examples:\n  reveille run watch r1042.0\n  reveille run watch r1042.0 --timeout 10m")]
    Watch {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
    },
    /// Stop a run; answers when it holds on every node
    ///
    /// After the answer none of its emails is handed over any more. Handoffs that were past the last check
    /// are named: they may still arrive.
    #[command(after_long_help = "Example:\n  reveille run pause r1042.0 --reason 'the wrong list'")]
    Pause {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Why; shown wherever the run is shown [default: none, or as it was paused before]
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Let a paused run go on
    #[command(after_long_help = "\
Examples:
  reveille run resume r1042.0
  reveille run resume r1042.0 --without-canary")]
    Resume {
        /// rINDEX.PLACE, or NAME@INSTANT
        #[arg(id = "name", value_name = "RUN")]
        run: String,
        /// Resume although the canary paused this run. An error if no canary paused it
        #[arg(long)]
        without_canary: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// Cancel what a run has not sent, for good; answers when it holds on every node
    #[command(after_long_help = "Example:\n  reveille run cancel r1042.0")]
    Cancel {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// `explain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille explain r1042.0 ann@example.com
  reveille explain morning@2026-03-08T09:00:00 '#17' -o json")]
pub struct ExplainArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// rINDEX.PLACE, or NAME@INSTANT
    pub run: String,
    /// Address, or '#' and the number in the run
    pub recipient: String,
    #[command(flatten)]
    pub watch: Watch,
}

/// Limit of relays read for a hint. A cluster with more relays gets no hint.
const RELAYS_LOOKED_AT: i32 = 100;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<RunCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        RunCommand::List { paging, schedule, labels, states, since_time, until_time } => {
            let states = values("RUN_STATE_", &states, RunState::from_str_name);
            let request = ListRunsRequest {
                tenant,
                schedule: schedule.unwrap_or_default(),
                states,
                selector: labels.selector.unwrap_or_default(),
                since_time: since_time.map(to_wire),
                until_time: until_time.map(to_wire),
                ..ListRunsRequest::default()
            };
            context.list_of(paging, request).await
        }
        RunCommand::Show { run, watch } => {
            let request = GetRunRequest { tenant, run, stale: context.stale };
            context.one(watch, async || show(context, request.clone()).await).await
        }
        RunCommand::Recipients { run, states, paging } => {
            let states = values("RECIPIENT_STATE_", &states, RecipientState::from_str_name);
            recipients(context, paging, ListRunRecipientsRequest { tenant, run, states, ..Default::default() }).await
        }
        RunCommand::Watch { run } => watch::run(context, tenant, run).await,
        RunCommand::Pause { run, reason } => pause(context, tenant, run, reason).await,
        RunCommand::Resume { run, without_canary, etag } => {
            resume(context, ResumeRunRequest { tenant, run, without_canary, etag: etag.to_wire() }).await
        }
        RunCommand::Cancel { run, dry_run } => {
            cancel(context, CancelRunRequest { tenant, run, validate_only: dry_run }).await
        }
    }
}

/// Implements `reveille explain`.
pub async fn explain(context: &CommandContext<'_>, args: ExplainArgs) -> Result<(), Stop> {
    let ExplainArgs { tenant, run, recipient, watch } = args;
    let request = ExplainRequest { tenant, run, recipient, stale: context.stale };
    context.show(watch, request, |mut answer| (answer.freshness.take(), Some(answer))).await
}

async fn recipients(
    context: &CommandContext<'_>,
    paging: Paging,
    request: ListRunRecipientsRequest,
) -> Result<(), Stop> {
    let format = match context.terminal.format() {
        Format::Csv => ExportFormat::Csv,
        Format::Jsonl => ExportFormat::Jsonl,
        Format::Table | Format::Json | Format::Yaml | Format::Name => {
            return context.list_of(paging, request).await;
        }
    };
    export(context, (None, format), "recipient", request).await
}

async fn show(context: &CommandContext<'_>, request: GetRunRequest) -> Result<Seen<Run>, Failure> {
    let answer = context.read(request).await?;
    let run = answer.run.unwrap_or_default();
    let waits =
        run.state() == RunState::Open && run.counts.is_some_and(|counts| counts.pending > 0 || counts.claimed > 0);
    let (tenant, schedule) = (run.tenant.clone(), run.schedule.clone());
    // With `-o json`, stderr holds only the error object.
    let hint = match waits && context.terminal.format() == Format::Table {
        true => hint(context, tenant, schedule).await,
        false => None,
    };
    Ok(Seen { view: run, freshness: answer.freshness, remarks: hint.into_iter().collect() })
}

/// Returns why a run waits, if no relay of its pool accepts email from the answering node. The run is already shown, so
/// failed reads are ignored.
async fn hint(context: &CommandContext<'_>, tenant: String, name: String) -> Option<String> {
    let request = GetScheduleRequest { tenant, name, stale: context.stale, with_body: false };
    let schedule = context.read(request).await.ok()?.schedule?;
    let request =
        ListRelaysRequest { page_size: RELAYS_LOOKED_AT, stale: context.stale, ..ListRelaysRequest::default() };
    let answer = context.read(request).await.ok()?;
    match answer.next_page_token.is_empty() {
        true => doctor::relay::why_pool_waits(&answer.relays, &schedule.pool),
        false => None,
    }
}

async fn pause(context: &CommandContext<'_>, tenant: String, run: String, reason: String) -> Result<(), Stop> {
    let request = PauseRunRequest { tenant, run, reason };
    let answer = context.change(request).await?;
    context.terminal.say(&format!("paused: {}", sentence(answer.barrier.as_ref())));
    context.terminal.answer(&answer, answer.run.as_ref())
}

/// Sent once and never repeated: a repetition could also end a pause that was set in the meantime.
async fn resume(context: &CommandContext<'_>, request: ResumeRunRequest) -> Result<(), Stop> {
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.answer(&answer, answer.run.as_ref())
}

async fn cancel(context: &CommandContext<'_>, request: CancelRunRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let question = format!("Cancel what run {} has not sent? It is never sent then.", request.run);
    context.confirm_unless(dry_run, &question).await?;
    let answer = context.change(request).await?;
    if !dry_run {
        context.terminal.say(&format!("cancelled: {}", sentence(answer.barrier.as_ref())));
        return context.terminal.answer(&answer, answer.run.as_ref());
    }
    context.terminal.answer(&answer, answer.run.as_ref())?;
    context.terminal.say(&would_cancel(&answer.run.unwrap_or_default()));
    context.checked(dry_run);
    Ok(())
}
