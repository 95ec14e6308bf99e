//! `reveille cluster …`.

use clap::{Args, Subcommand};

use super::Watch;

#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make the cluster, once and for all, of the asked node and its fellow founders
    ///
    /// Start all founders first; then ask one of them. The others are those of its `join` list, or those
    /// named here. Without any it is a cluster of this node alone, which is asked about at a terminal, and said.
    /// A node that lost its data folder does not come back into its cluster like this: it makes a rival of it.
    #[command(after_long_help = "Example:\n  reveille cluster init --peer b.example.com:7601,c.example.com:7601")]
    Init {
        /// Peer addresses of the other founders
        #[arg(long = "peer", value_delimiter = ',', value_name = "HOST:PORT,…", value_parser = super::parse_endpoint)]
        peers: Vec<String>,
        /// Give it a clock that `clock advance` moves: for good, for tests, and only with relays on this machine
        #[arg(long)]
        test_clock: bool,
        /// Check that all founders answer, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// How every member stands; answers without a quorum too
    #[command(after_long_help = "\
Examples:
  reveille cluster status
  reveille cluster status -o json
  reveille cluster status --watch

What is wrong with it, and what to do: reveille doctor")]
    Status(Watch),
    /// The members of the cluster
    #[command(after_long_help = "Example:\n  reveille cluster members -o json")]
    Members(Watch),
    /// Let another node lead
    ///
    /// Use it before you stop the leader for maintenance: the cluster then needs no election.
    #[command(after_long_help = "Examples:\n  reveille cluster transfer-leader\n  reveille cluster transfer-leader b")]
    TransferLeader {
        /// Name or id of the new leader [default: the follower that is closest]
        to: Option<String>,
    },
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
}

/// What may be done about an upgrade.
#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// The ledger's level, the release of every node, and what stands in the way
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
