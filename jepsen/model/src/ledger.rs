//! The ledger: what every node computes from the committed entries, and nothing else (P2).
//!
//! One run, one chunk. A recipient stands where the set is that holds it, as in the real ledger, so that
//! closed accounting (P1) is a statement that can be false. Rows stay after they are closed: the
//! fences that sent a recipient must be known when late evidence arrives. [`crate::apply`] is the only
//! writer, [`crate::entry`] what it reads.

use crate::names::{Epoch, Fence, Holder, Incarnation, Index, NODES, Node, Recipient, Recipients, Time};
use crate::run::{Policies, Run, RunState};

/// Where a recipient stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Waits for a claim.
    Pending,
    /// In exactly one open row.
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
    /// In exactly one open row: whether it was handed off is not known.
    InDoubt,
}

impl Standing {
    /// How many there are.
    pub const COUNT: usize = 9;
}

/// The right of one holder to send to some recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its number.
    pub fence: Fence,
    /// Who may work it.
    pub holder: Holder,
    /// The granted recipients; never changes.
    pub granted: Recipients,
    /// Who is still in it: claimed or in doubt.
    pub open: Recipients,
    /// Whose acceptance under this fence has been counted; what makes a repeat harmless.
    pub sent: Recipients,
    /// Whose doubt in this row was closed by assuming.
    pub assumed: Recipients,
    /// Whose doubt in this row ended with a decision to send again. The code tells it in the row's moments.
    pub resent: Recipients,
}

/// The current life of a node, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Up {
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
    pub up: [Up; NODES],
    /// The run, but for who stands where in it.
    pub run: Run,
    /// Who stands where, by [`Standing`].
    pub sets: [Recipients; Standing::COUNT],
    /// Every row ever granted, in the order of the log.
    pub rows: Vec<Row>,
    /// Who has opted out.
    pub opted_out: Recipients,
    /// The index of the last opt-out entry.
    pub opt_out_index: Index,
    /// For each node the last index that took a right away from it: an opt-out, a pause, a cancel, or the
    /// revocation of one of its rows. A lease granted on this state demands that much (P9).
    pub floor: [Index; NODES],
    /// Who left a doubt by evidence.
    pub resolved: Recipients,
}

impl Ledger {
    /// The state that every search starts from: each node's first life is up, the first node leads, the run is
    /// open and all its recipients are pending. The entries that led here are folded into its index.
    pub fn opening(recipients: u8, policies: Policies) -> Ledger {
        let up = std::array::from_fn(|place| Up { incarnation: 1, since: place as Index + 1 });
        let epoch = NODES as Index + 1;
        let mut sets = [Recipients::NONE; Standing::COUNT];
        sets[Standing::Pending as usize] = Recipients::first(recipients);
        Ledger {
            index: epoch,
            epoch,
            now: 0,
            up,
            run: Run::opening(policies),
            sets,
            rows: Vec::new(),
            opted_out: Recipients::NONE,
            opt_out_index: 0,
            floor: [0; NODES],
            resolved: Recipients::NONE,
        }
    }

    /// Who stands there.
    pub fn set(&self, standing: Standing) -> Recipients {
        self.sets[standing as usize]
    }

    /// Who stands there, to change it.
    pub fn set_mut(&mut self, standing: Standing) -> &mut Recipients {
        &mut self.sets[standing as usize]
    }

    /// Whether that one stands there.
    pub fn stands(&self, recipient: Recipient, standing: Standing) -> bool {
        self.set(standing).has(recipient)
    }

    /// The row of that number, if this state has it.
    pub fn row(&self, fence: Fence) -> Option<&Row> {
        self.rows.iter().find(|row| row.fence == fence)
    }

    /// Whether `recipient` is in row `fence` and not in doubt there: what the gate asks.
    pub fn is_claimed_in(&self, fence: Fence, recipient: Recipient) -> bool {
        self.stands(recipient, Standing::Claimed) && self.row(fence).is_some_and(|row| row.open.has(recipient))
    }

    /// Whether a recipient who was sent again turned out to be sent by its first row. The second one's gate learns of
    /// it when its node does: a duplicate until then is one by choice, and counted (P14).
    pub fn is_overtaken(&self, recipient: Recipient) -> bool {
        self.rows.iter().any(|row| row.resent.has(recipient) && row.sent.has(recipient))
    }

    /// Whether the run sends, by this state: what a claim and a gate ask beside the row (P4, P5).
    pub fn sends(&self) -> bool {
        self.run.state == RunState::Open
    }

    /// Whether the run's deadline has come (P16).
    pub fn is_past_deadline(&self) -> bool {
        self.run.finish_by <= self.now
    }

    /// Nothing pending, nothing claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.set(Standing::Pending).is_empty() && self.set(Standing::Claimed).is_empty()
    }

    /// Whether evidence may send a recipient back to pending, though nothing is pending or claimed (P14).
    pub fn may_come_back(&self) -> bool {
        !self.set(Standing::InDoubt).is_empty() || !self.set(Standing::Assumed).is_empty()
    }

    /// The current life of `node`.
    pub fn current(&self, node: Node) -> Holder {
        Holder { node, incarnation: self.up[node.place()].incarnation }
    }
}
