//! The only writer of the state (P2): a thread that applies committed entries in order.
//!
//! For each batch the thread decodes the entries, applies them under the ledger's lock, publishes the applied index,
//! sends effects as hints, and answers the proposers. The order matters: a proposer or an actor can read every change
//! of which it is notified.
//!
//! An unreadable entry is a [`FatalError`] and is never skipped. A panic of `apply` is a fatal error too. The lock is
//! held for only one batch, so that a short read does not wait long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::entry::RaftEntry;
use openraft::storage::{ApplyResponder, EntryResponder};
use reveille_ledger::command::{Command, Entry as LedgerEntry};
use reveille_ledger::effect::Effect;
use reveille_ledger::reply::CommandReply;
use reveille_ledger::storage::FrozenState;
use reveille_ledger::{ApplyResult, Ledger};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::crash;
use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::state_machine::applied_state::{AppliedState, record_lock_time};
use crate::state_machine::checkpoints::Checkpoints;
use crate::state_machine::hint::Hint;
use crate::state_machine::position::AppliedPosition;
use crate::types::{EntryPayload, LogId, Membership, ReplyBytes, StoredMembership, TypeConfig};

/// Maximum size of a batch. The ledger's lock is held for one batch: at about 10 us an entry, a few milliseconds.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum number of jobs in the thread's queue: one running and one ready.
const JOBS_MAX: usize = 2;

/// A committed entry from openraft, and the responder for its proposer.
struct CommittedEntry {
    id: LogId,
    payload: EntryPayload,
    responder: Option<ApplyResponder<TypeConfig>>,
}

enum Job {
    Apply(Vec<CommittedEntry>),
    Replace(Box<Ledger>, AppliedPosition),
}

/// Handle of the apply thread.
#[derive(Clone)]
pub(crate) struct ApplyThread {
    applied_state: Arc<AppliedState>,
    /// Each job with the sender that completes when it is done. Dropped after a failure.
    jobs: mpsc::Sender<(Job, oneshot::Sender<()>)>,
}

impl ApplyThread {
    /// Starts the thread. It ends when the last handle is dropped; then the returned receiver completes.
    pub fn start(
        applied_state: Arc<AppliedState>,
        execution: Execution,
    ) -> Result<(ApplyThread, oneshot::Receiver<()>), FatalError> {
        let (jobs, work) = mpsc::channel(JOBS_MAX);
        let (ended, end) = oneshot::channel();
        let run = ApplyWorker { applied_state: Arc::clone(&applied_state), execution, work }.run(ended);
        match execution {
            Execution::Threads => {
                let runtime = Handle::current();
                let thread = std::thread::Builder::new().name("apply".to_owned()).spawn(move || runtime.block_on(run));
                thread
                    .map_err(|error| FatalError::Broken(format!("the thread that applies does not start: {error}")))?;
            }
            Execution::Inline => drop(tokio::spawn(run)),
        }
        Ok((ApplyThread { applied_state, jobs }, end))
    }

    pub fn applied_state(&self) -> &Arc<AppliedState> {
        &self.applied_state
    }

