//! The leader's backups: adds opt-outs to the target, makes a backup when one is due, and removes old ones.
//!
//! The state has the time of the last backup, and the target has the streamed opt-outs. So a new leader continues where
//! the former one stopped. Belongs to a leadership.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reveille_ledger::BackupHistory;
use reveille_ledger::ids::Time;
use reveille_raft::ClusterId;
use tokio::sync::watch;

use super::leadership::Leadership;
use crate::backup::{BackupPlan, OptOutStream, OptOutTables, make, prune};
use crate::process::context::NodeContext;

/// Interval of the check whether a backup is due.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Pause after a failed backup, unless the interval of backups is shorter.
const RETRY_AFTER_MS: i64 = 10 * 60_000;

/// Makes backups until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let (Some(plan), Some(cluster)) = (&context.backups, context.replica.cluster()) else {
        return leadership.ended.cancelled().await;
    };
    tokio::join!(
        stream_opt_outs(&context, &leadership, plan, cluster),
        make_backups(&context, &leadership, plan),
        measure_age(&context, &leadership),
    );
    metrics::gauge!("reveille_backup_age_seconds").set(0.0);
    metrics::gauge!("reveille_backup_missing").set(0.0);
}

/// Measures the age of the last backup, also while the target hangs.
async fn measure_age(context: &NodeContext, leadership: &Leadership) {
    while !leadership.ended() {
        let last = context.replica.read(|ledger| ledger.head().backups.last);
        let age_ms = last.map_or(0, |last| leadership.now().since_ms(last.at).max(0));
        metrics::gauge!("reveille_backup_age_seconds").set(age_ms as f64 / 1_000.0);
        metrics::gauge!("reveille_backup_missing").set(u8::from(last.is_none()));
        leadership.sleep(CHECK_EVERY).await;
    }
}

async fn stream_opt_outs(context: &Arc<NodeContext>, leadership: &Leadership, plan: &BackupPlan, cluster: ClusterId) {
    let new_stream = || OptOutStream::new(Arc::clone(&plan.target), cluster);
    let (mut stream, mut failed) = (new_stream(), false);
    while !leadership.ended() {
        let (tables, now) = (context.replica.read(OptOutTables::of), context.clock.wall());
        let writing = async {
            // A write of a former leadership may hang.
            let permit = Arc::clone(&plan.streaming).acquire_owned().await;
            let write = move || {
                let _permit = permit;
                (stream.write(tables, now), stream)
            };
            context.replica.blocking(write).await
        };
        // A target may hang, and the next leadership must not wait for it. What two leaders write is the same.
        let mut writing = pin!(leadership.ended.run_until_cancelled(writing));
        let written = loop {
            match tokio::time::timeout(plan.opt_outs_within, &mut writing).await {
                Ok(written) => break written,
                Err(_) => {
                    count_failure(failed, &"the target does not answer");
                    failed = true;
                }
            }
        };
        let Some(written) = written else { return };
        let result = match written {
            Ok((result, same)) => {
                stream = same;
                result.map_err(|error| error.to_string())
            }
            // A panic took the stream; a new one finds its place at the target.
            Err(panic) => {
                stream = new_stream();
                Err(panic.to_string())
            }
        };
        match &result {
            Err(error) => count_failure(failed, error),
            Ok(()) if failed => tracing::info!("opt-outs are added to the target of backups again"),
            Ok(()) => {}
        }
        failed = result.is_err();
        leadership.sleep(plan.opt_outs_every).await;
    }
}

/// Counts a failure of the stream, and logs it unless the last write failed too.
fn count_failure(failed: bool, error: &dyn Display) {
    metrics::counter!("reveille_opt_out_stream_failures_total").increment(1);
    if !failed {
        tracing::error!(%error, "opt-outs are not added to the target of backups: a restore now would lose them");
    }
}

async fn make_backups(context: &Arc<NodeContext>, leadership: &Leadership, plan: &BackupPlan) {
    while !leadership.ended() {
        let history = context.replica.read(|ledger| ledger.head().backups);
        if is_due(&history, leadership.now(), plan.every) {
            // A failure is logged, counted and recorded already.
            if let Ok(made) = make(context, watch::Sender::new(None), leadership.ended.clone()).await {
                // If the target hangs, the next backup says so, and nothing is removed before it is made.
                let removing = tokio::time::timeout(plan.stalled_after, remove_old(context, plan, made.id.cluster));
                leadership.ended.run_until_cancelled(removing).await;
            }
        }
        leadership.sleep(CHECK_EVERY).await;
    }
}

/// Returns true if the interval has passed since the last backup, and some time since the last failure.
fn is_due(history: &BackupHistory, now: Time, every: Duration) -> bool {
    let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
    let passed = |since: Option<Time>, ms: i64| since.is_none_or(|since| now.since_ms(since) >= ms);
    passed(history.last.map(|last| last.at), every_ms) && passed(history.failed_at, every_ms.min(RETRY_AFTER_MS))
}

async fn remove_old(context: &Arc<NodeContext>, plan: &BackupPlan, cluster: ClusterId) {
    let (target, keep) = (Arc::clone(&plan.target), plan.keep);
    let pruned = context.replica.blocking(move || prune(&*target, cluster, keep, SystemTime::now())).await;
    match pruned {
        Ok(Ok(pruned)) if pruned.backups > 0 => {
            tracing::info!(backups = pruned.backups, files = pruned.files, bytes = pruned.bytes, "old backups removed");
        }
        Ok(Err(error)) => tracing::warn!(%error, "old backups were not removed"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::LastBackup;

    use super::*;

    #[test]
    fn backup_is_due_after_its_interval_and_a_failure_waits() {
        let (hour, minutes) = (Duration::from_secs(3_600), |count: i64| Time(count * 60_000));
        let last = |at| Some(LastBackup { index: 1, at, bytes: 1 });
        let due = |last, failed_at, now| is_due(&BackupHistory { last, failed_at }, now, hour);
        assert!(due(None, None, minutes(0)));
        assert!(!due(last(minutes(0)), None, minutes(59)) && due(last(minutes(0)), None, minutes(60)));
        assert!(!due(None, Some(minutes(0)), minutes(9)) && due(None, Some(minutes(0)), minutes(10)));
    }
}
