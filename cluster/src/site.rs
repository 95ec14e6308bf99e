//! What the actors of one node share: the replica, the clock, the node's own life, its lease and marks.
//!
//! No behaviour of its own beyond small questions; whoever changes something here is named beside it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{Epoch, Holder, Time};
use reveille_raft::{Hint, Replica, Stamp};

use crate::clock::Clock;
use crate::lease::NodeLease;
use crate::marks::Marks;
use crate::term::Term;
use crate::zones::Zones;

/// Shared by all actors of a node.
pub struct Site {
    /// The replicated ledger.
    pub replica: Replica,
    /// This life of this node.
    pub me: Holder,
    /// The cluster's id: part of every Message-ID.
    pub cluster: u128,
    /// The only source of time.
    pub clock: Arc<dyn Clock>,
    /// Time zones.
    pub zones: Zones,
    /// This node's right to pass gates; the keeper prolongs it (P9).
    pub lease: NodeLease,
    /// Hand-offs past the gate; the gates set them (P15).
    pub marks: Marks,
    /// The leadership of this node, while there is one.
    term: RwLock<Option<Arc<Term>>>,
}

impl Site {
    /// Everything but a term.
    pub fn new(replica: Replica, me: Holder, cluster: u128, clock: Arc<dyn Clock>, zones: Zones) -> Site {
        Site {
            replica,
            me,
            cluster,
            clock,
            zones,
            lease: NodeLease::default(),
            marks: Marks::default(),
            term: RwLock::new(None),
        }
    }

    /// The leadership of this node, while there is one.
    pub fn term(&self) -> Option<Arc<Term>> {
        self.term.read().clone()
    }

    pub(crate) fn enter_term(&self, term: Arc<Term>) {
        *self.term.write() = Some(Arc::clone(&term));
        self.replica.set_stamp(Some(Arc::new(TermStamp(term))));
    }

    pub(crate) fn leave_term(&self) {
        self.replica.set_stamp(None);
        *self.term.write() = None;
    }

    /// When a quorum last acknowledged this leader, on the clock that leases are counted in.
    pub(crate) fn last_quorum_ack(&self, now: Duration) -> Option<Duration> {
        let acked = self.replica.last_quorum_acked()?;
        Some(now.saturating_sub(acked.elapsed()))
    }
}

/// What the leader stamps on every entry (P13, P18).
struct TermStamp(Arc<Term>);

impl Stamp for TermStamp {
    fn stamp(&self) -> Option<(Epoch, Time)> {
        (!self.0.ended()).then(|| (self.0.epoch(), self.0.now()))
    }
}

/// May this be worth a look by the timer or the dispatcher?
pub(crate) fn makes_work(hint: &Hint) -> bool {
    match hint {
        Hint::LookAtState => true,
        Hint::Effect { effect, .. } => matches!(
            effect,
            Effect::DueChanged { .. } | Effect::WorkAppeared(_) | Effect::RowClosed { .. } | Effect::RelaysChanged
        ),
    }
}
