//! Makes a backup on this node, beside its other work: on a thread of its own, at a limited pace.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::Command;
use reveille_ledger::{BackupResult, LastBackup};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::create::{BackupSource, MadeBackup, create};
use super::plan::BackupPlan;
use super::work::{BackupError, BackupProgress, BackupTask};
use crate::process::context::NodeContext;

/// Maximum wait until this node has applied what was answered before.
const FRESH_WITHIN: Duration = Duration::from_secs(10);
/// Maximum wait for the entry that records the backup.
const RECORD_WITHIN: Duration = Duration::from_secs(30);

/// Makes a backup of all that was answered before this call, and verifies it. Returns when it is done, or after `stop`.
/// While it makes no progress, because the target hangs, it counts as failed again and again, and is waited for.
///
/// # Errors
/// [`BackupError`]. Former backups stay as they are.
pub async fn make(
    context: &Arc<NodeContext>,
    progress: watch::Sender<Option<BackupProgress>>,
    stop: CancellationToken,
) -> Result<MadeBackup, BackupError> {
    let why = || BackupError::Unavailable("this node is configured without a target for backups".to_owned());
    let plan = context.backups.as_ref().ok_or_else(why)?;
    let mut making = pin!(stop.run_until_cancelled(make_uncounted(context, plan, progress, stop.clone())));
    let made = loop {
        tokio::select! {
            made = &mut making => break made.unwrap_or(Err(BackupError::Stopped)),
            () = stalled(plan) => {
                let seconds = plan.stalled_after.as_secs();
                tracing::error!(seconds, "the backup makes no progress, and counts as failed: its target does not answer");
                record(context, BackupResult::Failed).await;
            }
        }
    };
    let ended = match &made {
        Ok(MadeBackup { id, ledger_time, bytes, .. }) => {
            BackupResult::Verified(LastBackup { index: id.index, at: *ledger_time, bytes: *bytes })
        }
        Err(BackupError::Stopped | BackupError::Unavailable(_)) => return made,
        Err(_) => BackupResult::Failed,
    };
    record(context, ended).await;
    match &made {
        Ok(MadeBackup { lost, .. }) if !lost.is_empty() => {
            tracing::warn!(lost = lost.len(), "backup made and verified, without files that every voter lacks");
        }
        Ok(MadeBackup { id, bytes, files, copied_files, copied_bytes, .. }) => {
            tracing::info!(index = id.index, bytes, files, copied_files, copied_bytes, "backup made and verified");
        }
        Err(error) => tracing::error!(%error, "no backup was made; former ones are as they were"),
    }
    made
}

/// Returns when no backup of this node has made progress for some time.
async fn stalled(plan: &BackupPlan) {
    let mut moves = plan.moves.subscribe();
    // The sender is in the plan, so each result is a change.
    while tokio::time::timeout(plan.stalled_after, moves.changed()).await.is_ok() {}
}

/// Counts how a backup ended, and tells it the ledger.
async fn record(context: &NodeContext, ended: BackupResult) {
    let result = if ended == BackupResult::Failed { "failed" } else { "verified" };
    metrics::counter!("reveille_backups_total", "result" => result).increment(1);
    let recorded = context.replica.propose(&Command::BackupEnded(ended), Instant::now() + RECORD_WITHIN).await;
    if let Err(error) = recorded {
        // The next leader makes another one earlier than needed.
        tracing::warn!(%error, "the ledger does not know of the backup");
    }
}

async fn make_uncounted(
    context: &Arc<NodeContext>,
    BackupPlan { target, running, moves, .. }: &BackupPlan,
    progress: watch::Sender<Option<BackupProgress>>,
    stop: CancellationToken,
) -> Result<MadeBackup, BackupError> {
    let unavailable = |why: &str| BackupError::Unavailable(why.to_owned());
    let cluster = context.replica.cluster().ok_or_else(|| unavailable("this node belongs to no cluster yet"))?;
    // The semaphore is never closed.
    let permit = stop.run_until_cancelled(Arc::clone(running).acquire_owned()).await.ok_or(BackupError::Stopped)?;
    let permit = permit.map_err(|closed| unavailable(&closed.to_string()))?;
    let fresh = context.replica.linearizable(Instant::now() + FRESH_WITHIN).await;
    fresh.map_err(|error| unavailable(&error.to_string()))?;
    let (done, end) = oneshot::channel();
    let (own, target, moves) = (Arc::clone(context), Arc::clone(target), moves.clone());
    let work = move || {
        let _permit = permit;
        let source = BackupSource {
            cluster,
            replica: &own.replica,
            parts: &own.files,
            node: &own.introduction.name,
            version: &own.introduction.version,
            now: own.clock.wall(),
        };
        let report = |now| {
            moves.send_replace(());
            progress.send_replace(Some(now));
        };
        // After a stop the receiver is gone.
        let _ = done.send(create(&source, &*target, &mut BackupTask::of_node(stop, report)));
    };
    let thread = std::thread::Builder::new().name("backup".to_owned()).spawn(work);
    thread.map_err(|error| unavailable(&format!("a thread does not start: {error}")))?;
    end.await.unwrap_or_else(|_| Err(BackupError::Source("the thread that makes it died".to_owned())))
}
