//! Implements `reveille schedule …`.

mod backfill;
pub(super) mod body;
mod change;
pub(super) mod create;
pub(super) mod preview;
pub(super) mod read;
mod several;
pub(super) mod update;

use super::{CommandContext, apply};
use crate::cli::args::{ScheduleArgs, ScheduleCommand, ShowArgs};
use crate::cli::failure::Stop;
use crate::cli::manifest::kind::Kind;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: ScheduleArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        ScheduleCommand::Create(args) => Box::pin(create::run(context, tenant, *args)).await,
        ScheduleCommand::Preview(args) => preview::run(context, &tenant, &args),
        ScheduleCommand::List { paging, labels, state } => {
            read::list(context, tenant, paging, labels.selector.unwrap_or_default(), &state).await
        }
        ScheduleCommand::Show(ShowArgs { name, manifest: true, .. }) => {
            apply::manifest(context, Kind::Schedule, &tenant, &name).await
        }
        ScheduleCommand::Show(ShowArgs { name, watch, .. }) => read::show(context, tenant, name, watch).await,
        ScheduleCommand::Apply(what) => Box::pin(apply::run(context, &tenant, &what)).await,
        ScheduleCommand::Diff(what) => Box::pin(apply::diff(context, &tenant, &what)).await,
        ScheduleCommand::Update(args) => Box::pin(update::run(context, tenant, *args)).await,
        ScheduleCommand::Pause { name, labels, reason, dry_run } => match (name, labels.selector) {
            (_, Some(selector)) => {
                Box::pin(several::run(context, tenant, selector, several::BulkChange::Pause(reason), dry_run)).await
            }
            (name, None) => change::pause(context, tenant, name.unwrap_or_default(), reason, dry_run).await,
        },
        ScheduleCommand::Resume { name, labels, dry_run } => match (name, labels.selector) {
            (_, Some(selector)) => {
                Box::pin(several::run(context, tenant, selector, several::BulkChange::Resume, dry_run)).await
            }
            (name, None) => change::resume(context, tenant, name.unwrap_or_default(), dry_run).await,
        },
        ScheduleCommand::Trigger { name, recipients, first_wins, dry_run } => {
            let list = change::TriggerList { recipients, first_wins };
            change::trigger(context, (tenant, name), list, dry_run).await
        }
        ScheduleCommand::Backfill(args) => backfill::run(context, tenant, args).await,
        ScheduleCommand::Delete { name, dry_run } => change::delete(context, tenant, name, dry_run).await,
        ScheduleCommand::History { name, paging } => read::history(context, tenant, name, paging).await,
    }
}
