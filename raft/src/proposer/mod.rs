//! How a command becomes an entry: stamped with epoch and ledger time by the leader, in the order in which
//! it enters the log (P13, P18).
//!
//! One task stamps and submits, so that time never goes back within the log; openraft gathers what is
//! submitted while a disk write runs into the next one. What is in flight is bounded by count and by
//! bytes: a proposal waits for room until its deadline and is then [`ProposeError::Busy`], which is
//! certain not to have happened.
//!
//! What is not retried: anything whose outcome is unknown. What is: a refusal that only says that the
//! stamp was old ([`Refusal::WrongEpoch`], [`Refusal::TimeWentBack`]), and a node that was not the leader.

pub(crate) mod in_flight;
pub(crate) mod router;

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::alias::WriteResponderOf;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use openraft::vote::RaftLeaderId;
use prost::bytes::Bytes;
use reveille_ledger::command::{Command, ENTRY_BYTES_MAX, Entry};
use reveille_ledger::form;
use reveille_ledger::ids::{Epoch, NodeId, Time};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout_at;

use crate::Raft;
use crate::proposer::in_flight::{IN_FLIGHT_MAX, InFlight, InFlightPermit};
use crate::state_machine::apply_thread::decode_reply;
use crate::types::{EntryBytes, LeaderId, TypeConfig, WriteResponder};

/// A stamp in front of a command: the form, and two numbers of at most ten bytes.
const STAMP_BYTES_MAX: usize = 21;

/// What a leader stamps on every command: set when a term stands, cleared when it ends.
pub trait Stamp: Send + Sync + 'static {
    /// The epoch, and ledger time now, never below what it gave before. `None`: the term is over.
    fn stamp(&self) -> Option<(Epoch, Time)>;
}

/// Why a proposal has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// No node leads that this one can reach. It did not happen.
    #[error("no leader can be reached: a majority of the nodes must run and reach each other")]
    NoLeader,
    /// The leader's term has not begun. It did not happen.
    #[error("the leader is not ready yet: try again in a moment")]
    NotReady,
    /// Above the bound of an entry. It can not happen.
    #[error("the command has {bytes} bytes, more than the {bound} of one entry")]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What is allowed.
        bound: usize,
    },
    /// Too much was in flight until the deadline. It did not happen.
    #[error("too much is in flight: try again later")]
    Busy,
    /// It may have happened, or may yet happen. Ask with the same request id, or look.
    #[error("the outcome is unknown: it may have happened; ask again with the same request id")]
    Unknown,
    /// The epoch for which it was proposed is over here. It did not happen.
    #[error("the epoch for which it was proposed is over")]
    EpochOver,
    /// The ledger's level does not have this command yet. It did not happen.
    #[error("this needs ledger level {needs}, and the ledger is at {ledger}: finish the upgrade of all nodes first")]
    AboveLevel {
        /// Level of the command.
        needs: u32,
        /// Level of the ledger.
        ledger: u32,
    },
    /// This node is stopping. It did not happen.
    #[error("this node is stopping")]
    Stopped,
}

/// How one try at the leader ended.
pub(crate) enum Attempt {
    /// Committed and applied.
    Done(CommandReply),
    /// Not worth another try.
    Failed(ProposeError),
    /// It did not happen; what to say if the deadline passes first.
    Again(ProposeError),
}

struct Proposal {
    command: Bytes,
    /// The one epoch under which it may be stamped; none: whichever stands.
    only: Option<Epoch>,
    permit: Arc<InFlightPermit>,
    deadline: Instant,
    outcome: oneshot::Sender<Attempt>,
}

/// Takes commands to the log of this node, if it leads.
pub(crate) struct Proposer {
    raft: Raft,
    node: NodeId,
    /// The room that proposals take; taken by whoever calls [`Proposer::attempt`].
    pub in_flight: InFlight,
    queue: mpsc::Sender<Proposal>,
    stamp: watch::Sender<Option<Arc<dyn Stamp>>>,
}

impl Proposer {
    /// Must be called on Raft's runtime: it starts the task that submits.
    pub fn start(raft: Raft, node: NodeId) -> Proposer {
        let (queue, proposals) = mpsc::channel(IN_FLIGHT_MAX);
        let stamp = watch::Sender::new(None);
        tokio::spawn(submit(raft.clone(), proposals, stamp.subscribe()));
        Proposer { raft, node, in_flight: InFlight::new(), queue, stamp }
    }

