//! Implements `reveille schedule …`.

mod backfill;
pub(super) mod body;
mod change;
pub(super) mod create;
pub(super) mod preview;
pub(super) mod read;
mod several;
pub(super) mod update;

use reveille_proto::admin::v1::{GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest};

use super::{CommandContext, apply};
use crate::cli::args::{OfTenant, ScheduleCommand};
use crate::cli::failure::Stop;
use crate::cli::manifest::kind::Kind;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<ScheduleCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        ScheduleCommand::Create(args) => Box::pin(create::run(context, tenant, *args)).await,
        ScheduleCommand::Preview(args) => preview::run(context, &tenant, &args),
        ScheduleCommand::List { paging, labels, state } => {
            read::list(context, tenant, paging, labels.selector.unwrap_or_default(), &state).await
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
            None => change::pause(context, tenant, name.unwrap_or_default(), reason, dry_run).await,
        },
        ScheduleCommand::Resume { name, labels, dry_run } => match labels.selector {
            Some(selector) => Box::pin(several::run(context, tenant, selector, None, dry_run)).await,
            None => change::resume(context, tenant, name.unwrap_or_default(), dry_run).await,
        },
        ScheduleCommand::Trigger { name, recipients, first_wins, dry_run } => {
            let list = change::TriggerList { recipients, first_wins };
            change::trigger(context, (tenant, name), list, dry_run).await
        }
        ScheduleCommand::Backfill(args) => backfill::run(context, tenant, args).await,
        ScheduleCommand::Delete { name, dry_run } => change::delete(context, tenant, name, dry_run).await,
        ScheduleCommand::History { name, paging } => {
            context.list_of(paging, ListScheduleHistoryRequest { tenant, name, ..Default::default() }).await
        }
    }
}
