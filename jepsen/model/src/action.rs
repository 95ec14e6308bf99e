//! Everything that may happen, one name each.

use crate::answer::About;
use crate::entry::Decision;
use crate::names::{ClaimOwner, Fence, Node, Recipient, Recipients, Time};
use crate::worker::WorkerEvent;

/// One step of the world. Most are always possible; a step that changes nothing is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Raft chooses the process of this node and its `EpochStart` is committed, with what the voters' clocks
    /// agree on. The former leader is not told.
    Elect(Node, Time),
    /// The leader on the node moves ledger time to what its clock says.
    Tick(Node, Time),
    /// The `NodeUp` of this life is committed: perhaps late, perhaps of a life that is over.
    NodeUp(ClaimOwner),
    /// The node applies its next entry.
    Apply(Node),
    /// The first, as leader, grants the second a lease or prolongs it.
    Grant(Node, Node),
    /// The leader on the node has a claim committed.
    Claim(Node, ClaimOwner, Recipients),
    /// The leader on the node waits out its owner's leases and has a claim revoked.
    Revoke(Node, Fence),
    /// A worker passes the gate.
    Pass(Node, Fence, Recipient),
    /// A worker gives a recipient back before the gate.
    Release(Node, Fence, Recipient),
    /// Something becomes of the attempt at that place of the list.
    WorkerEvent(usize, WorkerEvent),
    /// The Settle at that place of the list is committed, perhaps late, perhaps again.
    Settle(usize),
    /// An opt-out is committed.
    OptOut(Recipient),
    /// An operator's pause is committed.
    Pause,
    /// An operator takes the pause back.
    Resume,
    /// An operator's cancel is committed, or repeated.
    Cancel,
    /// The leader on the node answers an opt-out, a pause or a cancel, after it has waited out who is silent.
    Answer(Node, About),
    /// The leader on the node ends the run for its deadline.
    Expire(Node),
    /// The leader on the node decides by policy about a recipient in doubt.
    Decide(Node, Recipient),
    /// An operator's decision about a recipient is committed, however long after they looked.
    Resolve(Recipient, Decision),
    /// An operator sends a recipient again who is dead.
    Requeue(Recipient),
    /// `kill -9`: the journal survives.
    Kill(Node),
    /// Power loss: every journal of the node is gone.
    PowerCut(Node),
    /// A new life begins, with the next incarnation; it replays the log.
    Start(Node),
}
