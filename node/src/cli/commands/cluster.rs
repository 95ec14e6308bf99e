//! Implements `reveille cluster …`.

use reveille_proto::ListPage;
use reveille_proto::admin::v1::{
    FinishUpgradeRequest, GetClusterStatusRequest, GetUpgradeRequest, InitClusterRequest, ListMembersRequest,
    TransferLeaderRequest,
};

use super::{CommandContext, Seen};
use crate::cli::args::{ClusterArgs, ClusterCommand, Paging, UpgradeCommand};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::view::cluster::{LeaderView, MadeView, MemberView, StatusView};
use crate::cli::view::upgrade::{FinishedView, UpgradeView};

/// Warning for a cluster that is created without peers.
const ALONE: &str = "a cluster of this node alone: the others of a larger one are named with --peer, or in its `join`; and \
                     a node that lost its folder does not come back into its cluster like this, but makes a rival of it";

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: ClusterArgs) -> Result<(), Stop> {
    match args.command {
        ClusterCommand::Init { peers, test_clock, dry_run } => init(context, peers, test_clock, dry_run).await,
        ClusterCommand::Status(watch) => context.one(watch, async || status(context).await).await,
        ClusterCommand::Members(watch) => {
            let paging = Paging { limit: u32::MAX, watch };
            context.list(paging, |_, _| members(context)).await
        }
        ClusterCommand::TransferLeader { to } => transfer_leader(context, to).await,
        ClusterCommand::Upgrade(UpgradeCommand::Status(watch)) => {
            context.one(watch, async || upgrade(context).await).await
        }
        ClusterCommand::Upgrade(UpgradeCommand::Finish) => finish_upgrade(context).await,
    }
}

async fn init(
    context: &CommandContext<'_>,
    peers: Vec<String>,
    test_clock: bool,
    validate_only: bool,
) -> Result<(), Stop> {
    let request_id = context.client.request_id().to_owned();
    let request = InitClusterRequest { peers, request_id, validate_only, test_clock };
    // A cluster of one node is seldom intended. If the node belonged to another cluster before, the new one is its
    // rival.
    let preview_request = InitClusterRequest { validate_only: true, ..request.clone() };
    let preview = context.client.ask(RetrySafety::Read, preview_request).await?;
    let alone = !preview.existed && preview.members.len() == 1;
    if alone && !validate_only {
        context.terminal.confirm_if_asked(ALONE)?;
    }
    let answer = if validate_only { preview } else { context.change(request).await? };
    let existed = answer.existed;
    context.terminal.show(&MadeView::from(answer))?;
    if alone {
        context.terminal.say(&format!("warning: {ALONE}"));
    }
    if test_clock && !existed {
        context.terminal.say("its clock is a test's, for good: no mail of it ever leaves this machine");
    }
    context.terminal.say(match (existed, validate_only) {
        (true, _) => "it exists already, with these founders; nothing was changed; next: reveille cluster status",
        (false, true) => "all founders answer; nothing was changed",
        (false, false) => "made; next: reveille cluster status",
    });
    Ok(())
}

async fn status(context: &CommandContext<'_>) -> Result<Seen<StatusView>, Failure> {
    let status = context.client.ask(RetrySafety::Read, GetClusterStatusRequest {}).await?;
    let unmade = status.cluster.is_empty();
    let unmade = unmade.then(|| {
        format!("{} belongs to no cluster yet; next: reveille cluster init --peer HOST:PORT,…", status.answered_by)
    });
    let view = StatusView::from(status);
    let remarks = unmade.into_iter().chain(view.problems()).collect();
    Ok(Seen { view, freshness: None, remarks })
}

async fn members(context: &CommandContext<'_>) -> Result<ListPage<MemberView>, Failure> {
    let answer = context.client.ask(RetrySafety::Read, ListMembersRequest {}).await?;
    let rows = answer.members.into_iter().map(MemberView::from).collect();
    Ok(ListPage { rows, next: String::new(), freshness: answer.freshness })
}

async fn transfer_leader(context: &CommandContext<'_>, to: Option<String>) -> Result<(), Stop> {
    let request = TransferLeaderRequest { to: to.unwrap_or_default() };
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.show(&LeaderView { leader: answer.leader })
}

async fn upgrade(context: &CommandContext<'_>) -> Result<Seen<UpgradeView>, Failure> {
    let view = UpgradeView::from(context.client.ask(RetrySafety::Read, GetUpgradeRequest {}).await?);
    let remarks = view.remarks();
    Ok(Seen { view, freshness: None, remarks })
}

/// Raises the ledger to the level that the user confirmed, even if nodes announce a higher one meanwhile.
async fn finish_upgrade(context: &CommandContext<'_>) -> Result<(), Stop> {
    let seen = upgrade(context).await?.view;
    let level = seen.can_rise_to().unwrap_or_default();
    if level > 0 {
        context.terminal.confirm(&format!(
            "Raise the ledger's level from {} to {level}? Afterwards no node can go back to the former release.",
            seen.level
        ))?;
    }
    let request_id = context.client.request_id().to_owned();
    let answer = context.change(FinishUpgradeRequest { level, request_id }).await?;
    context.terminal.show(&FinishedView { level: answer.level, raised: answer.raised })?;
    if !answer.raised {
        context.terminal.say("the ledger is at this level already; nothing was changed");
    }
    Ok(())
}
