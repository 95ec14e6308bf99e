//! Implements `reveille backup …`. Only `create` asks a node; the others read the target themselves.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use reveille_cluster::backup::{
    self, BackupError, BackupId, BackupManifest, BackupPhase, BackupProgress, BackupTarget, BackupTask, ListedBackup,
    PrunedBackups, TargetAddress, time_text,
};
use reveille_proto::admin::v1::backup_service_client::BackupServiceClient;
use reveille_proto::admin::v1::{self, Backup, CreateBackupRequest};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::bar::bar;
use super::{Answer, CommandContext, Exit, Failure, Own, RetrySafety, Stop, View, format};
use crate::cli::instant::text;
use crate::cli::view::layout::{Cell, Tone};
use crate::cli::view::own_objects;
use crate::server::config::{BackupConfig, ConfigLayer, Settings, environment};

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

/// The flag that names the target.
const TARGET: &str = "--target";
const COPY: &str = "  {bar:40.green} {pos}/{len} files copied  {eta} left";
const VERIFY: &str = "  {bar:40.green} {pos}/{len} files read back  {eta} left";

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: BackupCommand) -> Result<(), Stop> {
    match command {
        BackupCommand::Create => create(context).await,
        BackupCommand::List(place) => list(context, &place).await,
        BackupCommand::Verify(args) => verify(context, &args).await,
        BackupCommand::Prune(args) => prune(context, &args).await,
    }
}

async fn create(context: &CommandContext<'_>) -> Result<(), Stop> {
    let call = |channel, request| async move { BackupServiceClient::new(channel).create_backup(request).await };
    context.remove_default_limit();
    let mut stream = context.client.call(RetrySafety::Once, CreateBackupRequest {}, call).await?;
    let mut shown = Bars::new(context);
    let broken = |what: String| {
        let next = "reveille backup list says whether it is there; else the same again";
        Failure::new(Exit::General, "ANSWER_LOST", format!("{what}; the node may go on with the backup"), next)
    };
    loop {
        let answer = stream.message().await.map_err(|status| match status.code() {
            tonic::Code::FailedPrecondition => Failure::of_status(&status),
            _ => broken(status.message().to_owned()),
        })?;
        let answer = answer.ok_or_else(|| broken("the answer ended early".to_owned()))?;
        if let Some(created) = answer.backup {
            shown.end();
            return context.terminal.show(&created);
        }
        let phase = match answer.phase() {
            v1::BackupPhase::Verify => BackupPhase::Verify,
            _ => BackupPhase::Copy,
        };
        shown.show(BackupProgress { phase, done: answer.done, of: answer.of });
    }
}

/// Runs blocking work on a thread of its own, which ends with the process, and shows its progress.
pub async fn aside<T: Send + 'static>(
    context: &CommandContext<'_>,
    work: impl FnOnce(&mut BackupTask<'_>) -> T + Send + 'static,
) -> Result<T, Failure> {
    let (progress, mut seen) = watch::channel(None);
    let (done, mut end) = oneshot::channel();
    std::thread::spawn(move || {
        let report = |now| {
            progress.send_replace(Some(now));
        };
        // The command may have been interrupted.
        let _ = done.send(work(&mut BackupTask::new(report)));
    });
    let mut shown = Bars::new(context);
    loop {
        tokio::select! {
            result = &mut end => {
                shown.end();
                return result.map_err(|_| Failure::general("the work panicked", "report it"));
            }
            Ok(()) = seen.changed() => {
                let now: Option<BackupProgress> = *seen.borrow_and_update();
                now.into_iter().for_each(|now| shown.show(now));
            }
        }
    }
}

/// The progress bars of a backup: one for each phase.
struct Bars<'b> {
    context: &'b CommandContext<'b>,
    phase: Option<BackupPhase>,
    bar: indicatif::ProgressBar,
}

