//! `reveille cluster upgrade …`.

use clap::Subcommand;
use reveille_proto::admin::v1::{FinishUpgradeRequest, GetUpgradeRequest, GetUpgradeResponse};

use crate::cli::commands::{CommandContext, Failure, Seen, Stop, Watch};
use crate::cli::view::upgrade::{can_rise_to, remarks};

/// What may be done about an upgrade.
#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// The ledger's level, the release of every node, and obstacles
    #[command(after_long_help = "\
Examples:
  reveille cluster upgrade status
  reveille cluster upgrade status -o json")]
    Status(Watch),
    /// Raise the ledger's level, after every node runs the new release
    ///
    /// The level never falls: afterwards no node can go back to the former release. Until then every node can.
    #[command(after_long_help = "\
Examples:
  reveille cluster upgrade finish
  reveille cluster upgrade finish --yes -o json")]
    Finish,
}

pub async fn status(context: &CommandContext<'_>) -> Result<Seen<GetUpgradeResponse>, Failure> {
    let view = context.read(GetUpgradeRequest {}).await?;
    let remarks = remarks(&view);
    Ok(Seen { view, freshness: None, remarks })
}

/// Raises the ledger to the level that the user confirmed, even if nodes announce a higher one meanwhile.
pub async fn finish(context: &CommandContext<'_>) -> Result<(), Stop> {
    let seen = status(context).await?.view;
    let level = can_rise_to(&seen).unwrap_or_default();
    if level > 0 {
        context
            .confirm(&format!(
                "Raise the ledger's level from {} to {level}? Afterwards no node can go back to the former release.",
                seen.level
            ))
            .await?;
    }
    let request_id = context.client.request_id().to_owned();
    let answer = context.change(FinishUpgradeRequest { level, request_id }).await?;
    context.terminal.show(&answer)?;
    if !answer.raised {
        context.terminal.say("the ledger is at this level already; nothing was changed");
    }
    Ok(())
}