    /// A term stands (`Some`) or has ended (`None`).
    pub fn set_stamp(&self, stamp: Option<Arc<dyn Stamp>>) {
        self.stamp.send_replace(stamp);
    }

    /// Tells when a term stands or ends.
    pub fn stamp(&self) -> watch::Receiver<Option<Arc<dyn Stamp>>> {
        self.stamp.subscribe()
    }

    /// One try on this node.
    pub async fn attempt(
        &self,
        command: Bytes,
        only: Option<Epoch>,
        permit: Arc<InFlightPermit>,
        deadline: Instant,
    ) -> Attempt {
        let (outcome, told) = oneshot::channel();
        let proposal = Proposal { command, only, permit, deadline, outcome };
        // The queue has a place for every proposal that found room; it closes when the node stops.
        if self.queue.send(proposal).await.is_err() {
            return Attempt::Failed(ProposeError::Stopped);
        }
        match timeout_at(deadline.into(), told).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(_)) | Err(_) => Attempt::Failed(ProposeError::Unknown),
        }
    }

    /// Proposes an entry that carries no stamp, an `EpochStart`, if this node still leads in that term of
    /// Raft. It passes by everything that waits: nothing else can go on before it.
    pub async fn propose_as_leader(
        &self,
        term: u64,
        command: Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        self.write_as_leader(term, &Entry { epoch: Epoch(0), now: Time(0), command }, deadline).await
    }

    /// An entry as it is, with whatever stamp it has.
    pub async fn write_as_leader(
        &self,
        term: u64,
        entry: &Entry,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        let entry = entry.to_bytes();
        let (outcome, told) = oneshot::channel();
        let write = self
            .raft
            .write(EntryBytes(entry.into()))
            .with_leader(LeaderId::new(term, self.node.0))
            .responder(answer(None, outcome));
        let written = async {
            write.await.map_err(|_| ProposeError::Stopped)?;
            match told.await {
                Ok(Attempt::Done(reply)) => Ok(reply),
                Ok(Attempt::Failed(error) | Attempt::Again(error)) => Err(error),
                Err(_) => Err(ProposeError::Unknown),
            }
        };
        timeout_at(deadline.into(), written).await.unwrap_or(Err(ProposeError::Unknown))
    }
}

/// The bytes of a command, if one entry can hold them.
pub(crate) fn encode(command: &Command) -> Result<Bytes, ProposeError> {
    // Plain data in memory: postcard has nothing to refuse there.
    let bytes = postcard::to_stdvec(command).unwrap_or_default();
    check_size(bytes.len())?;
    Ok(bytes.into())
}

