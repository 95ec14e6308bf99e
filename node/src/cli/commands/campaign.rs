//! Implements `reveille campaign …`.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use reveille_proto::admin::v1::{
    Audience, Barrier, Campaign, CampaignState, Canary, CancelCampaignRequest, CreateCampaignRequest,
    DeleteCampaignRequest, GetCampaignRequest, GetCampaignResponse, LaunchCampaignRequest, ListCampaignsRequest,
    PauseCampaignRequest, ResumeCampaignRequest, ScheduleBody, When, when,
};
use tokio::time::{Instant, sleep};

use super::follow::passes;
use super::schedule::body::{content_or_template, labels};
use super::{
    Answer, CommandContext, ContentOrTemplateArgs, DeleteArgs, EtagArgs, Failure, Json, Kind, OfTenant, Paging,
    RetrySafety, RunPolicyArgs, SelectorArgs, ShowArgs, Stop, View, WITHIN, to_wire,
};
use crate::cli::args::labels::parse_label;
use crate::cli::instant::parse_instant;
use crate::cli::view::barrier::sentence;
use crate::cli::view::campaign;
use crate::cli::word::values;

#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Draft a campaign: one content, one audience, one instant
    ///
    /// Nothing is sent before it is launched. Its content is frozen; the same name with the same body is the same
    /// campaign. The audience need not be sealed yet.
    #[command(
        after_long_help = "Example:\n  reveille campaign create spring --audience subscribers --at 2026-12-01T09:00:00+01:00 \\\n      \
                           --zone Europe/Berlin --sender 'News <news@example.com>' \\\n      \
                           --subject 'Spring, {{ name }}' --text body.txt --html body.html --canary-percent 1%\n  \
                           reveille campaign launch spring"
    )]
    Create(Box<CampaignCreateArgs>),
    /// Let it open at its instant; launched again, by anyone, it sends nothing more
    ///
    /// Says first whether the limits suffice: the rates of the pool's relays and of the tenant,
    /// and the caps of a warm-up. Refused where no relay is in its pool. An instant that is over by less than
    /// --start-within of `create` opens at once, late. What is not sent within --finish-by of `create` expires; where
    /// that was left out, within four hours or twice the forecast, whichever is longer.
    #[command(
        after_long_help = "Examples:\n  reveille campaign launch spring --dry-run\n  reveille campaign launch spring --at 2026-12-01T10:00:00Z"
    )]
    Launch(LaunchArgs),
    /// Stop it: before its instant nothing opens, after it no handoff starts
    #[command(after_long_help = "Example:\n  reveille campaign pause spring --reason 'wrong price in it'")]
    Pause {
        /// Its name
        name: String,
        /// Why; shown wherever the campaign is shown
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let it go on
    #[command(after_long_help = "\
Examples:
  reveille campaign resume spring
  reveille campaign resume spring --without-canary")]
    Resume {
        /// Its name
        name: String,
        /// Resume although the canary paused this campaign. An error if no canary paused it
        #[arg(long)]
        without_canary: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// End it for good: what is not sent is cancelled
    #[command(after_long_help = "Example:\n  reveille campaign cancel spring --yes")]
    Cancel {
        /// Its name
        name: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// How far it has come
    #[command(after_long_help = "\
Examples:
  reveille campaign status spring -o json
  reveille campaign status spring --manifest > spring.yaml")]
    Status(ShowArgs),
    /// Follow it until no recipient is pending
    #[command(after_long_help = "Example:\n  reveille campaign watch spring")]
    Watch {
        /// Its name
        name: String,
    },
    /// All campaigns, by name
    #[command(after_long_help = "\
Examples:
  reveille campaign list
  reveille campaign list --state open,paused -l team=news --since-time 2026-12-01T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(
            long = "state",
            value_delimiter = ',',
            value_parser = [
                "draft", "waiting", "launched", "open", "paused", "finished", "cancelled", "expired", "missed",
                "blocked",
            ]
        )]
        states: Vec<String>,
        /// Only those whose instant is then or later
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        since_time: Option<Timestamp>,
        /// Only those whose instant is before then
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        until_time: Option<Timestamp>,
    },
    /// Delete one that has ended or never began; its run stays
    #[command(after_long_help = "Example:\n  reveille campaign delete spring --yes")]
    Delete(DeleteArgs),
}

/// `campaign launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Its name
    pub name: String,
    /// Another instant than the one it was created with
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Option<Timestamp>,
    /// Launch although the same content went to the same audience within 30 days
    #[arg(long)]
    pub again: bool,
    /// Check it, say whether it can be sent in time, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub etag: EtagArgs,
}

