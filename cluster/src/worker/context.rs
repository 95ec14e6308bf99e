//! State shared by the workers of one process: relays, journal, settler and compiled contents.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::content::Content;
use reveille_ledger::ids::{Fence, Hash};
use reveille_ledger::injected_bugs::{self, Bug};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::attachments::AttachmentCache;
use super::claim::ClaimWork;
use super::injected_bugs as worker_bugs;
use super::journal::{ClaimedSlot, Journal, JournalFault, JournalStep, Record};
use super::pool_queue::PoolQueues;
use super::settler::Settler;
use crate::compose::Compiled;
use crate::process::cache::Cache;
use crate::process::context::NodeContext;
use crate::process::supervisor::StopReporter;
use crate::smtp::registry::RelayRegistry;

/// Maximum bytes of compiled contents in the cache. A compiled content is assumed to need a multiple of its source's
/// bytes.
const COMPILED_BYTES_MAX: usize = 64 * 1024 * 1024;
const COMPILED_FACTOR: usize = 8;
/// A short content needs 24 KB (measured: 20,000 of them take 470 MB).
const COMPILED_BYTES: usize = 24 * 1024;
/// Maximum number of claims whose recipients are read at once. It bounds the threads that can hang on a disk.
const READS_MAX: usize = 32;

/// Number of permits for composing. It exceeds the sessions of a node, so only a crash suspect, which takes all
/// permits, makes others wait.
pub(crate) const COMPOSING_MAX: u32 = 1 << 16;

/// The journal of one incarnation. Any error in it stops the node.
pub(crate) struct JournalWriter {
    journal: Mutex<Journal>,
    stop_reporter: StopReporter,
}

impl JournalWriter {
    pub fn new(journal: Journal, stop_reporter: StopReporter) -> JournalWriter {
        JournalWriter { journal: Mutex::new(journal), stop_reporter }
    }

    /// Returns the reporter by which a failure stops the node.
    pub fn stop_reporter(&self) -> StopReporter {
        self.stop_reporter.clone()
    }

    /// Writes the record of a step; the caller takes the step afterwards.
    ///
    /// # Errors
    /// Fails if the announced step must not be taken, and stops the node. With a broken journal (P11) the node's gate
    /// stays closed, and it would only take claims away from other nodes. A second `handoff` (P5) means that a claim is
    /// worked on twice.
    pub fn append(&self, claimed_slot: ClaimedSlot, step: JournalStep) -> Result<(), JournalFault> {
        let record = Record { claimed_slot, step };
        let appended = if injected_bugs::is(Bug::JournalAfterAct) {
            worker_bugs::append_after_act(&mut self.journal.lock(), &record)
        } else {
            self.journal.lock().append(&record)
        };
        match &appended {
            Err(fault @ JournalFault::Broken(_)) => {
                self.stop_reporter.report(&format!("{fault}; make room for --journal-dir"))
            }
            Err(fault) => self.stop_reporter.report(&fault.to_string()),
            Ok(()) => {}
        }
        appended
    }

    /// Adds the record of a step that may be lost in a crash ([`Journal::append_with_next`]).
    pub fn append_with_next(&self, claimed_slot: ClaimedSlot, step: JournalStep) {
        self.journal.lock().append_with_next(&Record { claimed_slot, step });
    }
}

/// Context of the workers of one process.
pub(crate) struct WorkerContext {
    pub node: Arc<NodeContext>,
    pub relays: Arc<RelayRegistry>,
    pub journal: JournalWriter,
    pub settler: Settler,
    /// One permit for each email that is being composed, or all permits for a crash suspect (P12). The semaphore is
    /// fair: a suspect waits only for emails that came before it.
    pub composing: Semaphore,
    /// Claimed recipients that wait for a session (I12).
    pub queues: PoolQueues<Arc<ClaimWork>>,
    /// Cancelled when the node stops. Recipients that have not begun then return to pending.
    pub stop_requested: CancellationToken,
    /// Permits for reads of audience parts ([`READS_MAX`]).
    pub reads: Arc<Semaphore>,
    /// Encoded attachments.
    pub attachments: Arc<AttachmentCache>,
    /// Closed claims whose records the journal keeps, because they have assumed recipients.
    assumed: Mutex<BTreeSet<Fence>>,
    /// Compiled contents by content and names of the audience's columns, which are an input of compiling. A thousand
    /// schedules of one recipient share a compiled content.
    compiled: Cache<(Hash, Hash), Compiled>,
}

