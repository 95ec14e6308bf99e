//! `reveille recover …`.

use super::{Args, PathBuf, Settings, Subcommand};

#[derive(Debug, Subcommand)]
pub enum RecoverCommand {
    /// What data folders of stopped nodes have: which one is the best to go on with
    #[command(after_long_help = "Example:\n  reveille recover inspect /var/lib/reveille /mnt/disk-of-n2")]
    Inspect {
        /// Data folders of nodes that do not run
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
    },
    /// Make a new cluster of what is left of one whose majority is lost for good; offline
    ///
    /// It takes the state of the folder with the last log entry, and writes it into an empty folder, as a restore does:
    /// a new cluster of one node, which sends nothing until `restore accept`. The old folders stay as they are. What
    /// only the lost nodes had is lost, also if it was answered; but opt-outs that are at the target of backups are in
    /// force.
    #[command(after_long_help = "\
Example:
  reveille recover run /var/lib/reveille.old --config /etc/reveille/reveille.toml --data-dir /var/lib/reveille

Next: reveille start with the same settings, then reveille restore status")]
    Run(Box<RecoverRunArgs>),
}

/// `recover run`.
#[derive(Debug, Args)]
pub struct RecoverRunArgs {
    /// Data folders of all nodes that are left; none of them runs
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Go on without the opt-outs at the configured target of backups
    #[arg(long)]
    pub without_opt_outs: bool,
    /// Configuration file of the new node (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}
