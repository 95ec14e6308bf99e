//! Turns a command into an entry: the leader stamps it with epoch and ledger time, in the order of the log (P13, P18).
//!
//! One task stamps and submits, so that time never goes back within the log. openraft combines all entries that are
//! submitted during one disk write into the next write. Proposals in flight are limited by count and bytes: a proposal
//! waits for a permit until its deadline and then fails with [`ProposeError::Busy`].
//!
//! A proposal with an unknown outcome is never retried. It is retried only if the command did not happen: there was
//! no stamp yet, the ledger refused an old one ([`CommandRefusal::WrongEpoch`], [`CommandRefusal::TimeWentBack`]), or
//! the leader was not this node, busy, or not reached.

pub(crate) mod in_flight;
#[cfg(feature = "injected-bugs")]
mod injected_bugs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::alias::WriteResponderOf;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use openraft::vote::RaftLeaderId;
use prost::bytes::Bytes;
use reveille_ledger::command::{Actor, Command, ENTRY_BYTES_MAX, Entry};
use reveille_ledger::form;
use reveille_ledger::ids::{Epoch, NodeId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout_at;

use crate::Raft;
use crate::proposer::in_flight::{IN_FLIGHT_MAX, InFlight, InFlightPermit};
use crate::state_machine::apply_thread::decode_reply;
use crate::types::{EntryBytes, LeaderId, TypeConfig, WriteResponder};

/// Maximum size of a stamp in bytes: one byte for the version of the format (`form`), and two varints of ten bytes.
const STAMP_BYTES_MAX: usize = 21;

/// Stamps commands with epoch and time. The leadership sets it when it begins and clears it when it ends.
pub trait EntryStamp: Send + Sync + 'static {
    /// Returns the current epoch and ledger time. The time never goes back. `None`: the leadership has ended.
    fn stamp(&self) -> Option<(Epoch, Time)>;
}

/// Reason why a proposal has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This node reaches no leader. The command did not happen.
    #[error("no leader can be reached: a majority of the nodes must run and reach each other")]
    NoLeader,
    /// The leader cannot stamp commands yet. The command did not happen.
    #[error("the leader is not ready yet: try again in a moment")]
    NotReady,
    /// The command is larger than one entry. The command cannot happen.
    #[error("the command has {bytes} bytes, more than the {bound} of one entry")]
    TooLarge {
        /// Bytes of the command.
        bytes: usize,
        /// Bytes that are allowed.
        bound: usize,
    },
    /// No permit was free until the deadline. The command did not happen.
    #[error("too much is in flight: try again later")]
    Busy,
    /// The command may have happened, or may still happen. Retry with the same request id, or read the state.
    #[error("the outcome is unknown: it may have happened; ask again with the same request id")]
    Unknown,
    /// The epoch of the command is over. The command did not happen.
    #[error("the epoch for which it was proposed is over")]
    EpochOver,
    /// The ledger's level does not have this command yet. The command did not happen.
    #[error("this needs ledger level {needs}, and the ledger is at {ledger}: finish the upgrade of all nodes first")]
    AboveLevel {
        /// Level of the command.
        needs: u32,
        /// Level of the ledger.
        ledger: u32,
    },
    /// This node is stopping. The command did not happen.
    #[error("this node is stopping")]
    Stopped,
}

/// Outcome of one try on the leader.
pub(crate) enum TryResult {
    /// The command is committed and applied.
    Done(CommandReply),
    /// Final failure.
    Failed(ProposeError),
    /// The command did not happen, so the caller may retry. At the deadline the caller returns this error.
    Retry(ProposeError),
}

struct Proposal {
    command: Bytes,
    /// The only epoch under which the command may be stamped. `None`: any epoch.
    only: Option<Epoch>,
    permit: Arc<InFlightPermit>,
    deadline: Instant,
    outcome: oneshot::Sender<TryResult>,
}

/// Writes commands to the log of this node while it leads.
pub(crate) struct Proposer {
    raft: Raft,
    node: NodeId,
    /// Permits for proposals. A caller of [`Proposer::try_once`] must hold one.
    pub in_flight: InFlight,
    queue: mpsc::Sender<Proposal>,
    stamp: watch::Sender<Option<Arc<dyn EntryStamp>>>,
}