impl WorkerContext {
    pub fn new(
        node: Arc<NodeContext>,
        relays: Arc<RelayRegistry>,
        journal: JournalWriter,
        settler: Settler,
        stop_requested: CancellationToken,
    ) -> WorkerContext {
        let composing = Semaphore::new(COMPOSING_MAX as usize);
        let (queues, compiled, assumed) = (PoolQueues::default(), Cache::new(COMPILED_BYTES_MAX), Mutex::default());
        let (reads, attachments) = (Arc::new(Semaphore::new(READS_MAX)), Arc::new(AttachmentCache::new()));
        WorkerContext {
            node,
            relays,
            journal,
            settler,
            composing,
            queues,
            stop_requested,
            reads,
            attachments,
            assumed,
            compiled,
        }
    }

    /// Forgets the journal records of a claim that is closed in the applied state. Keeps them if the claim has assumed
    /// recipients: at the next start, missing records would prove that nothing was begun (P14).
    /// [`WorkerContext::forget_again`] retries those claims later.
    pub fn forget(&self, fence: Fence) {
        let chunk = self.journal.journal.lock().chunk(fence);
        let assumes = |chunk| {
            let has_assumed =
                |ledger: &Ledger| ledger.closed_claim(chunk, fence).map(|claim| !claim.assumed.is_empty());
            self.node.replica.read(has_assumed).unwrap_or(false)
        };
        if chunk.is_some_and(assumes) {
            self.assumed.lock().insert(fence);
        } else {
            self.journal.journal.lock().forget(fence);
        }
    }

    /// Checks closed claims with assumed recipients again. A decision may have changed the recipients, or their run was
    /// archived.
    pub fn forget_again(&self) {
        let assumed = std::mem::take(&mut *self.assumed.lock());
        assumed.into_iter().for_each(|fence| self.forget(fence));
    }

    /// Returns a content compiled for an audience with these columns. It is decoded and compiled once for all callers,
    /// outside the ledger's lock.
    ///
    /// # Errors
    /// Returns the reason why the content cannot be compiled.
    pub fn compiled_content(&self, content: Hash, columns: &[String]) -> Result<Arc<Compiled>, String> {
        self.compiled.get((content, hash_of_columns(columns)), || {
            let blob = self.node.replica.read(|ledger| ledger.blob(&content).map(<[u8]>::to_vec));
            let blob = blob.ok_or("the content of the run is not in the ledger")?;
            let read = Content::from_blob(&blob).ok_or("the content of the run cannot be read")?;
            let compiled = Compiled::new(&read, columns).map_err(|error| error.to_string())?;
            Ok::<_, String>((compiled, COMPILED_BYTES + COMPILED_FACTOR * blob.len()))
        })
    }
}

fn hash_of_columns(columns: &[String]) -> Hash {
    let mut bytes = Vec::new();
    for column in columns {
        bytes.extend_from_slice(&column.len().to_le_bytes());
        bytes.extend_from_slice(column.as_bytes());
    }
    Hash::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_columns_have_another_hash() {
        let hash =
            |columns: &[&str]| hash_of_columns(&columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(hash(&["name", "link"]), hash(&["name", "link"]));
        for other in [&["link", "name"] as &[&str], &["name"], &["namel", "ink"], &[]] {
            assert_ne!(hash(other), hash(&["name", "link"]), "{other:?}");
        }
    }
}
