//! Implements `reveille schedule …`.

mod backfill;
pub(super) mod body;
mod change;
pub(super) mod create;
pub(super) mod preview;
mod several;
pub(super) mod update;

use std::path::PathBuf;

use clap::Subcommand;
use reveille_proto::admin::v1::{
    DeleteScheduleRequest, GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest, ListSchedulesRequest,
    PauseScheduleRequest, ResumeScheduleRequest, ScheduleState, TriggerScheduleRequest,
};

use super::message::key_rule;
use super::{CommandContext, EtagArgs, Failure, Kind, OfTenant, Paging, RecipientArgs, ShowArgs, Stop};
use crate::cli::args::labels::SelectorArgs;
use crate::cli::word::values;
use backfill::BackfillArgs;
use create::CreateArgs;
use preview::PreviewArgs;
use update::UpdateArgs;

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Create a schedule, and print its next ten instants
    ///
    /// The same name with the same body is the same schedule, so the command may be repeated; with another
    /// body it is a conflict. Subject, text and html are templates: {{ name }} is a column of the recipients
    /// file, or a --variable.
    #[command(after_long_help = "\
Examples:
  reveille schedule create morning --daily 09:00 --days mon-fri --zone Europe/Berlin \\
      --recipients people.csv --sender 'News <news@example.com>' \\
      --subject 'Good morning, {{ name }}' --text body.txt --html body.html
  reveille schedule create month-end --cron '0 18 L * *' --zone America/New_York \\
      --to cfo@example.com --sender books@example.com --subject 'Month end' --text note.txt
  reveille schedule create once --at 2026-12-24T09:00:00+01:00 --zone Europe/Berlin \\
      --to ann@example.com --sender me@example.com --subject Hello --text hello.txt --dry-run
  reveille schedule create digest --daily 07:00 --zone UTC --recipients people.csv --template welcome@3

A recipients file is CSV with a header: email, and a column for each variable.
  email,name
  ann@example.com,Ann")]
    Create(Box<CreateArgs>),
    /// All schedules
    #[command(after_long_help = "\
Examples:
  reveille schedule list -l team=ops --state paused,blocked
  reveille schedule list -l 'env!=dev,tier,!old' -o name
  reveille schedule list --state paused,blocked --watch")]
    List {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(long = "state", value_delimiter = ',', value_parser = ["active", "paused", "blocked", "done"])]
        states: Vec<String>,
    },
    /// One schedule, with its next ten instants
    #[command(after_long_help = "\
Examples:
  reveille schedule show morning
  reveille schedule show morning --manifest > morning.yaml")]
    Show(ShowArgs),
    /// The instants of a pattern, with what clock changes do to them; needs no cluster
    #[command(after_long_help = "\
Examples:
  reveille schedule preview --cron '0 2 * * *' --zone America/New_York --from 2026-03-07T12:00:00Z
  reveille schedule preview --daily 09:00 --days mon-fri --zone Europe/Berlin --count 5 -o json
  reveille schedule preview --cron 'H H(0-7) * * *' --name backups --zone Europe/Berlin")]
    Preview(PreviewArgs),
    /// Change what is given; all else stays, and open runs keep what they opened with
    ///
    /// The change is shown, old and new, and made on what was read. If another client changed the schedule in between,
    /// the command fails with --etag; without it this change is applied on top.
    #[command(after_long_help = "\
Examples:
  reveille schedule update morning --daily 08:30 --dry-run
  reveille schedule update morning --subject 'Good day, {{ name }}' --text body.txt
  reveille schedule update morning --catch-up none --clear end-time,max-runs
  reveille schedule update morning --label team=ops --label tier-")]
    Update(Box<UpdateArgs>),
    /// Stop it from firing; open runs go on
    ///
    /// With -l all active schedules with these labels, at most 1,000: the cluster chooses, their names are shown, and
    /// each is paused after your confirmation.
    #[command(after_long_help = "\
Examples:
  reveille schedule pause morning --reason 'wrong price in it'
  reveille schedule pause -l team=ops --reason 'moving the relay'

