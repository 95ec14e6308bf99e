//! What the claim workers of one process share: its relays, journal, settler and compiled contents.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::content::{Content, Recipients};
use reveille_ledger::ids::{Fence, Hash};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::claim::WorkedClaim;
use super::injected_bugs;
use super::journal::{Act, Journal, JournalFault, Place};
use super::pool_queue::PoolQueues;
use super::settler::Settler;
use crate::compose::Compiled;
use crate::node::cache::Cache;
use crate::node::context::NodeContext;
use crate::node::supervisor::Failing;
use crate::smtp::registry::RelayRegistry;

/// Bytes of compiled contents that are kept. A compiled content is taken to weigh a multiple of its own bytes.
const COMPILED_BYTES_MAX: usize = 64 * 1024 * 1024;
const COMPILED_FACTOR: usize = 8;
const COMPILED_BYTES: usize = 4 * 1024;
/// Claims whose recipients are read at once: of a disk that hangs, so many threads of the process wait at most.
const READS_MAX: usize = 32;

/// Permits for composing: more than a node has sessions, so that only a crash suspect, which takes all, makes others
/// wait.
pub(crate) const COMPOSING_MAX: u32 = 1 << 16;

/// The journal of one life of a node. Any fault of it stops the node.
pub(crate) struct JournalWriter {
    journal: Mutex<Journal>,
    failing: Failing,
}

impl JournalWriter {
    pub fn new(journal: Journal, failing: Failing) -> JournalWriter {
        JournalWriter { journal: Mutex::new(journal), failing }
    }

    /// Writes one line of the journal, before the act that it announces.
    ///
    /// # Errors
    /// What was announced may not be done. A journal that is broken stops the node (P11): with its gate shut for good
    /// it would only take claims away from nodes that can send. So does a second `begin` (P5): a claim is worked twice.
    pub fn note(&self, place: Place, act: Act) -> Result<(), JournalFault> {
        let records = injected_bugs::records(place, act);
        let noted = if records.is_empty() { Ok(()) } else { self.journal.lock().append(&records) };
        match &noted {
            Err(fault @ JournalFault::Broken(_)) => self.failing.say(&format!("{fault}; make room for --journal-dir")),
            Err(fault) => self.failing.say(&fault.to_string()),
            Ok(()) => {}
        }
        noted
    }
}

/// Shared by the claim workers of one process.
pub(crate) struct WorkerContext {
    pub node: Arc<NodeContext>,
    pub relays: Arc<RelayRegistry>,
    pub journal: JournalWriter,
    pub settler: Settler,
    /// A permit for each email that is being composed, or all of them for a crash suspect (P12). Fair: a suspect waits
    /// for those before it alone.
    pub composing: Semaphore,
    /// Claimed recipients that wait for a session (I12).
    pub queues: PoolQueues<Arc<WorkedClaim>>,
    /// Set when the node stops: what has not begun goes back.
    pub drain: CancellationToken,
    /// Reads of parts of audiences that are not over.
    pub reads: Arc<Semaphore>,
    /// Closed claims whose records stay, because a recipient of them is assumed.
    assumed: Mutex<BTreeSet<Fence>>,
    /// By content and audience, whose columns it is compiled against.
    compiled: Cache<(Hash, Hash), Compiled>,
}

/// The content of a run, compiled for its audience, and the recipients; for a sealed audience the places of its parts.
pub(crate) struct CompiledContent {
    pub compiled: Arc<Compiled>,
    pub recipients: Arc<Recipients>,
}

impl WorkerContext {
    pub fn new(
        node: Arc<NodeContext>,
        relays: Arc<RelayRegistry>,
        journal: JournalWriter,
        settler: Settler,
        drain: CancellationToken,
    ) -> WorkerContext {
        let composing = Semaphore::new(COMPOSING_MAX as usize);
        let (queues, compiled, assumed) = (PoolQueues::default(), Cache::new(COMPILED_BYTES_MAX), Mutex::default());
        let reads = Arc::new(Semaphore::new(READS_MAX));
        WorkerContext { node, relays, journal, settler, composing, queues, drain, reads, assumed, compiled }
    }

    /// The claim is closed in the state that this node has applied. Its records stay where a recipient is assumed:
    /// the next life would take their absence for the proof that nothing was begun (P14). [`WorkerContext::forget_again`] asks
    /// for those once more.
    pub fn forget(&self, fence: Fence) {
        let chunk = self.journal.journal.lock().chunk(fence);
        let assumes = |chunk| {
            let look = |ledger: &Ledger| ledger.closed_claim(chunk, fence).map(|claim| !claim.assumed.is_empty());
            self.node.replica.read(look).unwrap_or(false)
        };
        if chunk.is_some_and(assumes) {
            self.assumed.lock().insert(fence);
        } else {
            self.journal.journal.lock().forget(fence);
        }
    }

    /// Checks closed claims with assumed recipients again: a decision may have ended that, or their run is gone.
    pub fn forget_again(&self) {
        let assumed = std::mem::take(&mut *self.assumed.lock());
        assumed.into_iter().for_each(|fence| self.forget(fence));
    }

    /// A content compiled for an audience. Decoded and compiled outside the ledger's lock, once for all callers.
    ///
    /// # Errors
    /// Why it cannot be composed.
    pub fn compiled_content(&self, content: Hash, audience: Hash) -> Result<CompiledContent, String> {
        let recipients = self.node.recipients(audience)?;
        let compiled = self.compiled.get((content, audience), || {
            let blob = self.node.replica.read(|ledger| ledger.blob(&content).map(<[u8]>::to_vec));
            let blob = blob.ok_or("the content of the run is not in the ledger")?;
            let read = Content::from_blob(&blob).ok_or("the content of the run cannot be read")?;
            let compiled = Compiled::new(&read, recipients.columns()).map_err(|error| error.to_string())?;
            Ok::<_, String>((compiled, COMPILED_BYTES + COMPILED_FACTOR * blob.len()))
        })?;
        Ok(CompiledContent { compiled, recipients })
    }
}
