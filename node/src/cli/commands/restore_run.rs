//! Implements `reveille restore run`: the data folder of a new cluster's first node, from a backup.

use std::sync::Arc;

use clap::Args;
use reveille_cluster::backup::opt_outs::{self, StreamedOptOuts};
use reveille_cluster::backup::{self, BackupFiles, TargetAddress};

use super::backup::{aside, choose, failure, no_opt_outs, open};
use super::first_folder::{FormerState, NewNodeArgs, found};
use super::{CommandContext, Failure, Stop};
use crate::server::config::BackupConfig;

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
    #[command(flatten)]
    pub node: NewNodeArgs,
}

/// Reads and checks the whole backup, then writes the folder.
pub async fn run(context: &CommandContext<'_>, args: RestoreRunArgs) -> Result<(), Stop> {
    let RestoreRunArgs { from, backup, without_opt_outs, node } = args;
    let config = node.load()?;
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
    let former = FormerState { cluster, ledger, opt_outs };
    found(context, config, former, BackupFiles { target, lost }).await
}
