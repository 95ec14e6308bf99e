//! The one door in (P2): committed entries are applied here, in order, on a thread of its own.
//!
//! openraft hands over what is committed; the thread decodes it, applies it to the ledger under its lock,
//! publishes the applied index, sends the effects as hints, and answers whoever proposed it, in this
//! order: what a proposer or an actor is told can already be read. The async runtime only waits.
//!
//! An entry that can not be read is a [`Fault`], never skipped; so is a panic of `apply`. The ledger's
//! lock is held for one batch at most, so a reader that is short delays the leader shortly.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::entry::RaftEntry;
use openraft::storage::{ApplyResponder, EntryResponder};
use prost::bytes::Bytes;
use reveille_ledger::Ledger;
use reveille_ledger::command::Entry as LedgerEntry;
use reveille_ledger::effect::Effect;
use reveille_ledger::reply::CommandReply;
use tokio::sync::{mpsc, oneshot};

use crate::crash;
use crate::drive::Drive;
use crate::fault::Fault;
use crate::state_machine::applied_state::Core;
use crate::state_machine::hint::Hint;
use crate::state_machine::position::Place;
use crate::state_machine::state_mirror::Keeper;
use crate::types::{EntryPayload, LogId, Membership, ReplyBytes, StoredMembership, TypeConfig};

/// Entries and bytes of one batch: what the ledger's lock is held for. At some 10 us an entry this is a
/// few milliseconds.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Batches that wait for the thread: one in work and one ready.
const JOBS_MAX: usize = 2;

/// Changed rows that wait for the state store, at most: some tens of megabytes of keys. Rows, and bytes, wait nowhere.
const CHANGED_MAX: usize = 262_144;

/// What openraft gives to be applied, with who waits for the outcome.
struct Step {
    id: LogId,
    payload: EntryPayload,
    responder: Option<ApplyResponder<TypeConfig>>,
}

enum Job {
    Apply(Vec<Step>, oneshot::Sender<()>),
    Replace(Box<Ledger>, Place, oneshot::Sender<()>),
}

/// The handle to the thread.
#[derive(Clone)]
pub(crate) struct Machine {
    core: Arc<Core>,
    jobs: mpsc::Sender<Job>,
}

impl Machine {
    /// Starts the thread. The receiver is told when it has ended, which it does when the last handle goes.
    pub fn start(core: Arc<Core>, keeper: Keeper, drive: Drive) -> Result<(Machine, oneshot::Receiver<()>), Fault> {
        let (jobs, work) = mpsc::channel(JOBS_MAX);
        let (ended, end) = oneshot::channel();
        let worker = Worker { core: Arc::clone(&core), keeper, work, waiting: None };
        match drive {
            Drive::Thread => {
                let run = move || {
                    worker.run();
                    let _ = ended.send(());
                };
                std::thread::Builder::new()
                    .name("apply".to_owned())
                    .spawn(run)
                    .map_err(|error| Fault::Broken(format!("the thread that applies does not start: {error}")))?;
            }
            Drive::Inline => {
                tokio::spawn(async move {
                    worker.run_inline().await;
                    let _ = ended.send(());
                });
            }
        }
        Ok((Machine { core, jobs }, end))
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Applies what the stream gives, in batches, and returns when all of it is applied.
    pub async fn apply<S>(&self, mut entries: S) -> Result<(), std::io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, std::io::Error>> + Unpin + OptionalSend,
    {
        let mut steps = Vec::new();
        let mut bytes = 0;
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            if let EntryPayload::Normal(command) = &entry.payload {
                bytes += command.0.len();
            }
            steps.push(Step { id: entry.log_id(), payload: entry.payload, responder });
            if steps.len() >= BATCH_ENTRIES_MAX || bytes >= BATCH_BYTES_MAX {
                bytes = 0;
                self.hand_over(|done| Job::Apply(std::mem::take(&mut steps), done)).await?;
            }
        }
        if steps.is_empty() {
            return Ok(());
        }
        self.hand_over(|done| Job::Apply(steps, done)).await
    }

    /// Puts another state in the place of this one.
    pub async fn replace(&self, ledger: Ledger, place: Place) -> Result<(), std::io::Error> {
        self.hand_over(|done| Job::Replace(Box::new(ledger), place, done)).await
    }

    async fn hand_over(&self, job: impl FnOnce(oneshot::Sender<()>) -> Job) -> Result<(), std::io::Error> {
        let (done, end) = oneshot::channel();
        let handed_over = self.jobs.send(job(done)).await.is_ok();
        if handed_over && end.await.is_ok() {
            return Ok(());
        }
        let gone = || Fault::Broken("the thread that applies is gone".to_owned());
        Err(std::io::Error::other(self.core.faults.get().unwrap_or_else(gone)))
    }
}

