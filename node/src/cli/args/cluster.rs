//! `reveille cluster …`.

use super::{Args, PathBuf, Settings, SignedDuration, Subcommand, Watch, parse_duration};

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

/// Settings of the first node.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Give the cluster a clock that `clock advance` moves: for good, for tests, and only with relays on this machine
    #[arg(long)]
    pub test_clock: bool,
    /// Configuration file (TOML); flags and `REVEILLE__…` variables override it [default:
    /// /etc/reveille/reveille.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

/// The members of the cluster.
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// The members of the cluster
    #[command(after_long_help = "Example:\n  reveille cluster member list -o json")]
    List(Watch),
    /// Admit a new node: print a join token for it
    ///
    /// Give the token to the new node alone: `reveille start --join file:/PATH`. It admits one node, once. The node
    /// learns first, and votes when it has caught up. Any running member prints tokens.
    #[command(after_long_help = "\
Examples:
  reveille cluster member add
  reveille cluster member add --valid-for 10m -o json")]
    Add {
        /// How long the token is valid, from 1m to 7d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
        valid_for: SignedDuration,
    },
    /// Give a node no more emails, and wait until it has none
    ///
    /// What it has begun is finished, and the rest goes to other nodes. It stays a member, and votes. If it leads, it
    /// hands over. Use it before work on a machine.
    #[command(after_long_help = "\
Examples:
  reveille cluster member drain n2
  reveille cluster member drain n2 --undo")]
    Drain {
        /// Name or id of the member
        member: String,
        /// Let it get emails again
        #[arg(long)]
        undo: bool,
    },
    /// Remove a node for good
    ///
    /// A node that runs is drained first; then its process ends by itself. A node that never comes back is removed
    /// with --dead: what it had in flight stays in doubt. Its id is never used again. To use the same machine again:
    /// remove the node first, then admit it anew, with an empty data folder.
    #[command(after_long_help = "\
Examples:
  reveille cluster member remove n2
  reveille cluster member remove n2 --dead --yes

What it left in doubt: reveille in-doubt list. A new node in its place: reveille cluster member add")]
    Remove {
        /// Name or id of the member
        member: String,
        /// It does not run, and never will
        #[arg(long)]
        dead: bool,
    },
}

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

/// The certificate authority of the cluster.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// The authority, and how far its rotation is
    #[command(after_long_help = "Examples:\n  reveille cluster ca status\n  reveille cluster ca status -o json")]
    Status(Watch),
    /// Replace the authority by a new one, without a restart
    ///
    /// Use it when another may have its key, for example after a machine was stolen: remove that member first. All
    /// members must run. First each trusts the new authority too, then each uses it, and then each forgets the former
    /// one. If the command is interrupted, give it again: it goes on. Join tokens that were not used end.
    #[command(after_long_help = "\
Examples:
  reveille cluster ca rotate
  reveille cluster ca rotate --yes --timeout 5m

A context learns the new authority at its next command. One that missed two rotations: reveille login")]
    Rotate,
    /// End a rotation, if no member uses the new authority yet
    #[command(after_long_help = "Example:\n  reveille cluster ca abort")]
    Abort,
}
