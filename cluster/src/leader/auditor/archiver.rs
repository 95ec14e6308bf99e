//! Proposes which runs leave the state for the archive, and which old data of finished runs is removed (P24).

use std::time::{Duration, Instant};

use reveille_ledger::command::Command;
use reveille_ledger::ids::Time;
use reveille_ledger::planning::archive::{self, ArchiveCursor};
use reveille_ledger::policy::HOUR_MS;

use crate::leader::leadership::Leadership;
use crate::process::context::NodeContext;

/// Maximum bytes of archive parts that no snapshot has yet, which are in memory. Above it no run is archived.
const UNSAVED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of archive parts. Each has a row of some 200 bytes in the state, for 400 days: a million runs a day
/// make 780,000. Above it no run is archived.
const PARTS_MAX: usize = 1_000_000;

/// Maximum number of batches in one sweep. Each is an entry of its own, so the lock of the ledger is not held for long.
const BATCHES_MAX: usize = 8;

/// The scan for finished runs and old data: some batches in each sweep, and a pause after each complete scan.
pub(super) struct Archiver {
    /// Time from the end of a run to its archiving, by ledger time. Milliseconds.
    after_ms: i64,
    /// Ledger time of the next scan.
    next: Time,
    cursor: ArchiveCursor,
}

impl Archiver {
    pub(super) fn new(after: Duration) -> Archiver {
        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        Archiver { after_ms, next: Time(i64::MIN), cursor: ArchiveCursor::default() }
    }

    /// Archives what one sweep may archive.
    pub(super) async fn archive_batches(&mut self, context: &NodeContext, leadership: &Leadership) {
        for _ in 0..BATCHES_MAX {
            let now = leadership.now();
            if now < self.next || context.replica.read(|ledger| ledger.unsaved_bytes()) > UNSAVED_BYTES_MAX {
                return;
            }
            self.propose_batch(context, leadership, now).await;
        }
    }

    /// Proposes one batch, at most one entry. If the proposal fails, the same batch is found again.
    async fn propose_batch(&mut self, context: &NodeContext, leadership: &Leadership, now: Time) {
        let (mut batch, cursor, parts) = context.replica.read(|ledger| {
            let begun = Instant::now();
            let (batch, cursor) = archive::next_batch(ledger, &self.cursor, now, self.after_ms);
            metrics::histogram!("reveille_ledger_lock_seconds", "cause" => "archive").record(begun.elapsed());
            (batch, cursor, ledger.parts().len())
        });
        if parts > PARTS_MAX && !batch.pages.is_empty() {
            tracing::warn!(
                parts,
                "the archive has too many parts: no run is archived until old parts go; raise archive_after_seconds"
            );
            batch.pages.clear();
        }
        if !batch.is_empty() {
            let (pages, parts) = (batch.pages.len(), batch.parts.len());
            if leadership.propose(Command::Archive(batch)).await.is_none() {
                return;
            }
            tracing::info!(pages, parts, "finished runs were archived, or old parts of the archive removed");
            metrics::counter!("reveille_archived_pages_total").increment(pages as u64);
        }
        match cursor {
            Some(cursor) => self.cursor = cursor,
            // Few large parts are better than many small ones. So a scan waits for some runs.
            None => {
                let pause_ms = (self.after_ms / 24).clamp(1_000, HOUR_MS);
                (self.next, self.cursor) = (now.plus_ms(pause_ms), ArchiveCursor::default());
            }
        }
    }
}
