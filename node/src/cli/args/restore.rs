//! `reveille restore …`.

use reveille_cluster::backup::TargetAddress;

use super::{Args, PathBuf, Settings, Subcommand, Watch};

#[derive(Debug, Subcommand)]
pub enum RestoreCommand {
    /// Make a new cluster of a backup: write the data folder of its first node; offline
    ///
    /// The new cluster has other ids, keys and tokens than the former one, and sends nothing until `restore accept`.
    /// Every file is checked before anything is written, and the folder must be empty. Opt-outs that the target has
    /// from after the backup are in force.
    #[command(after_long_help = "\
Example:
  reveille restore run --from /mnt/backups --config /etc/reveille/reveille.toml

Next: reveille start with the same settings, then reveille restore status")]
    Run(Box<RestoreRunArgs>),
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

/// `restore run`.
#[derive(Debug, Args)]
pub struct RestoreRunArgs {
    /// The target that has the backup: a folder, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "TARGET")]
    pub from: TargetAddress,
    /// The backup: its index, or its name as `backup list -o name` prints it [default: the newest]
    #[arg(long, value_name = "BACKUP")]
    pub backup: Option<String>,
    /// Go on without the opt-outs that the target has from after the backup
    #[arg(long)]
    pub without_opt_outs: bool,
    /// Configuration file of the new node (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}