/// A command that a peer encoded. It is read in full: what this build can not read must not enter the log.
pub(crate) fn check_forwarded(command: &[u8]) -> Result<(), String> {
    check_size(command.len()).map_err(|error| error.to_string())?;
    match postcard::take_from_bytes::<Command>(command) {
        Ok((_, [])) => Ok(()),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

fn check_size(bytes: usize) -> Result<(), ProposeError> {
    let bound = ENTRY_BYTES_MAX - STAMP_BYTES_MAX;
    if bytes > bound { Err(ProposeError::TooLarge { bytes, bound }) } else { Ok(()) }
}

/// The entry's bytes: an [`Entry`] is its form, its epoch, its time and its command, one after the other.
fn stamped(epoch: Epoch, now: Time, command: &[u8]) -> Bytes {
    let mut entry = form::encode(&(epoch, now));
    entry.extend_from_slice(command);
    entry.into()
}

/// Stamps and submits one proposal after the other; the only one who does.
async fn submit(raft: Raft, mut proposals: mpsc::Receiver<Proposal>, stamps: watch::Receiver<Option<Arc<dyn Stamp>>>) {
    while let Some(proposal) = proposals.recv().await {
        if proposal.outcome.is_closed() || proposal.deadline <= Instant::now() {
            continue;
        }
        let stamp = stamps.borrow().as_ref().and_then(|stamp| stamp.stamp());
        let Some((epoch, now)) = stamp else {
            let _ = proposal.outcome.send(Attempt::Again(ProposeError::NotReady));
            continue;
        };
        if proposal.only.is_some_and(|only| only != epoch) {
            // Nobody listens any more, or hears that its term is over.
            let _ = proposal.outcome.send(Attempt::Failed(ProposeError::EpochOver));
            continue;
        }
        let entry = EntryBytes(stamped(epoch, now, &proposal.command));
        let outcome = if injected_bugs::is(Bug::AckBeforeCommit) {
            acknowledge(&raft, &proposal.command, proposal.outcome)
        } else {
            proposal.outcome
        };
        let submitted = raft.write(entry).responder(answer(Some(proposal.permit), outcome)).await;
        if submitted.is_err() {
            // Raft has stopped, and dropped the responder with it: the proposer is told Unknown.
            break;
        }
    }
}

/// Planted: says that it is done before it is in any log, of what is answered by nothing but that.
fn acknowledge(raft: &Raft, command: &[u8], outcome: oneshot::Sender<Attempt>) -> oneshot::Sender<Attempt> {
    use openraft::async_runtime::WatchReceiver;
    let command = postcard::from_bytes::<Command>(command);
    let is_plain = matches!(
        command,
        Ok(Command::OptOutTakeBack(_) | Command::SchedulePause(_) | Command::ScheduleResume(_) | Command::RunResume(_))
    );
    if !is_plain {
        return outcome;
    }
    let index = raft.metrics().borrow_watched().last_log_index.unwrap_or(0) + 1;
    let _ = outcome.send(Attempt::Done(CommandReply { index, outcome: CommandOutcome::Done }));
    oneshot::channel().0
}

/// Tells the proposer, then gives back the room.
fn answer(permit: Option<Arc<InFlightPermit>>, outcome: oneshot::Sender<Attempt>) -> WriteResponderOf<TypeConfig> {
    WriteResponder::new(move |result: ClientWriteResult<TypeConfig>| {
        // A proposer whose deadline has passed does not listen any more.
        let _ = outcome.send(classify(result));
        drop(permit);
    })
}

fn classify(result: ClientWriteResult<TypeConfig>) -> Attempt {
    match result {
        Ok(written) => match decode_reply(&written.data.0) {
            Some(reply) => classify_reply(reply),
            None => Attempt::Failed(ProposeError::Unknown),
        },
        // Entered no log: this node does not lead, or can not reach a quorum.
        Err(ClientWriteError::ForwardToLeader(_)) => Attempt::Again(ProposeError::NoLeader),
        Err(ClientWriteError::PreconditionFailed(_)) => Attempt::Again(ProposeError::NoLeader),
        Err(ClientWriteError::LogEntryDiscarded(_)) => Attempt::Failed(ProposeError::Unknown),
        Err(ClientWriteError::ChangeMembershipError(_)) => Attempt::Failed(ProposeError::Unknown),
    }
}

/// A refusal of the stamp changed nothing and says nothing about the command.
fn classify_reply(reply: CommandReply) -> Attempt {
    match reply.outcome {
        CommandOutcome::Refused(Refusal::WrongEpoch { .. } | Refusal::TimeWentBack { .. }) => {
            Attempt::Again(ProposeError::NotReady)
        }
        _ => Attempt::Done(reply),
    }
}

/// How long to wait before the next try: short at first, so that a fail-over costs little.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { next: Duration::from_millis(5) }
    }

    pub fn take(&mut self) -> Duration {
        let backoff = self.next;
        self.next = (backoff * 2).min(Duration::from_millis(100));
        backoff
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::RunPause;
    use reveille_ledger::ids::RunId;

    use super::*;

    #[test]
    fn a_stamped_command_is_the_entry_that_the_ledger_reads() {
        let backoff = RunPause { run: RunId { index: 1042, place: 3 }, reason: "by hand".to_owned() };
        for command in [Command::Tick, Command::RelayRemove("a".to_owned()), Command::RunPause(backoff)] {
            for (epoch, now) in [(0, 0), (u64::MAX, i64::MIN), (1042, 1_788_000_000_000)] {
                let entry = Entry { epoch: Epoch(epoch), now: Time(now), command: command.clone() };
                let bytes = encode(&command).expect("a small command");
                assert_eq!(stamped(entry.epoch, entry.now, &bytes), entry.to_bytes());
                assert_eq!(check_forwarded(&bytes), Ok(()));
            }
        }
        assert!(check_forwarded(&[255, 255, 255]).is_err());
    }

    #[test]
    fn a_command_above_the_bound_of_an_entry_is_refused() {
        let command = Command::RelayRemove("x".repeat(ENTRY_BYTES_MAX));
        assert!(matches!(encode(&command), Err(ProposeError::TooLarge { .. })));
    }
}