struct Worker {
    core: Arc<Core>,
    keeper: Keeper,
    work: mpsc::Receiver<Job>,
    /// Who waits for the job in work. Let go only after the fault that ended it was raised.
    waiting: Option<oneshot::Sender<()>>,
}

/// An entry, read.
enum Read {
    Nothing,
    Membership(Membership),
    Command(Box<LedgerEntry>),
}

/// What came of applying entries.
struct Batch {
    replies: Vec<Option<CommandReply>>,
    effects: Vec<(u64, Effect)>,
    /// What ended it before its last entry.
    fault: Option<Fault>,
}

fn read(step: &mut Step) -> Result<Read, Fault> {
    match std::mem::replace(&mut step.payload, EntryPayload::Blank) {
        EntryPayload::Blank => Ok(Read::Nothing),
        EntryPayload::Membership(membership) => Ok(Read::Membership(membership)),
        EntryPayload::Normal(command) => match LedgerEntry::from_bytes(&command.0) {
            Ok(entry) => Ok(Read::Command(Box::new(entry))),
            Err(error) => Err(Fault::Unreadable { index: step.id.index, detail: error.to_string() }),
        },
    }
}

impl Worker {
    fn run(mut self) {
        while let Some(job) = self.work.blocking_recv() {
            if !self.do_guarded(job) {
                break;
            }
        }
        self.keeper.close();
    }

    /// The same as a task.
    async fn run_inline(mut self) {
        while let Some(job) = self.work.recv().await {
            if !self.do_guarded(job) {
                break;
            }
        }
        self.keeper.close();
    }

    /// Does a job and tells who waits. False: it ended in a fault, which was raised before anybody was told.
    fn do_guarded(&mut self, job: Job) -> bool {
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| self.do_one(job)));
        let fault = match done {
            Ok(Ok(())) => None,
            Ok(Err(fault)) => Some(fault),
            Err(_) => Some(Fault::Broken("the thread that applies panicked".to_owned())),
        };
        let goes_on = fault.is_none();
        match (fault, self.waiting.take()) {
            // Dropped: the silence says that it did not come to pass.
            (Some(fault), _waiting) => self.core.faults.raise(fault),
            // Raft may have ended meanwhile.
            (None, Some(waiting)) => drop(waiting.send(())),
            (None, None) => {}
        }
        goes_on
    }

    fn do_one(&mut self, job: Job) -> Result<(), Fault> {
        match job {
            Job::Apply(steps, done) => {
                self.waiting = Some(done);
                self.apply(steps)
            }
            Job::Replace(ledger, place, done) => {
                self.waiting = Some(done);
                self.replace(*ledger, place);
                Ok(())
            }
        }
    }

    fn apply(&mut self, mut steps: Vec<Step>) -> Result<(), Fault> {
        let commands = steps.iter_mut().map(read).collect::<Result<Vec<_>, _>>()?;
        let core = Arc::clone(&self.core);
        let mut ledger = core.ledger.write();
        let mut place = core.place.lock().clone();
        let mut index = 0;
        let work = AssertUnwindSafe(|| apply_all(&core, (&mut ledger, &mut place), &mut index, &steps, commands));
        let Ok(Batch { replies, effects, fault }) = std::panic::catch_unwind(work) else {
            // Half an entry was applied. No read and no gate may see that, so an empty ledger takes its place, and the
            // mirror keeps what it has, while the lock is still held.
            *ledger = Ledger::new();
            let fault = Fault::Poison { index };
            core.faults.raise(fault.clone());
            return Err(fault);
        };
        let applied = ledger.head().applied;
        *core.place.lock() = place;
        core.bound_changes(&mut ledger, CHANGED_MAX);
        drop(ledger);

        core.applied.send_replace(applied);
        if core.is_live() {
            effects.into_iter().for_each(|(index, effect)| core.hint(Hint::Effect { index, effect }));
        }
        for (step, reply) in steps.into_iter().zip(replies) {
            if let Some(responder) = step.responder {
                responder.send(reply.as_ref().map(encode_reply).unwrap_or_default());
            }
        }
        crash::point("machine.after-apply-before-persist");
        self.keeper.note();
        fault.map_or(Ok(()), Err)
    }

    fn replace(&mut self, ledger: Ledger, place: Place) {
        let applied = ledger.head().applied;
        let core = &self.core;
        let former = {
            let mut current = core.ledger.write();
            *core.place.lock() = place;
            core.anew.store(true, Ordering::Relaxed);
            std::mem::replace(&mut *current, ledger)
        };
        drop(former);
        crash::point("machine.replace");
        self.keeper.rebuild();
        core.applied.send_replace(applied);
        core.hint(Hint::LookAtState);
    }
}