    /// Applies the entries of the stream in batches. Returns when all are applied.
    pub async fn apply<S>(&self, mut entries: S) -> Result<(), std::io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, std::io::Error>> + Unpin + OptionalSend,
    {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            if let EntryPayload::Normal(command) = &entry.payload {
                bytes += command.0.len();
            }
            batch.push(CommittedEntry { id: entry.log_id(), payload: entry.payload, responder });
            if batch.len() >= BATCH_ENTRIES_MAX || bytes >= BATCH_BYTES_MAX {
                bytes = 0;
                self.run_job(Job::Apply(std::mem::take(&mut batch))).await?;
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.run_job(Job::Apply(batch)).await
    }

    /// Replaces the whole state by that of a snapshot.
    pub async fn replace(&self, ledger: Ledger, position: AppliedPosition) -> Result<(), std::io::Error> {
        self.run_job(Job::Replace(Box::new(ledger), position)).await
    }

    async fn run_job(&self, job: Job) -> Result<(), std::io::Error> {
        let (done, end) = oneshot::channel();
        let sent = self.jobs.send((job, done)).await.is_ok();
        if sent && end.await.is_ok() {
            return Ok(());
        }
        let gone = || FatalError::Broken("the thread that applies is gone".to_owned());
        Err(std::io::Error::other(self.applied_state.fatal_errors.get().unwrap_or_else(gone)))
    }
}

struct ApplyWorker {
    applied_state: Arc<AppliedState>,
    execution: Execution,
    work: mpsc::Receiver<(Job, oneshot::Sender<()>)>,
}

/// A decoded entry.
enum DecodedEntry {
    Nothing,
    Membership(Membership),
    Command(Box<LedgerEntry>),
}

/// Result of a batch.
struct AppliedBatch {
    replies: Vec<Option<CommandReply>>,
    effects: Vec<(u64, Effect)>,
    /// The state at an index at which replicas are compared.
    checkpoint: Option<(u64, FrozenState)>,
    /// Set if the batch ended before its last entry.
    fatal_error: Option<FatalError>,
}

fn read(entry: &mut CommittedEntry) -> Result<DecodedEntry, FatalError> {
    match std::mem::replace(&mut entry.payload, EntryPayload::Blank) {
        EntryPayload::Blank => Ok(DecodedEntry::Nothing),
        EntryPayload::Membership(membership) => Ok(DecodedEntry::Membership(membership)),
        EntryPayload::Normal(command) => match LedgerEntry::from_bytes(&command.0) {
            Ok(entry) => Ok(DecodedEntry::Command(Box::new(entry))),
            Err(error) => Err(FatalError::Unreadable { index: entry.id.index, detail: error.to_string() }),
        },
    }
}

impl ApplyWorker {
    /// Does one job after the other, until one fails: its error is raised before its sender is dropped.
    async fn run(mut self, ended: oneshot::Sender<()>) {
        while let Some((job, done)) = self.work.recv().await {
            let panicked = |_| Err(FatalError::Broken("the thread that applies panicked".to_owned()));
            match catch_unwind(AssertUnwindSafe(|| self.do_one(job))).unwrap_or_else(panicked) {
                // The send fails if Raft has ended meanwhile, which does no harm.
                Ok(()) => drop(done.send(())),
                Err(fatal_error) => {
                    self.applied_state.fatal_errors.raise(fatal_error);
                    break;
                }
            }
        }
        let _ = ended.send(());
    }

    fn do_one(&self, job: Job) -> Result<(), FatalError> {
        match job {
            Job::Apply(entries) => self.apply(entries),
            Job::Replace(ledger, position) => {
                self.replace(*ledger, position);
                Ok(())
            }
        }
    }

    fn apply(&self, mut entries: Vec<CommittedEntry>) -> Result<(), FatalError> {
        let commands = entries.iter_mut().map(read).collect::<Result<Vec<_>, _>>()?;
        let applied_state = Arc::clone(&self.applied_state);
        let mut ledger = applied_state.ledger.write();
        let mut position = applied_state.position.lock().clone();
        let mut index = 0;
        let work = AssertUnwindSafe(|| {
            apply_all(&applied_state, (&mut ledger, &mut position), &mut index, &entries, commands)
        });
        let Ok(AppliedBatch { replies, effects, checkpoint, fatal_error }) = catch_unwind(work) else {
            // An entry is half applied. No read, gate or snapshot may see that state, so an empty ledger replaces it
            // before the lock is released.
            *ledger = Ledger::new();
            let fatal_error = FatalError::Poison { index };
            applied_state.fatal_errors.raise(fatal_error.clone());
            return Err(fatal_error);
        };
        let applied = ledger.head().applied;
        *applied_state.position.lock() = position;
        drop(ledger);

        if let Some((index, state)) = checkpoint {
            Checkpoints::hash_later(&applied_state.checkpoints, self.execution, index, state);
        }
        applied_state.applied.send_replace(applied);
        if applied_state.is_live() {
            effects.into_iter().for_each(|(index, effect)| applied_state.hint(Hint::Effect { index, effect }));
        }
        for (entry, reply) in entries.into_iter().zip(replies) {
            if let Some(responder) = entry.responder {
                responder.send(ReplyBytes(reply.as_ref().map(encode_reply).unwrap_or_default()));
            }
        }
        fatal_error.map_or(Ok(()), Err)
    }

