//! `reveille restore …`.

use clap::{Args, Subcommand};

use super::Watch;

#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(subcommand)]
    pub command: RestoreCommand,
}

#[derive(Debug, Subcommand)]
pub enum RestoreCommand {
    /// What is in doubt since the backup, and what fires next
    #[command(after_long_help = "\
Example:
  reveille restore status

Pause or delete what the former cluster had paused, deleted or changed after the backup: it is unknown here.")]
    Status(Watch),
    /// Let the restored cluster send
    ///
    /// Instants up to now are explained and never fire by themselves, since the former cluster may have sent them. What
    /// is in doubt stays so until you decide.
    #[command(after_long_help = "\
Example:
  reveille restore accept --former-cluster-is-dead

While a node of the former cluster runs, both clusters send: stop each of them for good first.")]
    Accept(AcceptArgs),
}

/// `restore accept`.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// No node of the former cluster runs, and none ever will
    #[arg(long, required = true)]
    pub former_cluster_is_dead: bool,
}
