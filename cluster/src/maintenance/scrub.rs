//! The actor that reads all files at rest, slowly and again and again: a disk may lose bits of files that are not read
//! for months, and damage must be found before all copies of a file are damaged.
//!
//! It begins a repair of each damaged file, and checks the damaged files again until they are intact. An operator can
//! request a pass at full speed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::Hash;
use reveille_raft::FileDamage;
use reveille_raft::wal::{CheckedPiece, CheckedTo};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::file_store::FileStoreError;
use crate::maintenance::scrub_report::{FileRepair, ScrubPass, ScrubbedFile};
use crate::process::context::NodeContext;

/// Time from the start of the node to the first pass: a start reads the log and a snapshot anyway.
const FIRST_AFTER: Duration = Duration::from_hours(1);
/// Time from the end of a pass to the next one.
const NEXT_AFTER: Duration = Duration::from_hours(24);
/// Bytes that a pass reads per second, unless an operator requested it.
const BYTES_PER_SECOND: f64 = 1024.0 * 1024.0;
/// Interval in which damaged files are checked again.
const RECHECK_EVERY: Duration = Duration::from_secs(10);

/// Checks until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    tokio::select! {
        () = check_all(&context) => {}
        () = recheck(&context) => {}
        () = stop.cancelled() => {}
    }
}

/// Runs one pass after the other.
async fn check_all(context: &Arc<NodeContext>) {
    let (mut requested, mut next_at) = (context.scrub.requested(), Instant::now() + FIRST_AFTER);
    loop {
        let number = *requested.borrow_and_update();
        let is_requested = number > context.scrub.report().ended;
        let next = async {
            if !is_requested {
                tokio::time::sleep_until(next_at).await;
            }
            pass(context, number, (!is_requested).then_some(BYTES_PER_SECOND)).await;
        };
        tokio::select! {
            () = next => next_at = Instant::now() + NEXT_AFTER,
            // The sender is in the context, so this is a request.
            _ = requested.changed() => {}
        }
    }
}

/// Checks the damaged files again and again.
async fn recheck(context: &Arc<NodeContext>) {
    loop {
        tokio::time::sleep(RECHECK_EVERY).await;
        for file in context.scrub.all_damaged() {
            check(context, file, None).await;
        }
    }
}

/// Checks all files once.
async fn pass(context: &Arc<NodeContext>, requested: u64, bytes_per_second: Option<f64>) {
    let (mut files, mut bytes) = (0, 0);
    let parts: BTreeSet<Hash> = context.replica.read(|ledger| ledger.needed_files().collect());
    let of_replica = context.replica.files_at_rest().into_iter().map(ScrubbedFile::Replica);
    for file in of_replica.chain(parts.into_iter().map(ScrubbedFile::AudiencePart)) {
        bytes += check(context, file, bytes_per_second).await;
        files += 1;
    }
    let pass = ScrubPass { at: context.clock.wall(), files, bytes };
    context.scrub.pass_ended(requested, pass);
    tracing::info!(files, bytes, "all files at rest were checked");
}

/// Checks a file piece by piece, and returns its size in bytes. Begins the repair of a damaged file.
async fn check(context: &Arc<NodeContext>, file: ScrubbedFile, bytes_per_second: Option<f64>) -> u64 {
    let (mut from, mut bytes) = (CheckedTo::default(), 0);
    loop {
        let own = Arc::clone(context);
        let checked = context.replica.blocking(move || match file {
            ScrubbedFile::Replica(file) => own.replica.check_at_rest(file, from),
            ScrubbedFile::AudiencePart(part) => check_part(&own, part),
        });
        // The runtime ends.
        let Ok(checked) = checked.await else { return bytes };
        match checked {
            Ok(piece) => {
                bytes += piece.bytes;
                metrics::counter!("reveille_scrub_bytes_total").increment(piece.bytes);
                if let Some(rate) = bytes_per_second {
                    tokio::time::sleep(Duration::from_secs_f64(piece.bytes as f64 / rate)).await;
                }
                let Some(next) = piece.next else { break };
                from = next;
            }
            Err(damage) => {
                repair(context, file, damage);
                return bytes;
            }
        }
    }
    if context.scrub.intact(file) {
        tracing::info!(%file, "a damaged file is repaired");
    }
    bytes
}

/// A missing part is not damaged: the fetcher fetches it.
fn check_part(context: &NodeContext, part: Hash) -> Result<CheckedPiece, FileDamage> {
    match context.files.whole(part) {
        Ok(bytes) => Ok(CheckedPiece { bytes: bytes.len() as u64, next: None }),
        Err(FileStoreError::Missing(_)) => Ok(CheckedPiece { bytes: 0, next: None }),
        Err(FileStoreError::Damaged { what, .. }) => Err(FileDamage::Changed(what)),
        Err(FileStoreError::Unreadable { error, .. }) => Err(FileDamage::Unreadable(error)),
    }
}

fn repair(context: &NodeContext, file: ScrubbedFile, damage: FileDamage) {
    if context.scrub.damaged(file, damage.clone()) {
        metrics::counter!("reveille_alarms_total").increment(1);
        match file.repair() {
            FileRepair::FromPeer => tracing::error!(%file, %damage, "a file is damaged: other nodes are asked for it"),
            FileRepair::BySnapshots => tracing::error!(
                %file,
                %damage,
                "a file is damaged: new snapshots replace it; until then this node may not be able to start"
            ),
        }
    }
    match file {
        ScrubbedFile::AudiencePart(part) => context.files.mark_missing(part),
        ScrubbedFile::Replica(file) => context.replica.repair(file),
    }
}
