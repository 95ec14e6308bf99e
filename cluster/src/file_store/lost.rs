//! Finds files that are lost: every voter answers that it lacks them (P20). A voter that does not answer proves nothing.
//!
//! The [`fetcher`](super::fetcher) asks about files that it did not get. Lost files do not keep a node from voting or
//! from leaving, nor a backup or a search from going on. A run waits for them: an import of the same list may come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::Hash;

use super::FileStore;
use super::spread::ask_all;
use crate::process::context::NodeContext;
use crate::process::limits::NAMED_MAX;

/// Maximum wait until this node knows who votes: one that was cut off may know former voters only.
const VOTERS_WITHIN: Duration = Duration::from_secs(1);
/// Maximum age of the answers. The fetcher asks about once a second, but a round that fetches much takes longer.
const LOST_FOR: Duration = Duration::from_secs(10);

/// Files that every voter lacked at a time.
#[derive(Default)]
pub(super) struct Lost {
    at: Option<Instant>,
    files: BTreeSet<Hash>,
}

impl Lost {
    /// Returns true if the file was lost then.
    pub fn has(&self, file: &Hash) -> bool {
        self.files.contains(file)
    }
}

impl FileStore {
    /// Returns the files that this node needs and lacks, and that every voter lacked a moment ago.
    pub fn lost(&self) -> BTreeSet<Hash> {
        let (missing, lost) = (self.missing.lock(), self.lost.lock());
        match lost.at {
            Some(at) if at.elapsed() < LOST_FOR => lost.files.intersection(&missing).copied().collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Records what is lost now.
    pub(super) fn set_lost(&self, files: BTreeSet<Hash>) {
        let mut lost = self.lost.lock();
        let new = files.difference(&lost.files).count();
        *lost = Lost { at: Some(Instant::now()), files };
        if new > 0 {
            tracing::warn!(files = new, "every voter lacks these files of audiences or attachments: their runs wait");
        }
    }
}

/// Returns those of these files that every voter lacks. Without an answer of each voter nothing is lost.
pub(super) async fn find_lost(context: &Arc<NodeContext>, files: &[Hash]) -> BTreeSet<Hash> {
    let mut lost = BTreeSet::new();
    if files.is_empty() || context.replica.linearizable(Instant::now() + VOTERS_WITHIN).await.is_err() {
        return lost;
    }
    let voters = context.voters();
    for files in files.chunks(NAMED_MAX) {
        let Ok(missing_at) = ask_all(context, &voters, voters.len(), files).await else { return BTreeSet::new() };
        let is_lost = |file: &&Hash| !missing_at.is_empty() && missing_at.values().all(|lacks| lacks.contains(*file));
        lost.extend(files.iter().filter(is_lost));
    }
    lost
}
