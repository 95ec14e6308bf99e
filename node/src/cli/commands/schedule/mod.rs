//! Implements `reveille schedule …`.

mod backfill;
pub(super) mod body;
mod change;
pub(super) mod create;
pub(super) mod preview;
pub(super) mod read;
mod several;
pub(super) mod update;

use reveille_proto::admin::v1::{
    DeleteScheduleRequest, GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest, ListSchedulesRequest,
    PauseScheduleRequest, ResumeScheduleRequest, ScheduleState, TriggerScheduleRequest,
};

use super::message::key_rule;
use super::{CommandContext, Failure, Kind, Listing, OfTenant, ScheduleCommand, Stop, apply};
use crate::cli::word::name as name_of;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<ScheduleCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        ScheduleCommand::Create(args) => Box::pin(create::run(context, tenant, *args)).await,
        ScheduleCommand::Preview(args) => preview::run(context, &tenant, &args),
        ScheduleCommand::List { paging, labels, states } => {
            let state_of = |word: &String| ScheduleState::from_str_name(&name_of("SCHEDULE_STATE_", word));
            let states = states.iter().map(|word| state_of(word).unwrap_or_default().into()).collect();
            let selector = labels.selector.unwrap_or_default();
            let request = ListSchedulesRequest { tenant, states, selector, ..ListSchedulesRequest::default() };
            context
                .list(paging, |size, token| read::page(context, request.clone().at(context.stale, size, token)))
                .await
        }
        ScheduleCommand::Show(args) => {
            let (of, stale) = (tenant.clone(), context.stale);
            let request = |name| GetScheduleRequest { tenant: of, name, stale, with_body: false };
            let take = |answer: GetScheduleResponse| (answer.freshness, answer.schedule);
            context.show_named((Kind::Schedule, &tenant), args, request, take).await
        }
        ScheduleCommand::Apply(what) => Box::pin(apply::run(context, &tenant, &what)).await,
        ScheduleCommand::Diff(what) => Box::pin(apply::diff(context, &tenant, &what)).await,
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
        ScheduleCommand::Trigger { name, recipients, first_wins, dry_run } => {
            let (request_id, key_rule) = (context.client.request_id().to_owned(), key_rule(first_wins));
            let validate_only = dry_run;
            let request = TriggerScheduleRequest { tenant, name, request_id, validate_only, audience: None, key_rule };
            change::trigger(context, request, recipients).await
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
