//! Implements `reveille recover …`: goes on with the folders that are left of a cluster without a majority.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reveille_cluster::backup::opt_outs::{self, StreamedOptOuts};
use reveille_cluster::backup::{self, BackupError, SurvivorFiles, time_text};
use reveille_ledger::level;
use reveille_raft::offline::{FolderReport, OfflineFolder};
use serde::Serialize;

use super::backup::{aside, no_opt_outs, open as open_target};
use super::first_folder::{FormerState, NewNodeArgs, found};
use super::{CommandContext, Exit, Failure, Stop, View, format};
use crate::cli::view::layout::{Cell, Tone};
use crate::cli::view::own_objects;
use crate::server::config::BackupConfig;
use crate::server::node_identity::node_of;

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
    /// only the lost nodes had is lost, even if a client got its answer. Opt-outs at the target of backups are kept.
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
    #[command(flatten)]
    pub node: NewNodeArgs,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: RecoverCommand) -> Result<(), Stop> {
    match command {
        RecoverCommand::Inspect { folders } => inspect(context, &folders),
        RecoverCommand::Run(args) => recover(context, *args).await,
    }
}

fn inspect(context: &CommandContext<'_>, folders: &[PathBuf]) -> Result<(), Stop> {
    let found = open_all(folders)?;
    check_one_cluster(&found)?;
    let best = best(&found);
    let rows: Vec<SurvivorView> = found
        .iter()
        .enumerate()
        .map(|(place, (folder, lost))| SurvivorView::new(folder, lost, place == best))
        .collect();
    context.terminal.list(&rows)?;
    let reports = || found.iter().map(|(_, lost)| lost.report());
    let Some(newest) = reports().nth(best) else { return Ok(()) };
    let here = reports().filter(|report| report.votes).count();
    if here > newest.voters / 2 {
        let words = "if their nodes can run, start them instead, and nothing is lost";
        context.terminal.say(&format!("{here} of {} voters are here, a majority: {words}", newest.voters));
    }
    context.terminal.say("next: reveille recover run with the same folders, --config FILE, and an empty --data-dir");
    Ok(())
}

async fn recover(context: &CommandContext<'_>, args: RecoverRunArgs) -> Result<(), Stop> {
    let RecoverRunArgs { folders, without_opt_outs, node } = args;
    let config = node.load()?;
    let mut survivors = open_all(&folders)?;
    check_one_cluster(&survivors)?;
    // Files are taken from the best folder first.
    let best = best(&survivors);
    survivors.swap(0, best);
    let (_, lost) = survivors.first().ok_or_else(no_folder)?;
    let report = lost.report().clone();
    let opt_outs = match config.backup.target.is_some() && !without_opt_outs {
        true => opt_outs_after(context, &config.backup, &report).await?,
        false => StreamedOptOuts::default(),
    };
    context
        .confirm(&format!(
            "Make a new cluster of {}, whose last entry is {}? What only the other {} had is lost.",
            report.name,
            report.last.map_or(0, |last| last.index),
            format::counted(report.voters.saturating_sub(1) as u64, "voter")
        ))
        .await?;
    let former = FormerState { cluster: report.cluster, ledger: lost.ledger().clone(), opt_outs };
    found(context, config, former, SurvivorFiles { folders: survivors }).await
}

/// Reads the opt-outs that the folder may lack from the target of backups.
async fn opt_outs_after(
    context: &CommandContext<'_>,
    backups: &BackupConfig,
    report: &FolderReport,
) -> Result<StreamedOptOuts, Failure> {
    let (cluster, snapshot, last) = (report.cluster, report.snapshot_index, report.last.map_or(0, |last| last.index));
    let unknown = |why: String| no_opt_outs(format!("opt-outs after entry {last} are not known: {why}"));
    let target = open_target(backups, "backup.target").map_err(|error| unknown(error.message))?;
    let read = aside(context, move |_| {
        let listed = backup::list(&*target)?;
        let own = || listed.iter().filter(|listed| listed.id.cluster == cluster);
        let newest = own().filter(|listed| listed.verified).map(|listed| listed.id.index).max();
        let oldest = own().map(|listed| listed.id.index).min();
        // What the folder has after its snapshot may have had no majority: then other entries have these indexes. No
        // file has changes of before the oldest backup.
        let after = snapshot.max(oldest.unwrap_or(0).min(last));
        Ok::<_, BackupError>((newest, oldest, opt_outs::read(&*target, cluster, after)))
    });
    let (newest, oldest, streamed) = read.await?.map_err(|error| unknown(error.to_string()))?;
    if let Some(newest) = newest.filter(|newest| *newest > last) {
        let words = "is newer than these folders: reveille restore run may lose less";
        context.terminal.say(&format!("backup {newest} {words}"));
    }
    if oldest.is_none() {
        return Err(unknown("the target has no backup of this cluster".to_owned()));
    }
    streamed.map_err(|error| unknown(error.to_string()))
}