/// `campaign create`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("start_within", |arg| arg.help("Later than this it does not open [default: 1h]")))]
#[command(mut_arg("finish_by", |arg| arg.help("What is not sent this long after its instant expires [default: 4h, or twice the forecast where that is longer]")))]
pub struct CampaignCreateArgs {
    /// Its name, unique among campaigns and schedules of the tenant
    pub name: String,
    /// A sealed audience, or one that will be sealed by then: `reveille audience list`
    #[arg(long, value_name = "NAME")]
    pub audience: String,
    /// When it is to be sent
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Timestamp,
    /// Time zone in which people speak of that instant
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub zone: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// A label, by which campaigns are grouped; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// Send to this part of the recipients first, spread over the list, and to the others if it succeeds
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub canary_percent: Option<f64>,
    /// Pause it when more than so many of those are dead or in doubt [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "canary_percent")]
    pub canary_hold_percent: Option<f64>,
    /// Check everything, say whether it can be sent in time, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentOrTemplateArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
}

/// `1%`, `0.5%` or `1`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    number.map_err(|_| "a percentage is a number, such as 1% or 0.5%".to_owned())
}

/// Interval at which the campaign is read until its run exists.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<CampaignCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        CampaignCommand::Create(args) => create(context, tenant, *args).await,
        CampaignCommand::Launch(args) => launch(context, tenant, args).await,
        CampaignCommand::Pause { name, reason } => pause(context, PauseCampaignRequest { tenant, name, reason }).await,
        CampaignCommand::Resume { name, without_canary, etag } => {
            resume(context, ResumeCampaignRequest { tenant, name, without_canary, etag: etag.to_wire() }).await
        }
        CampaignCommand::Cancel { name, dry_run, etag } => {
            let request = CancelCampaignRequest { tenant, name, validate_only: dry_run, etag: etag.to_wire() };
            cancel(context, request).await
        }
        CampaignCommand::Status(args) => {
            let take = |answer: GetCampaignResponse| (answer.freshness, answer.campaign);
            context.show_named((Kind::Campaign, &tenant), args, |name| get(context, &tenant, &name), take).await
        }
        CampaignCommand::Watch { name } => watch(context, tenant, name).await,
        CampaignCommand::List { paging, labels, states, since_time, until_time } => {
            let request = ListCampaignsRequest {
                tenant,
                states: values("CAMPAIGN_STATE_", &states, CampaignState::from_str_name),
                selector: labels.selector.unwrap_or_default(),
                since_time: since_time.map(to_wire),
                until_time: until_time.map(to_wire),
                ..ListCampaignsRequest::default()
            };
            context.list_of(paging, request).await
        }
        CampaignCommand::Delete(DeleteArgs { name, dry_run, etag }) => {
            let (of, etag) = (name.clone(), etag.to_wire());
            let request = DeleteCampaignRequest { tenant, name: of, validate_only: dry_run, etag };
            context.remove((&forgets(&name), &name), request, dry_run, |answer| answer.index).await.map(drop)
        }
    }
}

async fn create(context: &CommandContext<'_>, tenant: String, args: CampaignCreateArgs) -> Result<(), Stop> {
    let dry_run = args.dry_run;
    let requested = requested(tenant, args)?;
    let request_id = context.client.request_id().to_owned();
    let request = CreateCampaignRequest { request_id, validate_only: dry_run, ..requested };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings, answer.campaign.as_ref());
    context.answer(&answer, answer.campaign.as_ref(), dry_run)
}

/// Returns the request that the flags describe, without a request id.
fn requested(tenant: String, args: CampaignCreateArgs) -> Result<CreateCampaignRequest, Failure> {
    let canary = args.canary_percent.map(|percent| Canary { percent, hold_percent: args.canary_hold_percent });
    let (content, template) = content_or_template(args.content)?;
    let schedule = ScheduleBody {
        tenant,
        name: args.name,
        timing: Some(When { pattern: Some(when::Pattern::At(to_wire(args.at))) }),
        zone: args.zone,
        policies: Some(args.policies.to_wire()),
        pool: args.pool,
        priority: args.priority.into(),
        content,
        template,
        audience: Some(Audience { sealed: args.audience, ..Audience::default() }),
        labels: labels(args.labels)?,
        ..ScheduleBody::default()
    };
    Ok(CreateCampaignRequest { schedule: Some(schedule), canary, ..CreateCampaignRequest::default() })
}