What goes out already: reveille run pause RUN")]
    Pause {
        /// Its name
        #[arg(required_unless_present = "selector", conflicts_with = "selector")]
        name: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Why; shown wherever the schedule is shown [default: none, or as it was paused before]
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// Show what would be paused, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Let it fire again; missed instants are shown first, and open by --catch-up
    ///
    /// With -l all paused schedules with these labels, at most 1,000; resume a blocked one alone, by its name.
    #[command(after_long_help = "\
Examples:
  reveille schedule resume morning --dry-run
  reveille schedule resume -l team=ops")]
    Resume {
        /// Its name
        #[arg(required_unless_present = "selector", conflicts_with = "selector")]
        name: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Show what was missed and what would open, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// Open one run now; the same --request-id never opens a second one
    #[command(after_long_help = "\
Examples:
  reveille schedule trigger morning
  reveille schedule trigger morning --request-id release-42 --recipients people.csv -o name")]
    Trigger {
        /// Its name
        name: String,
        /// Send this run to the recipients of this CSV, instead of those of the schedule
        #[arg(long, value_name = "FILE.csv")]
        recipients: Option<PathBuf>,
        /// Leave out rows that cannot be used, instead of doing nothing
        #[arg(long, requires = "recipients")]
        skip_bad_rows: bool,
        /// If the request id was used: the first call counts, whatever its recipients
        #[arg(long)]
        first_wins: bool,
        /// Say whether it would open, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Open occurrences of the past that never opened
    ///
    /// An occurrence that has opened never opens again. Email on time goes first. What would open is
    /// counted first.
    #[command(after_long_help = "\
Examples:
  reveille schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z --dry-run
  reveille schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z --yes")]
    Backfill(BackfillArgs),
    /// Delete it; open runs go on
    #[command(after_long_help = "\
Examples:
  reveille schedule show morning --manifest > morning.yaml
  reveille schedule delete morning --yes")]
    Delete {
        /// Its name
        name: String,
        /// Say which runs are open and go on, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// The outcome of each of its instants, latest first
    #[command(
        after_long_help = "Examples:\n  reveille schedule history morning\n  reveille schedule history morning --limit 20 -o json"
    )]
    History {
        /// Its name
        name: String,
        #[command(flatten)]
        paging: Paging,
    },
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<ScheduleCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        ScheduleCommand::Create(args) => Box::pin(create::run(context, tenant, *args)).await,
        ScheduleCommand::Preview(args) => preview::run(context, &tenant, &args),
        ScheduleCommand::List { paging, labels, states } => {
            let states = values("SCHEDULE_STATE_", &states, ScheduleState::from_str_name);
            let selector = labels.selector.unwrap_or_default();
            let request = ListSchedulesRequest { tenant, states, selector, ..ListSchedulesRequest::default() };
            context.list_of(paging, request).await
        }
        ScheduleCommand::Show(args) => {
            let (of, stale) = (tenant.clone(), context.stale);
            let request = |name| GetScheduleRequest { tenant: of, name, stale, with_body: false };
            let take = |answer: GetScheduleResponse| (answer.freshness, answer.schedule);
            context.show_named((Kind::Schedule, &tenant), args, request, take).await
        }
        ScheduleCommand::Update(args) => Box::pin(update::run(context, tenant, *args)).await,
        ScheduleCommand::Pause { name, labels, reason, dry_run } => match labels.selector {
            Some(selector) => Box::pin(several::run(context, tenant, selector, Some(reason), dry_run)).await,
            None => {
                let name = name.unwrap_or_default();
                let request = PauseScheduleRequest { tenant, name, reason, validate_only: dry_run };
                let answer = context.change(request).await?;
                context.answer(&answer, answer.schedule.as_ref(), dry_run)
            }
        },
        ScheduleCommand::Resume { labels, etag, .. } if labels.selector.is_some() && !etag.to_wire().is_empty() => {
            let message = "it is a condition of one schedule, and -l chooses many";
            Err(Failure::usage("--etag", message, "name the schedule instead of -l").into())
        }
        ScheduleCommand::Resume { name, labels, dry_run, etag } => match labels.selector {
            Some(selector) => Box::pin(several::run(context, tenant, selector, None, dry_run)).await,
            None => {
                let (name, etag) = (name.unwrap_or_default(), etag.to_wire());
                let request = ResumeScheduleRequest { tenant, name, etag, validate_only: dry_run };
                change::resume(context, request).await
            }
        },
        ScheduleCommand::Trigger { name, recipients, skip_bad_rows, first_wins, dry_run } => {
            let (request_id, key_rule) = (context.client.request_id().to_owned(), key_rule(first_wins));
            let validate_only = dry_run;
            let request = TriggerScheduleRequest { tenant, name, request_id, validate_only, audience: None, key_rule };
            let recipients = RecipientArgs { to: Vec::new(), recipients, sealed: None, skip_bad_rows };
            change::trigger(context, request, &recipients).await
        }
        ScheduleCommand::Backfill(args) => backfill::run(context, tenant, args).await,
        ScheduleCommand::Delete { name, dry_run, etag } => {
            let request = DeleteScheduleRequest { tenant, name, validate_only: dry_run, etag: etag.to_wire() };
            change::delete(context, request).await
        }
        ScheduleCommand::History { name, paging } => {
            context.list_of(paging, ListScheduleHistoryRequest { tenant, name, ..Default::default() }).await
        }
    }
}