    fn replace(&self, ledger: Ledger, position: AppliedPosition) {
        let applied = ledger.head().applied;
        let applied_state = &self.applied_state;
        let former = {
            let mut current = applied_state.ledger.write();
            *applied_state.position.lock() = position;
            std::mem::replace(&mut *current, ledger)
        };
        drop(former);
        crash::point("state-machine.replace");
        applied_state.applied.send_replace(applied);
        applied_state.hint(Hint::Resync);
    }
}

/// Applies entries in order, up to the first one that this build must not apply. `applying` is set to the index of the
/// current entry, so that a panic can be reported with it.
fn apply_all(
    applied_state: &AppliedState,
    (ledger, position): (&mut Ledger, &mut AppliedPosition),
    applying: &mut u64,
    entries: &[CommittedEntry],
    commands: Vec<DecodedEntry>,
) -> AppliedBatch {
    let replies = Vec::with_capacity(entries.len());
    let mut batch = AppliedBatch { replies, effects: Vec::new(), checkpoint: None, fatal_error: None };
    for (committed, command) in entries.iter().zip(commands) {
        let index = committed.id.index;
        *applying = index;
        let entry = match &command {
            DecodedEntry::Command(entry) => Some(&**entry),
            DecodedEntry::Membership(_) | DecodedEntry::Nothing => None,
        };
        let archives = entry.is_some_and(|entry| matches!(entry.command, Command::Archive(_))).then(Instant::now);
        let applied = match apply_entry(ledger, index, entry, applied_state.highest_level) {
            Ok(applied) => applied,
            Err(fatal_error) => {
                batch.fatal_error = Some(fatal_error);
                break;
            }
        };
        if let Some(begun) = archives {
            record_lock_time("archive", begun);
        }
        if let DecodedEntry::Membership(membership) = command {
            position.membership = StoredMembership::new(Some(committed.id), membership);
            crash::point("membership.apply");
        }
        let effects = &mut batch.effects;
        batch.replies.push(applied.map(|applied| {
            effects.extend(applied.effects.into_iter().map(|effect| (index, effect)));
            applied.reply
        }));
        position.last = Some(committed.id);
        position.level = ledger.head().level;
        if Checkpoints::is_due(ledger) {
            let begun = Instant::now();
            batch.checkpoint = Some((index, ledger.freeze()));
            record_lock_time("hash", begun);
        }
        crash::point("state-machine.mid-apply-batch");
    }
    batch
}

/// Applies an entry. `None` is an entry of Raft itself, past which the applied index moves.
///
/// # Errors
/// The entry raises the ledger above level `highest`, or has a command of such a level. It is not applied: it, or entries
/// after it, may have a meaning that this build does not know (P23).
pub(crate) fn apply_entry(
    ledger: &mut Ledger,
    index: u64,
    entry: Option<&LedgerEntry>,
    highest: u32,
) -> Result<Option<ApplyResult>, FatalError> {
    let Some(entry) = entry else {
        // Index 0 is the membership of `initialize`; the ledger counts from 1.
        if index > 0 {
            ledger.skip(index);
        }
        return Ok(None);
    };
    let needs = entry.command.level();
    if needs > highest {
        let detail = format!("its command needs level {needs}, and this build applies up to {highest}");
        return Err(FatalError::Unreadable { index, detail });
    }
    if let Some(level) = ledger.raises_to(entry).filter(|level| *level > highest) {
        let detail = format!("it raises the ledger to level {level}, and this build applies up to {highest}");
        return Err(FatalError::Unreadable { index, detail });
    }
    Ok(Some(ledger.apply(index, entry)))
}

/// Encodes a reply, for openraft and for a peer.
pub(crate) fn encode_reply(reply: &CommandReply) -> Vec<u8> {
    postcard::to_stdvec(reply).expect("plain data in memory can be encoded")
}

/// Decodes bytes of [`encode_reply`]. `None` if they are not a reply.
pub(crate) fn decode_reply(bytes: &[u8]) -> Option<CommandReply> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fatal_error::FatalErrorCell;

    fn blank(index: u64) -> CommittedEntry {
        let id = crate::wire::to_log_id(&reveille_proto::peer::v1::LogId { term: 1, leader: 1, index });
        CommittedEntry { id, payload: EntryPayload::Blank, responder: None }
    }

    #[tokio::test]
    async fn panic_of_apply_stops_node_and_leaves_no_half_applied_state() {
        let fatal_errors = FatalErrorCell::new();
        let applied_state =
            Arc::new(AppliedState::new(Ledger::new(), AppliedPosition::default(), fatal_errors.clone()));
        let (apply_thread, ended) = ApplyThread::start(Arc::clone(&applied_state), Execution::Threads).unwrap();
        apply_thread.run_job(Job::Apply(vec![blank(1), blank(2)])).await.unwrap();
        applied_state.check_whole().expect("two entries are applied");

        // The second entry is not above the first one, so `apply` panics.
        let failed = apply_thread.run_job(Job::Apply(vec![blank(3), blank(3)])).await;
        assert!(failed.is_err());
        assert_eq!(fatal_errors.get(), Some(FatalError::Poison { index: 3 }));
        assert!(applied_state.check_whole().is_err(), "no snapshot is made of it");
        assert_eq!(
            applied_state.read(|ledger| ledger.row_count()),
            Ledger::new().row_count(),
            "nothing half-applied is read"
        );
        ended.await.expect("the thread ends");
    }
}
