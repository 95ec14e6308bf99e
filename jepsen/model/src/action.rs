//! The steps that the model may take.

use crate::answer::About;
use crate::entry::Entry;
use crate::names::{ClaimOwner, Fence, Node, Recipient, Recipients, Time};
use crate::worker::WorkerEvent;

/// One step. Most steps are always possible. A step that changes nothing is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Raft elects the process of this node, and its `EpochStart` is committed with the time on which the voters'
    /// clocks agree. The former leader does not know of it.
    Elect(Node, Time),
    /// The leader on the node moves ledger time to the time of its clock.
    Tick(Node, Time),
    /// An entry that every process may propose is committed, possibly late: a `NodeUp`, an opt-out, or a command of an
    /// operator.
    Commit(Entry),
    /// The node applies its next entry.
    Apply(Node),
    /// The first node, as leader, grants the second node a lease or extends it.
    Grant(Node, Node),
    /// The leader on the node commits a claim for this owner.
    Claim(Node, ClaimOwner, Recipients),
    /// The leader on the node waits until the owner's leases have ended, and revokes the claim.
    Revoke(Node, Fence),
    /// A worker passes the gate.
    Pass(Node, Fence, Recipient),
    /// A worker returns a recipient before the gate.
    Release(Node, Fence, Recipient),
    /// An event of the handoff with this index in the list.
    WorkerEvent(usize, WorkerEvent),
    /// The Settle with this index in the list is committed, possibly late or again.
    Settle(usize),
    /// The leader on the node answers an opt-out, a pause or a cancel, after the leases of silent nodes have ended.
    Answer(Node, About),
    /// The leader on the node ends the run at its deadline.
    Expire(Node),
    /// The leader on the node decides by policy about a recipient in doubt.
    Decide(Node, Recipient),
    /// `kill -9`: the journal survives.
    Kill(Node),
    /// Power loss: every journal of the node is lost.
    PowerCut(Node),
    /// A new process starts with the next incarnation, and replays the log.
    Start(Node),
}