fn no_folder() -> Failure {
    Failure::usage("DIR", "no folder is named".to_owned(), "name the data folder of each node that is left")
}

/// Refuses folders of several clusters: the last entries of two logs cannot be compared.
fn check_one_cluster(found: &[(PathBuf, OfflineFolder)]) -> Result<(), Failure> {
    let clusters: BTreeSet<_> = found.iter().map(|(_, lost)| lost.report().cluster.to_string()).collect();
    if clusters.len() < 2 {
        return Ok(());
    }
    let of_cluster = |(folder, lost): &(PathBuf, OfflineFolder)| {
        format!("{} is of cluster {}", folder.display(), lost.report().cluster)
    };
    let named: Vec<String> = found.iter().map(of_cluster).collect();
    let message = format!("the folders are of different clusters, and cannot be compared: {}", named.join(", "));
    Err(Failure::usage("DIR", message, "name folders of one cluster only"))
}

fn open_all(folders: &[PathBuf]) -> Result<Vec<(PathBuf, OfflineFolder)>, Failure> {
    folders.iter().map(|folder| Ok((folder.clone(), open(folder)?))).collect()
}

fn open(folder: &Path) -> Result<OfflineFolder, Failure> {
    let node = node_of(folder).map_err(|error| unreadable(folder, &error))?;
    let no_node = || unreadable(folder, &"no node has used it");
    OfflineFolder::open(folder, node.ok_or_else(no_node)?, level::highest()).map_err(|error| unreadable(folder, &error))
}

fn unreadable(folder: &Path, error: &impl ToString) -> Failure {
    let message = format!("{} cannot be used: {}", folder.display(), error.to_string());
    Failure::new(Exit::General, "DATA_FOLDER", message, "stop its node, or leave the folder out")
}

/// Returns the position of the folder with the last entry, as an election compares them.
fn best(found: &[(PathBuf, OfflineFolder)]) -> usize {
    let order = |report: &FolderReport| report.last.map(|last| (last.term, last.leader, last.index));
    let newest = found.iter().enumerate().max_by_key(|(_, (_, lost))| order(lost.report()));
    newest.map_or(0, |(place, _)| place)
}

/// The data folder of a node that does not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SurvivorView {
    folder: String,
    node: String,
    name: String,
    cluster: String,
    /// Last log entry; null if there is none.
    last_index: Option<u64>,
    last_term: Option<u64>,
    /// Term of its last vote; null if it never voted.
    vote_term: Option<u64>,
    snapshot_index: u64,
    /// Level of the ledger.
    level: u32,
    /// Ledger time of its state.
    ledger_time: String,
    /// Members with a vote, as its last membership has them.
    voters: usize,
    /// The end of its log was torn by a power cut.
    torn: bool,
    /// `recover run` takes its state.
    best: bool,
}

impl SurvivorView {
    /// Shows a folder.
    pub fn new(folder: &Path, lost: &OfflineFolder, best: bool) -> SurvivorView {
        let (report, head) = (lost.report(), lost.ledger().head());
        SurvivorView {
            folder: folder.display().to_string(),
            node: report.node.to_string(),
            name: report.name.clone(),
            cluster: report.cluster.to_string(),
            last_index: report.last.map(|last| last.index),
            last_term: report.last.map(|last| last.term),
            vote_term: report.vote.map(|vote| vote.term),
            snapshot_index: report.snapshot_index,
            level: head.level,
            ledger_time: time_text(head.now),
            voters: report.voters,
            torn: report.torn,
            best,
        }
    }
}

own_objects!(SurvivorView);

impl View for SurvivorView {
    const NAME: &'static str = "folder";
    const NOUN: &'static str = "folders";
    const COLUMNS: &'static [&'static str] =
        &["FOLDER", "NODE", "CLUSTER", "VOTERS", "LAST ENTRY", "TERM", "SNAPSHOT", "LEVEL", "LEDGER TIME", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let number = |number: Option<u64>| Cell::or_dash(number.map(|number| number.to_string()).as_deref());
        let state = match (self.best, self.torn) {
            (true, false) => Cell::toned("best", Tone::Good),
            (true, true) => Cell::toned("best, end torn", Tone::Notable),
            (false, true) => Cell::toned("end torn", Tone::Notable),
            (false, false) => Cell::toned("older", Tone::Dim),
        };
        vec![
            self.folder.as_str().into(),
            if self.name.is_empty() { self.node.as_str().into() } else { self.name.as_str().into() },
            self.cluster.get(..8).unwrap_or(&self.cluster).into(),
            self.voters.to_string().into(),
            number(self.last_index),
            number(self.last_term),
            self.snapshot_index.to_string().into(),
            self.level.to_string().into(),
            self.ledger_time.as_str().into(),
            state,
        ]
    }
}