impl Proposer {
    /// Starts the task that stamps and submits. Must be called on Raft's runtime.
    pub fn start(raft: Raft, node: NodeId) -> Proposer {
        let (queue, proposals) = mpsc::channel(IN_FLIGHT_MAX);
        let stamp = watch::Sender::new(None);
        tokio::spawn(submit(raft.clone(), proposals, stamp.subscribe()));
        Proposer { raft, node, in_flight: InFlight::new(), queue, stamp }
    }

    /// Sets the stamp when a leadership begins (`Some`), or clears it when the leadership ends (`None`).
    pub fn set_stamp(&self, stamp: Option<Arc<dyn EntryStamp>>) {
        self.stamp.send_replace(stamp);
    }

    /// Returns the stamp, which changes when a leadership begins or ends.
    pub fn stamp(&self) -> watch::Receiver<Option<Arc<dyn EntryStamp>>> {
        self.stamp.subscribe()
    }

    /// Tries once on this node.
    pub async fn try_once(
        &self,
        command: Bytes,
        only: Option<Epoch>,
        permit: Arc<InFlightPermit>,
        deadline: Instant,
    ) -> TryResult {
        let (outcome, receiver) = oneshot::channel();
        let proposal = Proposal { command, only, permit, deadline, outcome };
        // The queue has a slot for every proposal with a permit; it closes when the node stops.
        if self.queue.send(proposal).await.is_err() {
            return TryResult::Failed(ProposeError::Stopped);
        }
        match timeout_at(deadline.into(), receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => TryResult::Failed(ProposeError::Unknown),
        }
    }

    /// Writes an entry that is not stamped here, if this node still leads in that term of Raft. It overtakes all
    /// waiting proposals.
    pub async fn write_as_leader(
        &self,
        term: u64,
        entry: &Entry,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        let entry = entry.to_bytes();
        let (outcome, receiver) = oneshot::channel();
        let write = self
            .raft
            .write(EntryBytes(entry.into()))
            .with_leader(LeaderId::new(term, self.node.0))
            .responder(answer(None, outcome));
        let written = async {
            write.await.map_err(|_| ProposeError::Stopped)?;
            match receiver.await {
                Ok(TryResult::Done(reply)) => Ok(reply),
                Ok(TryResult::Failed(error) | TryResult::Retry(error)) => Err(error),
                Err(_) => Err(ProposeError::Unknown),
            }
        };
        timeout_at(deadline.into(), written).await.unwrap_or(Err(ProposeError::Unknown))
    }
}

/// Returns the bytes of an actor and its command. Fails if one entry cannot hold them.
pub(crate) fn encode(actor: &Actor, command: &Command) -> Result<Bytes, ProposeError> {
    // An entry without a command would stop every node. So a command that cannot be encoded, a defect, panics here.
    let bytes = postcard::to_stdvec(&(actor, command)).expect("plain data in memory can be encoded");
    check_size(bytes.len())?;
    Ok(bytes.into())
}

