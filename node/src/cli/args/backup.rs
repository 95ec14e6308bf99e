//! `reveille backup …`.

use super::{Args, PathBuf, Subcommand};
use reveille_cluster::backup::TargetAddress;

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Make a backup now, at the target that the nodes' configuration names, and read it back whole
    ///
    /// The asked node makes it, beside its other work. Files that are there are not copied again. It goes on when this
    /// command is interrupted.
    #[command(after_long_help = "Example:\n  reveille backup create")]
    Create,
    /// The backups at a target, of each cluster the newest first; without a node
    #[command(after_long_help = "Examples:
  reveille backup list --config /etc/reveille/reveille.toml
  reveille backup list --target /mnt/backups -o json")]
    List(BackupPlace),
    /// Read a backup whole, and load it, as a restore would; without a node
    #[command(after_long_help = "Example:\n  reveille backup verify --target /mnt/backups")]
    Verify(VerifyArgs),
    /// Remove all but the newest verified backups, and files that no backup needs; without a node
    ///
    /// The leader does the same after each backup. Files of the last day stay: a backup may be in the making.
    #[command(after_long_help = "Examples:
  reveille backup prune --target /mnt/backups --keep 14
  reveille backup prune --target /mnt/backups --all-of 5f3a9c21 # a former cluster, after a restore")]
    Prune(PruneArgs),
}

/// Where backups are.
#[derive(Clone, Debug, Args)]
pub struct BackupPlace {
    /// The target; else that of the configuration
    ///
    /// A folder, or s3://BUCKET/PREFIX. How a bucket is reached is in the configuration.
    #[arg(long, value_name = "TARGET")]
    pub target: Option<TargetAddress>,
    /// Configuration file of a node, whose section `backup` counts
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `backup verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The backup: its index, or its name as `backup list -o name` prints it [default: the newest]
    pub backup: Option<String>,
    #[command(flatten)]
    pub place: BackupPlace,
}

/// `backup prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// So many verified backups stay, of each cluster [default: `backup.keep` of the configuration, 14]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub keep: Option<u64>,
    /// Remove all backups of this cluster, and its opt-outs; the first digits of its id are enough
    ///
    /// For a former cluster: a restore and a recovery make another one, whose leader removes only backups of its own.
    #[arg(long, value_name = "CLUSTER", conflicts_with = "keep")]
    pub all_of: Option<String>,
    #[command(flatten)]
    pub place: BackupPlace,
}
