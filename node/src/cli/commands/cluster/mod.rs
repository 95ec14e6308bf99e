//! Implements `reveille cluster …`.

mod archive_loss;
mod ca;
mod init;
mod member;
mod scrub;
mod upgrade;

use super::{Answer, CommandContext, Failure, Paging, RetrySafety, Seen, Stop, Watch};
use crate::cli::view::cluster::problems;
use crate::cli::view::layout::card;
use ca::CaCommand;
use clap::Subcommand;
use init::InitArgs;
pub(super) use init::store;
use member::MemberCommand;
use reveille_proto::admin::v1::{GetClusterStatusRequest, GetClusterStatusResponse, TransferLeaderRequest};
use upgrade::UpgradeCommand;

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Create a cluster: prepare the data folder of its first node, before the first start
    ///
    /// It makes the certificate authority of the cluster and the certificate of this node, without the network.
    /// Then start the node, and admit each other one with `cluster member add`. A node that lost its data folder
    /// cannot rejoin like this: it would make another cluster.
    #[command(after_long_help = "\
Examples:
  reveille cluster init --config /etc/reveille/reveille.toml
  reveille cluster init --name n1 --data-dir /var/lib/reveille --peer-listen 10.0.0.1:7601

Next: reveille start with the same settings, then reveille cluster member add")]
    Init(Box<InitArgs>),
    /// State of every member; answers also without a quorum
    #[command(after_long_help = "\
Examples:
  reveille cluster status
  reveille cluster status -o json
  reveille cluster status --watch

What is wrong with it, and what to do: reveille doctor")]
    Status(Watch),
    #[command(subcommand)]
    Member(MemberCommand),
    /// Let another node lead
    ///
    /// Use it before you stop the leader for maintenance: the cluster then needs no election.
    #[command(after_long_help = "Examples:\n  reveille cluster transfer-leader\n  reveille cluster transfer-leader b")]
    TransferLeader {
        /// Name or id of the new leader [default: the most caught-up follower]
        to: Option<String>,
    },
    /// Check the files at rest of all members: their log, snapshots, archive and audiences
    ///
    /// Each node does so by itself, slowly, once a day. This reads everything now, as fast as the disks are. A damaged
    /// file is replaced by new snapshots of its node, or by a copy of another node. It exits with 1 if a file is
    /// damaged still.
    #[command(after_long_help = "\
Examples:
  reveille cluster scrub
  reveille cluster scrub --timeout 10m -o json

Later: reveille doctor reports the files that are damaged still")]
    Scrub,
    /// Parts of the archive that are lost, as all members say, and those whose loss was accepted
    ///
    /// A block of the archive that no member has and that the target of backups lacks too keeps every backup from being
    /// made, and new nodes from voting. --accept ends that: the cluster stops looking for the lost blocks, and what
    /// they had is shown as lost. All members must answer. Whatever may have a block, start it first.
    #[command(after_long_help = "\
Examples:
  reveille cluster archive-loss
  reveille cluster archive-loss --accept --yes -o json")]
    ArchiveLoss {
        /// Accept the loss of all parts that are shown as lost
        #[arg(long)]
        accept: bool,
    },
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    #[command(subcommand)]
    Ca(CaCommand),
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: ClusterCommand) -> Result<(), Stop> {
    match command {
        ClusterCommand::Init(args) => init::run(context, *args),
        ClusterCommand::Status(watch) => context.one(watch, async || status(context).await).await,
        ClusterCommand::Member(MemberCommand::Add { valid_for }) => member::add(context, valid_for).await,
        ClusterCommand::Member(MemberCommand::Drain { member, undo }) => member::drain(context, member, undo).await,
        ClusterCommand::Member(MemberCommand::Remove { member, dead }) => member::remove(context, member, dead).await,
        ClusterCommand::Member(MemberCommand::List(watch)) => {
            let paging = Paging { limit: u32::MAX, watch };
            context.list(paging, |_, _| member::all(context)).await
        }
        ClusterCommand::TransferLeader { to } => transfer_leader(context, to).await,
        ClusterCommand::Scrub => scrub::run(context).await,
        ClusterCommand::ArchiveLoss { accept } => archive_loss::run(context, accept).await,
        ClusterCommand::Upgrade(UpgradeCommand::Status(watch)) => {
            context.one(watch, async || upgrade::status(context).await).await
        }
        ClusterCommand::Upgrade(UpgradeCommand::Finish) => upgrade::finish(context).await,
        ClusterCommand::Ca(command) => ca::run(context, command).await,
    }
}

async fn status(context: &CommandContext<'_>) -> Result<Seen<GetClusterStatusResponse>, Failure> {
    let view = context.read(GetClusterStatusRequest {}).await?;
    let remarks = problems(&view);
    Ok(Seen { view, freshness: None, remarks })
}

async fn transfer_leader(context: &CommandContext<'_>, to: Option<String>) -> Result<(), Stop> {
    let request = TransferLeaderRequest { to: to.unwrap_or_default() };
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    let card = card(vec![("leader", answer.leader.as_str().into())], context.terminal.paints());
    context.terminal.show(&Answer::new(&answer, answer.leader.as_str(), card))
}
