//! Implements `reveille campaign …`.

use std::time::Duration;

use reveille_proto::admin::v1::{
    Audience, Barrier, Campaign, CampaignState, Canary, CancelCampaignRequest, CreateCampaignRequest,
    DeleteCampaignRequest, GetCampaignRequest, GetCampaignResponse, LaunchCampaignRequest, ListCampaignsRequest,
    PauseCampaignRequest, ResumeCampaignRequest, ScheduleBody, When, when,
};
use tokio::time::{Instant, sleep};

use super::schedule::body::{content, labels};
use super::{
    Answer, CampaignCommand, CampaignCreateArgs, CommandContext, Failure, Json, Kind, LaunchArgs, OfTenant,
    RetrySafety, Stop, View, to_wire,
};
use crate::cli::view::barrier::sentence;
use crate::cli::view::campaign;
use crate::cli::word::name as name_of;

/// Interval at which the campaign is read until its run exists.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<CampaignCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        CampaignCommand::Create(args) => create(context, tenant, *args).await,
        CampaignCommand::Launch { launch: args, dry_run } => launch(context, tenant, args, dry_run).await,
        CampaignCommand::Validate(args) => launch(context, tenant, args, true).await,
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
            let state_of = |word: &String| CampaignState::from_str_name(&name_of("CAMPAIGN_STATE_", word));
            let request = ListCampaignsRequest {
                tenant,
                states: states.iter().map(|word| state_of(word).unwrap_or_default().into()).collect(),
                selector: labels.selector.unwrap_or_default(),
                since_time: since_time.map(to_wire),
                until_time: until_time.map(to_wire),
                ..ListCampaignsRequest::default()
            };
            context.list_of(paging, request).await
        }
        CampaignCommand::Delete { name, dry_run, etag } => {
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
    let template = args.content.template.clone().unwrap_or_default();
    let schedule = ScheduleBody {
        tenant,
        name: args.name,
        timing: Some(When { pattern: Some(when::Pattern::At(to_wire(args.at))) }),
        zone: args.zone,
        policies: Some(args.policies.to_wire()),
        pool: args.pool,
        priority: args.priority.into(),
        content: content(args.content)?,
        template,
        audience: Some(Audience { sealed: args.audience, ..Audience::default() }),
        labels: labels(args.labels)?,
        ..ScheduleBody::default()
    };
    Ok(CreateCampaignRequest { schedule: Some(schedule), canary, ..CreateCampaignRequest::default() })
}

async fn launch(context: &CommandContext<'_>, tenant: String, args: LaunchArgs, dry_run: bool) -> Result<(), Stop> {
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
    context.confirm_unless(dry_run, &format!("Cancel campaign {} for good?", request.name))?;
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

/// Reads the campaign once a second until its run exists, then watches the run.
async fn watch(context: &CommandContext<'_>, tenant: String, name: String) -> Result<(), Stop> {
    let (began, mut said) = (Instant::now(), None);
    loop {
        let campaign = context.read(get(context, &tenant, &name)).await?.campaign.unwrap_or_default();
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
        if context.global.timeout.is_some_and(|within| began.elapsed() > within) {
            let next = format!("reveille campaign status {name}");
            return Err(Failure::timed_out(format!("{name} has not opened in this time"), next).into());
        }
        sleep(POLL_EVERY).await;
        context.client.set_timeout(super::WITHIN);
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