impl<'b> Bars<'b> {
    fn new(context: &'b CommandContext<'b>) -> Bars<'b> {
        Bars { context, phase: None, bar: indicatif::ProgressBar::hidden() }
    }

    fn show(&mut self, BackupProgress { phase, done, of }: BackupProgress) {
        if self.phase != Some(phase) || self.bar.length() != Some(of) {
            self.end();
            let template = if phase == BackupPhase::Copy { COPY } else { VERIFY };
            (self.phase, self.bar) = (Some(phase), bar(self.context, of, template));
        }
        self.bar.set_position(done);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

async fn list(context: &CommandContext<'_>, place: &BackupPlace) -> Result<(), Stop> {
    let target = open(&configured(place)?, TARGET)?;
    let listed = aside(context, move |_| backup::list(&*target)).await?.map_err(failure)?;
    let rows: Vec<BackupView> = listed.iter().map(BackupView::from).collect();
    context.terminal.list(&rows)?;
    for ListedBackup { manifest, .. } in &listed {
        manifest.as_ref().err().into_iter().for_each(|error| context.terminal.say(&error.to_string()));
    }
    Ok(())
}

async fn verify(context: &CommandContext<'_>, VerifyArgs { backup, place }: &VerifyArgs) -> Result<(), Stop> {
    let (target, named) = (open(&configured(place)?, TARGET)?, backup.clone());
    let whole = aside(context, move |work| {
        let manifest = choose(&*target, named.as_deref())?;
        backup::verify(&*target, &manifest, work).map_err(failure)?;
        backup::opt_outs::read(&*target, manifest.id.cluster, manifest.id.index).map_err(failure)?;
        Ok::<_, Failure>(manifest)
    });
    let manifest = whole.await??;
    let verified = ListedBackup { id: manifest.id, verified: true, manifest: Ok(manifest) };
    context.terminal.show(&BackupView::from(&verified))
}

async fn prune(context: &CommandContext<'_>, PruneArgs { keep, all_of, place }: &PruneArgs) -> Result<(), Stop> {
    let config = configured(place)?;
    let (target, mut keep) =
        (open(&config, TARGET)?, keep.and_then(|keep| usize::try_from(keep).ok()).unwrap_or(config.keep));
    let of = Arc::clone(&target);
    let listed = aside(context, move |_| backup::list(&*of)).await?.map_err(failure)?;
    let mut clusters: BTreeSet<_> = listed.iter().map(|listed| listed.id.cluster).collect();
    if let Some(named) = all_of {
        clusters.retain(|cluster| cluster.to_string().starts_with(named));
        let [cluster] = *clusters.iter().copied().collect::<Vec<_>>() else {
            let message =
                format!("{} have an id that begins with {named}", format::counted(clusters.len() as u64, "cluster"));
            return Err(Failure::usage("--all-of", message, "reveille backup list names them").into());
        };
        context.confirm(&format!("Remove all backups of cluster {cluster}?")).await?;
        keep = 0;
    }
    let pruned = aside(context, move |_| {
        let mut pruned = PrunedBackups::default();
        for cluster in clusters {
            let more = backup::prune(&*target, cluster, keep, SystemTime::now())?;
            pruned.backups += more.backups;
            pruned.files += more.files;
            pruned.bytes += more.bytes;
        }
        Ok::<_, BackupError>(pruned)
    });
    let PrunedBackups { backups, files, bytes } = pruned.await?.map_err(failure)?;
    let (removed, unneeded) = (format::counted(backups, "backup"), format::counted(files, "file"));
    let words = format!("removed {removed}, and {unneeded} ({}) that no backup needs", size(bytes));
    let own = Own(json!({ "backups": backups, "files": files, "bytes": bytes }));
    context.terminal.show(&Answer::new(&own, backups.to_string(), words))
}

/// Returns the section `backup` of the configuration, with the target that the flag names.
fn configured(BackupPlace { target, config }: &BackupPlace) -> Result<BackupConfig, Failure> {
    let said = ConfigLayer::read(config.as_deref(), environment(), Settings::default());
    let mut config = said.and_then(|said| said.settings.backup.check()).map_err(super::config::failure)?;
    if target.is_some() {
        config.target.clone_from(target);
    }
    Ok(config)
}

/// Opens a target that must be there. A bucket is not asked yet. `flag` names the target on the command line.
pub fn open(config: &BackupConfig, flag: &str) -> Result<Arc<dyn BackupTarget>, Failure> {
    if let Some(TargetAddress::Folder(folder)) = &config.target
        && !folder.is_dir()
    {
        let message = format!("{} is not a folder, or cannot be read", folder.display());
        let next = "mount it, or name the folder that has `backups` and `blocks`";
        return Err(Failure::usage(flag, message, next));
    }
    let missing = || Failure::usage(flag, "no target is named", "name it, or a --config FILE that does");
    config.open().map_err(super::config::failure)?.ok_or_else(missing)
}

/// Returns the manifest of the named backup: `INDEX`, or `CLUSTER-INDEX` with the first digits of the cluster's id. If
/// none is named, of the newest verified one, else of the newest.
pub fn choose(target: &dyn BackupTarget, named: Option<&str>) -> Result<BackupManifest, Failure> {
    let listed = backup::list(target).map_err(failure)?;
    let is_named = |id: &BackupId| match named.map(|name| name.rsplit_once('-').unwrap_or(("", name))) {
        None => true,
        Some((cluster, index)) => id.index.to_string() == index && id.cluster.to_string().starts_with(cluster),
    };
    let found: Vec<&ListedBackup> = listed.iter().filter(|backup| is_named(&backup.id)).collect();
    let clusters: BTreeSet<_> = found.iter().map(|backup| backup.id.cluster).collect();
    if clusters.len() > 1 {
        let names: Vec<String> = clusters.iter().map(ToString::to_string).collect();
        let message = format!("there are backups of several clusters: {}", names.join(", "));
        return Err(Failure::usage("BACKUP", message, "name one as reveille backup list -o name prints it"));
    }
    let chosen = found.iter().find(|backup| backup.verified).or(found.first());
    let Some(chosen) = chosen else {
        let message =
            named.map_or_else(|| "there is no backup".to_owned(), |name| format!("there is no backup {name}"));
        return Err(Failure::usage("BACKUP", message, "reveille backup list shows what there is"));
    };
    backup::read_manifest(target, chosen.id).map_err(failure)
}

/// Returns the failure for opt-outs at a target of backups that cannot be read.
pub fn no_opt_outs(message: String) -> Failure {
    let next = "make the target readable, and repeat; with --without-opt-outs, people who opted out may get email";
    Failure::new(Exit::General, "OPT_OUTS", message, next)
}

/// Converts the error of a target or a backup.
pub fn failure(error: BackupError) -> Failure {
    let next = match &error {
        BackupError::Damaged(_) | BackupError::Unsound { .. } => {
            "take another backup: reveille backup list; a running cluster repairs files with reveille backup create"
        }
        BackupError::Target { .. } => "make the target readable, and writable where something is written",
        BackupError::AboveLevel { .. } => "install the release that wrote it",
        _ => "the same again",
    };
    let reason = if matches!(error, BackupError::Damaged(_)) { "DAMAGED" } else { "BACKUP" };
    Failure::new(Exit::General, reason, error.to_string(), next)
}

impl View for Backup {
    fn name(&self) -> String {
        format!("{}-{}", self.cluster, self.index)
    }

    fn text(&self, _: bool) -> String {
        let at = text(self.ledger_time.as_ref()).unwrap_or_else(|| "-".to_owned());
        format!(
            "backup {} of {at} made and verified: {} of {} copied, {} of content{}",
            self.index,
            format::count(self.copied_files),
            format::counted(self.files, "file"),
            size(self.bytes),
            lacks(self.lost_files.into())
        )
    }
}

/// A backup at a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BackupView {
    name: String,
    cluster: String,
    index: u64,
    /// Null if its manifest is damaged.
    ledger_time: Option<String>,
    written: Option<String>,
    node: Option<String>,
    level: Option<u32>,
    bytes: Option<u64>,
    /// Files that it lacks, because every voter lacked them.
    lost_files: u64,
    /// It was read back whole after it was made.
    verified: bool,
    /// What is wrong with its manifest.
    damaged: Option<String>,
}