async fn launch(context: &CommandContext<'_>, tenant: String, args: LaunchArgs) -> Result<(), Stop> {
    let dry_run = args.dry_run;
    let (name, send_time, again, etag) = (args.name, args.at.map(to_wire), args.again, args.etag.to_wire());
    let request = LaunchCampaignRequest { tenant, name, send_time, again, validate_only: dry_run, etag };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings, answer.campaign.as_ref());
    context.answer(&answer, answer.campaign.as_ref(), dry_run)
}

async fn pause(context: &CommandContext<'_>, request: PauseCampaignRequest) -> Result<(), Stop> {
    let answer = context.change(request).await?;
    show_with_barrier(context, &answer, answer.campaign.as_ref(), answer.barrier.as_ref())
}

/// Sent once and never repeated: a repetition could also end a pause that was set in the meantime.
async fn resume(context: &CommandContext<'_>, request: ResumeCampaignRequest) -> Result<(), Stop> {
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.answer(&answer, answer.campaign.as_ref())
}

async fn cancel(context: &CommandContext<'_>, request: CancelCampaignRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    context.confirm_unless(dry_run, &format!("Cancel campaign {} for good?", request.name)).await?;
    let answer = context.change(request).await?;
    show_with_barrier(context, &answer, answer.campaign.as_ref(), answer.barrier.as_ref())?;
    context.checked(dry_run);
    Ok(())
}

/// Prints a campaign, with a barrier if it was being sent.
fn show_with_barrier<A: Json>(
    context: &CommandContext<'_>,
    answer: &A,
    campaign: Option<&Campaign>,
    barrier: Option<&Barrier>,
) -> Result<(), Stop> {
    let campaign = campaign.cloned().unwrap_or_default();
    let mut text = campaign.text(context.terminal.paints());
    if barrier.is_some() {
        text = format!("{text}\n{}", sentence(barrier));
    }
    context.terminal.show(&Answer::new(answer, campaign.name, text))
}

/// Reads the campaign once a second until its run exists, then watches the run. After the first read, a lost node or
/// leader is one line on stderr.
async fn watch(context: &CommandContext<'_>, tenant: String, name: String) -> Result<(), Stop> {
    let end = context.end;
    let is_over = || end.is_some_and(|end| Instant::now() >= end);
    let (mut said, mut is_lost) = (None, false);
    loop {
        let left = end.map_or(WITHIN, |end| end.saturating_duration_since(Instant::now()).min(WITHIN));
        context.client.set_timeout(left);
        match context.read(get(context, &tenant, &name)).await {
            Ok(answer) => {
                context.watching.set(true);
                is_lost = false;
                let campaign = answer.campaign.unwrap_or_default();
                if let Some(run) = campaign.run {
                    return super::watch::run(context, tenant, run.run).await;
                }
                if !campaign::may_open(&campaign) {
                    return context.terminal.show(&campaign);
                }
                let sentence = campaign::sentence(&campaign);
                if said.as_ref() != Some(&sentence) {
                    context.terminal.say(&sentence);
                    said = Some(sentence);
                }
            }
            Err(failure) if !context.watching.get() || !passes(&failure) => return Err(failure.into()),
            // A read that the end of the time cut short has found nothing lost.
            Err(_) if is_over() => {}
            Err(failure) => {
                if !std::mem::replace(&mut is_lost, true) {
                    context.terminal.say(&format!("{}; asking again every second", failure.message));
                }
            }
        }
        let left = end.map_or(POLL_EVERY, |end| end.saturating_duration_since(Instant::now()));
        sleep(left.min(POLL_EVERY)).await;
        if is_over() {
            let next = format!("reveille campaign status {name}");
            return Err(Failure::timed_out(format!("{name} has not opened in this time"), next).into());
        }
    }
}

fn get(context: &CommandContext<'_>, tenant: &str, name: &str) -> GetCampaignRequest {
    let (tenant, name) = (tenant.to_owned(), name.to_owned());
    GetCampaignRequest { tenant, name, stale: context.stale, with_body: false }
}

/// Returns the prompt before a campaign is forgotten. Its run stays known and refuses an equal campaign for 30 days
/// (P20).
fn forgets(name: &str) -> String {
    format!("Forget campaign {name}? Created again, it can be sent again: within 30 days only with --again.")
}

#[cfg(test)]
mod tests {
    #[test]
    fn forget_campaign_names_what_still_holds() {
        let days = reveille_ledger::limits::limits(reveille_ledger::LEVEL).again_ms / reveille_ledger::policy::DAY_MS;
        let question = super::forgets("spring");
        assert!(question.contains(&format!("within {days} days only with --again")), "{question}");
    }
}
