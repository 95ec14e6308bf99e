//! The ledger: what every node computes from the committed entries, and nothing else (P2).
//!
//! There is one run with one chunk. The state of a recipient is the set that contains it, as in the product's ledger,
//! so closed accounting (P1) can be violated. Claims stay after they are closed: the fences that sent a recipient must
//! be known when late evidence arrives. Only [`crate::apply`] changes a ledger, by a [`crate::entry`].

use crate::names::{ClaimOwner, Epoch, Fence, Incarnation, Index, NODES, Node, Recipient, Recipients, Time};
use crate::run::{Policies, Run, RunState};

/// The state of a recipient, with the names of the product's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecipientState {
    /// It waits for a claim.
    Pending,
    /// In exactly one open claim.
    Claimed,
    /// Terminal: accepted by the relay.
    Sent,
    /// Terminal, unless an operator requeues it: its attempts are used up, or the deadline came between two attempts.
    Dead,
    /// Terminal: opted out before anything was sent.
    Suppressed,
    /// Terminal: the deadline came before the first attempt.
    Expired,
    /// Terminal: the run was cancelled.
    Cancelled,
    /// Terminal, unless evidence disproves it: a doubt was closed without evidence. Never counted as sent.
    Assumed,
    /// In exactly one open claim. It is unknown if the recipient was handed off.
    InDoubt,
}

impl RecipientState {
    /// The number of states.
    pub const COUNT: usize = 9;
}

/// The right of one owner to send to some recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Fence of the claim.
    pub fence: Fence,
    /// The process that may send to the recipients.
    pub owner: ClaimOwner,
    /// The granted recipients, which never change.
    pub granted: Recipients,
    /// Recipients that are claimed or in doubt in this claim.
    pub open: Recipients,
    /// Recipients whose acceptance under this fence was counted. A repeated acceptance is not counted again.
    pub sent: Recipients,
    /// Recipients whose doubt in this claim was closed as assumed.
    pub assumed: Recipients,
    /// Recipients whose doubt in this claim ended with a resend. The product records it in the claim's history.
    pub resent: Recipients,
}

/// The current incarnation of a node, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeIncarnation {
    /// Number of the incarnation.
    pub incarnation: Incarnation,
    /// The index of its `NodeUp`.
    pub since: Index,
}

/// The state after some prefix of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// The last index that this state includes.
    pub index: Index,
    /// The current epoch.
    pub epoch: Epoch,
    /// Ledger time (P18).
    pub now: Time,
    /// The current incarnation of each node.
    pub up: [NodeIncarnation; NODES],
    /// The run, without the states of its recipients.
    pub run: Run,
    /// The recipients in each [`RecipientState`].
    pub sets: [Recipients; RecipientState::COUNT],
    /// Every claim ever granted, in the order of the log.
    pub claims: Vec<Claim>,
    /// Recipients that have opted out.
    pub opted_out: Recipients,
    /// The index of the last opt-out entry.
    pub opt_out_index: Index,
    /// For each node the last index that removed a right of it: an opt-out, a pause, a cancel, or the revocation of one
    /// of its claims. A node must have applied this index to use a lease that is granted on this state (P9).
    pub floor: [Index; NODES],
    /// Recipients that evidence moved out of doubt.
    pub resolved: Recipients,
}

impl Ledger {
    /// Returns the first state of every search: the first incarnation of each node is up, the first node leads, the run
    /// is open and all its recipients are pending. The entries before it are not modelled; its log index counts them.
    pub fn opening(recipients: u8, policies: Policies) -> Ledger {
        let up = std::array::from_fn(|position| NodeIncarnation { incarnation: 1, since: position as Index + 1 });
        let epoch = NODES as Index + 1;
        let mut sets = [Recipients::NONE; RecipientState::COUNT];
        sets[RecipientState::Pending as usize] = Recipients::first(recipients);
        Ledger {
            index: epoch,
            epoch,
            now: 0,
            up,
            run: Run::opening(policies),
            sets,
            claims: Vec::new(),
            opted_out: Recipients::NONE,
            opt_out_index: 0,
            floor: [0; NODES],
            resolved: Recipients::NONE,
        }
    }

    /// Returns the recipients in this state.
    pub fn set(&self, recipient_state: RecipientState) -> Recipients {
        self.sets[recipient_state as usize]
    }

    /// Returns the recipients in this state, to be changed.
    pub fn set_mut(&mut self, recipient_state: RecipientState) -> &mut Recipients {
        &mut self.sets[recipient_state as usize]
    }

    /// Returns true if this recipient is in this state.
    pub fn is_in_state(&self, recipient: Recipient, recipient_state: RecipientState) -> bool {
        self.set(recipient_state).has(recipient)
    }

    /// Returns the claim with this fence, if the ledger has it.
    pub fn claim(&self, fence: Fence) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.fence == fence)
    }

    /// Returns true if `recipient` is claimed in claim `fence`, and not in doubt: the gate checks this.
    pub fn is_claimed_in(&self, fence: Fence, recipient: Recipient) -> bool {
        self.is_in_state(recipient, RecipientState::Claimed)
            && self.claim(fence).is_some_and(|claim| claim.open.has(recipient))
    }

    /// Returns true if a recipient that was resent was also sent by the former claim. The gate of the later claim knows
    /// it when its node has applied it. A duplicate before that is by choice, and counted (P14).
    pub fn is_overtaken(&self, recipient: Recipient) -> bool {
        self.claims.iter().any(|claim| claim.resent.has(recipient) && claim.sent.has(recipient))
    }

    /// Returns true if the run sends in this state. Claims and gates check it (P4, P5).
    pub fn sends(&self) -> bool {
        self.run.state == RunState::Open
    }

    /// Returns true if the run's deadline has come (P16).
    pub fn is_past_deadline(&self) -> bool {
        self.run.finish_by <= self.now
    }

    /// Returns true if no recipient is pending or claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.set(RecipientState::Pending).is_empty() && self.set(RecipientState::Claimed).is_empty()
    }

    /// Returns true if evidence may make a recipient pending although no recipient is pending or claimed (P14).
    pub fn may_become_pending(&self) -> bool {
        !self.set(RecipientState::InDoubt).is_empty() || !self.set(RecipientState::Assumed).is_empty()
    }

    /// Returns the current incarnation of `node`.
    pub fn current(&self, node: Node) -> ClaimOwner {
        ClaimOwner { node, incarnation: self.up[node.position()].incarnation }
    }
}
