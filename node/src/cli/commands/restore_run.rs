//! Implements `reveille restore run`: the data folder of a new cluster's first node, from a backup.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use reveille_cluster::backup::opt_outs::{self, StreamedOptOuts};
use reveille_cluster::backup::{self, BackupFiles, TargetAddress};

use super::backup::{aside, choose, failure, no_opt_outs, open};
use super::first_folder::{FormerState, check_empty, found};
use super::{CommandContext, Failure, Stop, config};
use crate::server::config::{BackupConfig, Config, Settings, file_or_default};

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

/// Reads and checks the whole backup, then writes the folder.
pub async fn run(context: &CommandContext<'_>, args: RestoreRunArgs) -> Result<(), Stop> {
    let RestoreRunArgs { from, backup, without_opt_outs, config: file, settings } = args;
    let config = Config::load(file_or_default(file).as_deref(), std::env::vars(), settings).map_err(config::failure)?;
    check_empty(&config)?;
    let target = open(&BackupConfig { target: Some(from), ..config.backup.clone() }, "--from")?;
    let read = Arc::clone(&target);
    let loaded = aside(context, move |work| {
        let manifest = choose(&*read, backup.as_deref())?;
        let ledger = backup::verify(&*read, &manifest, work).map_err(failure)?;
        let cluster = manifest.id.cluster;
        let unread = |error| no_opt_outs(format!("opt-outs after the backup cannot be read: {error}"));
        let opt_outs = match without_opt_outs {
            true => StreamedOptOuts::default(),
            false => opt_outs::read(&*read, cluster, manifest.id.index).map_err(unread)?,
        };
        Ok::<_, Failure>((cluster, ledger, opt_outs, manifest.lost))
    });
    let (cluster, ledger, opt_outs, lost) = loaded.await??;
    if let Some(written) = &opt_outs.written {
        context.terminal.say(&format!("opt-outs until {written} are in force again"));
    }
    let former = FormerState { cluster, ledger, opt_outs: opt_outs.changes };
    found(context, config, former, BackupFiles { target, lost }).await
}
