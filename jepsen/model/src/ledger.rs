//! The ledger: what every node computes from the committed entries, and nothing else (P2).
//!
//! One run, one chunk. A recipient stands where the set is that holds it, as in the real ledger, so that
//! closed accounting (P1) is a statement that can be false. Claims stay after they are closed: the
//! fences that sent a recipient must be known when late evidence arrives. [`crate::apply`] is the only
//! writer, [`crate::entry`] what it reads.

use crate::names::{ClaimOwner, Epoch, Fence, Incarnation, Index, NODES, Node, Recipient, Recipients, Time};
use crate::run::{Policies, Run, RunState};

/// Where a recipient stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecipientState {
    /// Waits for a claim.
    Pending,
    /// In exactly one open claim.
    Claimed,
    /// Terminal: accepted by the relay.
    Sent,
    /// Terminal, unless an operator takes it back: its attempts are used up, or the deadline came between two.
    Dead,
    /// Terminal: opted out before anything was sent.
    Suppressed,
    /// Terminal: the deadline came, and nothing had been attempted.
    Expired,
    /// Terminal: the run was cancelled.
    Cancelled,
    /// Terminal, unless evidence disproves it: a doubt that was closed without being resolved. Never counted as sent.
    Assumed,
    /// In exactly one open claim: whether it was handed off is not known.
    InDoubt,
}

impl RecipientState {
    /// How many there are.
    pub const COUNT: usize = 9;
}

/// The right of one owner to send to some recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Its number.
    pub fence: Fence,
    /// Who may work it.
    pub owner: ClaimOwner,
    /// The granted recipients; never changes.
    pub granted: Recipients,
    /// Who is still in it: claimed or in doubt.
    pub open: Recipients,
    /// Whose acceptance under this fence has been counted; what makes a repeat harmless.
    pub sent: Recipients,
    /// Whose doubt in this claim was closed by assuming.
    pub assumed: Recipients,
    /// Whose doubt in this claim ended with a decision to send again. The code tells it in the claim's moments.
    pub resent: Recipients,
}

/// The current life of a node, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeIncarnation {
    /// The life.
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
    /// The current life of each node.
    pub up: [NodeIncarnation; NODES],
    /// The run, but for who stands where in it.
    pub run: Run,
    /// Who stands where, by [`RecipientState`].
    pub sets: [Recipients; RecipientState::COUNT],
    /// Every claim ever granted, in the order of the log.
    pub claims: Vec<Claim>,
    /// Who has opted out.
    pub opted_out: Recipients,
    /// The index of the last opt-out entry.
    pub opt_out_index: Index,
    /// For each node the last index that took a right away from it: an opt-out, a pause, a cancel, or the
    /// revocation of one of its claims. A lease granted on this state demands that much (P9).
    pub floor: [Index; NODES],
    /// Who left a doubt by evidence.
    pub resolved: Recipients,
}

impl Ledger {
    /// The state that every search starts from: each node's first life is up, the first node leads, the run is
    /// open and all its recipients are pending. The entries that led here are folded into its index.
    pub fn opening(recipients: u8, policies: Policies) -> Ledger {
        let up = std::array::from_fn(|place| NodeIncarnation { incarnation: 1, since: place as Index + 1 });
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

    /// Who stands there.
    pub fn set(&self, recipient_state: RecipientState) -> Recipients {
        self.sets[recipient_state as usize]
    }

    /// Who stands there, to change it.
    pub fn set_mut(&mut self, recipient_state: RecipientState) -> &mut Recipients {
        &mut self.sets[recipient_state as usize]
    }

    /// Whether that one stands there.
    pub fn is_in_state(&self, recipient: Recipient, recipient_state: RecipientState) -> bool {
        self.set(recipient_state).has(recipient)
    }

    /// The claim of that number, if this state has it.
    pub fn claim(&self, fence: Fence) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.fence == fence)
    }

    /// Whether `recipient` is in claim `fence` and not in doubt there: what the gate asks.
    pub fn is_claimed_in(&self, fence: Fence, recipient: Recipient) -> bool {
        self.is_in_state(recipient, RecipientState::Claimed)
            && self.claim(fence).is_some_and(|claim| claim.open.has(recipient))
    }

    /// Whether a recipient who was sent again turned out to be sent by its first claim. The second one's gate learns of
    /// it when its node does: a duplicate until then is one by choice, and counted (P14).
    pub fn is_overtaken(&self, recipient: Recipient) -> bool {
        self.claims.iter().any(|claim| claim.resent.has(recipient) && claim.sent.has(recipient))
    }

    /// Whether the run sends, by this state: what a claim and a gate ask beside the claim (P4, P5).
    pub fn sends(&self) -> bool {
        self.run.state == RunState::Open
    }

    /// Whether the run's deadline has come (P16).
    pub fn is_past_deadline(&self) -> bool {
        self.run.finish_by <= self.now
    }

    /// Nothing pending, nothing claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.set(RecipientState::Pending).is_empty() && self.set(RecipientState::Claimed).is_empty()
    }

    /// Whether evidence may send a recipient back to pending, though nothing is pending or claimed (P14).
    pub fn may_come_back(&self) -> bool {
        !self.set(RecipientState::InDoubt).is_empty() || !self.set(RecipientState::Assumed).is_empty()
    }

    /// The current life of `node`.
    pub fn current(&self, node: Node) -> ClaimOwner {
        ClaimOwner { node, incarnation: self.up[node.place()].incarnation }
    }
}