/// Applies entries in order, up to the first that this build must not apply. `applying` is the index of the one in
/// work, which names it if it panics.
fn apply_all(
    core: &Core,
    (ledger, place): (&mut Ledger, &mut Place),
    applying: &mut u64,
    steps: &[Step],
    commands: Vec<Read>,
) -> Batch {
    let mut batch = Batch { replies: Vec::with_capacity(steps.len()), effects: Vec::new(), fault: None };
    for (step, command) in steps.iter().zip(commands) {
        let index = step.id.index;
        *applying = index;
        // P23: from such an entry on, what follows may mean something that this build does not know.
        if let Read::Command(entry) = &command
            && let Some(level) = ledger.raises_to(entry).filter(|level| *level > core.highest_level)
        {
            let highest = core.highest_level;
            let detail = format!("it raises the ledger to level {level}, and this build applies up to {highest}");
            batch.fault = Some(Fault::Unreadable { index, detail });
            break;
        }
        batch.replies.push(match command {
            Read::Command(entry) => {
                let applied = ledger.apply(index, &entry);
                batch.effects.extend(applied.effects.into_iter().map(|effect| (index, effect)));
                Some(applied.reply)
            }
            Read::Membership(membership) => {
                place.membership = StoredMembership::new(Some(step.id), membership);
                skip(ledger, index);
                None
            }
            Read::Nothing => {
                skip(ledger, index);
                None
            }
        });
        place.last = Some(step.id);
        place.level = ledger.head().level;
        core.checkpoints.take_when_due(ledger);
        crash::point("machine.mid-apply-batch");
    }
    batch
}

/// Raft's own entries move the applied index only. Index 0 is the membership of `initialize`: the ledger
/// counts from 1 and has nothing to skip there.
fn skip(ledger: &mut Ledger, index: u64) {
    if index > 0 {
        ledger.skip(index);
    }
}

fn encode_reply(reply: &CommandReply) -> ReplyBytes {
    // Plain data in memory: postcard has nothing to refuse there.
    ReplyBytes(postcard::to_stdvec(reply).unwrap_or_default())
}

/// Reads what [`Machine`] answered.
pub(crate) fn decode_reply(bytes: &[u8]) -> Option<CommandReply> {
    postcard::from_bytes(bytes).ok()
}

/// The bytes of a reply, for a peer.
pub(crate) fn reply_bytes(reply: &CommandReply) -> Bytes {
    encode_reply(reply).0.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultCell;
    use crate::store::{Contents, MemoryStore, StateStore};

    fn blank(index: u64) -> Step {
        let id = crate::wire::to_log_id(&reveille_proto::peer::v1::LogId { term: 1, leader: 1, index });
        Step { id, payload: EntryPayload::Blank, responder: None }
    }

    /// What a panic of `apply` has half done is neither read nor kept: the mirror stays at the entry before.
    #[tokio::test]
    async fn panic_of_apply_stops_node_and_leaves_no_half_applied_state() {
        let faults = FaultCell::new();
        let core = Arc::new(Core::new(Ledger::new(), Place::default(), false, faults.clone()));
        let store = MemoryStore::default();
        let keeper = Keeper::start(Box::new(store.clone()), Arc::clone(&core), Drive::Thread).unwrap();
        let (machine, ended) = Machine::start(Arc::clone(&core), keeper, Drive::Thread).unwrap();
        machine.hand_over(|done| Job::Apply(vec![blank(1), blank(2)], done)).await.unwrap();
        core.check_whole().expect("two entries are applied");

        // An entry below the last one: `apply` panics on a place that the replica has lost.
        let failed = machine.hand_over(|done| Job::Apply(vec![blank(3), blank(3)], done)).await;
        assert!(failed.is_err());
        assert_eq!(faults.get(), Some(Fault::Poison { index: 3 }));
        assert!(core.check_whole().is_err());
        assert_eq!(core.read(|ledger| ledger.row_count()), Ledger::new().row_count(), "nothing half-applied is read");
        ended.await.expect("the thread ends");
        if let Contents::State { meta, rows } = store.clone().load().unwrap() {
            let place = crate::state_machine::position::decode_place(&meta).unwrap();
            let (ledger, _) = crate::state_machine::position::assemble(place, rows).expect("one state");
            assert_eq!(ledger.head().applied, 2);
        }
    }
}