/// Checks an actor and a command that a peer encoded: what this build cannot read must not enter the log. Members may
/// state any actor, because they authenticate the callers.
pub(crate) fn check_forwarded(command: &[u8]) -> Result<(), String> {
    check_size(command.len()).map_err(|error| error.to_string())?;
    match postcard::take_from_bytes::<(Actor, Command)>(command) {
        Ok((_, [])) => Ok(()),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

fn check_size(bytes: usize) -> Result<(), ProposeError> {
    let bound = ENTRY_BYTES_MAX - STAMP_BYTES_MAX;
    if bytes > bound { Err(ProposeError::TooLarge { bytes, bound }) } else { Ok(()) }
}

/// Returns the bytes of an entry. An [`Entry`] is encoded as form, epoch, time, actor and command, in this order.
fn stamped(epoch: Epoch, now: Time, command: &[u8]) -> Bytes {
    let mut entry = form::encode(&(epoch, now));
    entry.extend_from_slice(command);
    entry.into()
}

/// Stamps and submits the proposals one by one. This is the only task that stamps.
async fn submit(
    raft: Raft,
    mut proposals: mpsc::Receiver<Proposal>,
    stamps: watch::Receiver<Option<Arc<dyn EntryStamp>>>,
) {
    while let Some(proposal) = proposals.recv().await {
        if proposal.outcome.is_closed() || proposal.deadline <= Instant::now() {
            continue;
        }
        let stamp = stamps.borrow().as_ref().and_then(|stamp| stamp.stamp());
        let Some((epoch, now)) = stamp else {
            let _ = proposal.outcome.send(TryResult::Retry(ProposeError::NotReady));
            continue;
        };
        if proposal.only.is_some_and(|only| only != epoch) {
            // The send fails if the caller has stopped waiting, which does no harm.
            let _ = proposal.outcome.send(TryResult::Failed(ProposeError::EpochOver));
            continue;
        }
        #[cfg(feature = "injected-bugs")]
        let Some(proposal) = injected_bugs::acknowledge_before_commit(&raft, &stamps, proposal) else { continue };
        let entry = EntryBytes(stamped(epoch, now, &proposal.command));
        let submitted = raft.write(entry).responder(answer(Some(proposal.permit), proposal.outcome)).await;
        if submitted.is_err() {
            // Raft has stopped and dropped the responder: the caller gets `Unknown`.
            break;
        }
    }
}

/// Returns a responder that sends the outcome to the caller and then releases the permit.
fn answer(permit: Option<Arc<InFlightPermit>>, outcome: oneshot::Sender<TryResult>) -> WriteResponderOf<TypeConfig> {
    WriteResponder::new(move |result: ClientWriteResult<TypeConfig>| {
        // The send fails if the caller's deadline has passed, which does no harm.
        let _ = outcome.send(classify(result));
        drop(permit);
    })
}

fn classify(result: ClientWriteResult<TypeConfig>) -> TryResult {
    match result {
        Ok(written) => decode_reply(&written.data.0).map_or(TryResult::Failed(ProposeError::Unknown), classify_reply),
        // The command entered no log: this node does not lead or cannot reach a quorum.
        Err(ClientWriteError::ForwardToLeader(_)) => TryResult::Retry(ProposeError::NoLeader),
        Err(ClientWriteError::PreconditionFailed(_)) => TryResult::Retry(ProposeError::NoLeader),
        Err(ClientWriteError::LogEntryDiscarded(_)) => TryResult::Failed(ProposeError::Unknown),
        Err(ClientWriteError::ChangeMembershipError(_)) => TryResult::Failed(ProposeError::Unknown),
    }
}

/// Converts a reply. If the ledger refused the stamp, the command did not happen and may be tried again.
fn classify_reply(reply: CommandReply) -> TryResult {
    match reply.outcome {
        CommandOutcome::Refused(CommandRefusal::WrongEpoch { .. } | CommandRefusal::TimeWentBack { .. }) => {
            TryResult::Retry(ProposeError::NotReady)
        }
        _ => TryResult::Done(reply),
    }
}

/// Pause before the next attempt: 5 ms at first, doubled up to 100 ms. It starts short, so that a fail-over costs
/// little.
pub(crate) struct RetryBackoff {
    next: Duration,
}

impl RetryBackoff {
    pub fn new() -> RetryBackoff {
        RetryBackoff { next: Duration::from_millis(5) }
    }

    pub fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Duration::from_millis(100));
        pause
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::RunPause;
    use reveille_ledger::ids::RunId;

    use super::*;

    #[test]
    fn stamped_command_equals_ledger_entry() {
        let pause = RunPause { run: RunId { index: 1042, place: 3 }, reason: "by hand".to_owned() };
        for command in [Command::Tick, Command::RelayRemove("a".into()), Command::RunPause(pause)] {
            for (epoch, now) in [(0, 0), (u64::MAX, i64::MIN), (1042, 1_788_000_000_000)] {
                let entry =
                    Entry { epoch: Epoch(epoch), now: Time(now), actor: Actor::System, command: command.clone() };
                let bytes = encode(&entry.actor, &command).expect("a small command");
                assert_eq!(stamped(entry.epoch, entry.now, &bytes), entry.to_bytes());
                assert_eq!(check_forwarded(&bytes), Ok(()));
            }
        }
        assert!(check_forwarded(&[255, 255, 255]).is_err());
    }

    #[test]
    fn command_above_entry_bound_is_refused() {
        let command = Command::RelayRemove("x".repeat(ENTRY_BYTES_MAX).as_str().into());
        assert!(matches!(encode(&Actor::System, &command), Err(ProposeError::TooLarge { .. })));
    }
}