impl From<&ListedBackup> for BackupView {
    fn from(ListedBackup { id, verified, manifest }: &ListedBackup) -> BackupView {
        let known = manifest.as_ref().ok();
        BackupView {
            name: format!("{}-{}", id.cluster, id.index),
            cluster: id.cluster.to_string(),
            index: id.index,
            ledger_time: known.map(|known| time_text(known.ledger_time)),
            written: known.map(|known| time_text(known.written)),
            node: known.map(|known| known.node.clone()),
            level: known.map(|known| known.level),
            bytes: known.map(|known| known.bytes()),
            lost_files: known.map_or(0, |known| known.lost.len() as u64),
            verified: *verified,
            damaged: manifest.as_ref().err().map(ToString::to_string),
        }
    }
}

own_objects!(BackupView);

impl View for BackupView {
    const NOUN: &'static str = "backups";
    const COLUMNS: &'static [&'static str] = &["CLUSTER", "INDEX", "LEDGER TIME", "SIZE", "NODE", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let state = match (&self.damaged, self.verified) {
            (Some(_), _) => Cell::toned("manifest damaged", Tone::Bad),
            (None, true) if self.lost_files > 0 => {
                Cell::toned(format!("verified{}", lacks(self.lost_files)), Tone::Notable)
            }
            (None, true) => Cell::toned("verified", Tone::Good),
            (None, false) => Cell::toned("not verified", Tone::Notable),
        };
        vec![
            self.cluster.get(..8).unwrap_or(&self.cluster).into(),
            self.index.to_string().into(),
            Cell::or_dash(self.ledger_time.as_deref()),
            Cell::or_dash(self.bytes.map(size).as_deref()),
            Cell::or_dash(self.node.as_deref()),
            state,
        ]
    }
}

/// Says how many files a backup lacks, because they were lost.
fn lacks(files: u64) -> String {
    if files == 0 { String::new() } else { format!("; lacks {} that no voter had", format::counted(files, "file")) }
}

/// Formats a size.
fn size(number: u64) -> String {
    indicatif::HumanBytes(number).to_string()
}
