//! The gate (P5): the last check before the terminator, and the only code that permits a hand-off.
//!
//! It reads the state that this node has applied. The recipient must be in this claim, its run must be open and before
//! its deadline, and the recipient must not have opted out. The node's lease must be valid. Then `begin` goes into the
//! journal, and only then may the terminator be written.

use std::sync::Arc;

use reveille_ledger::ids::{ClaimOwner, RunId};
use reveille_ledger::{Ledger, RunState};

use super::context::{JournalWriter, WorkerContext};
use super::in_flight_handoffs::HandOff;
use super::journal::{ClaimedSlot, JournalFault, JournalStep};
use crate::smtp::{Gate, GateAnswer, GateRefusal};

/// The gate of one hand-off.
pub(crate) struct WorkerGate {
    pub context: Arc<WorkerContext>,
    pub hand_off: Arc<HandOff>,
}

impl Gate for WorkerGate {
    fn pass(&mut self) -> GateAnswer {
        let (context, hand_off) = (&self.context, &self.hand_off);
        // The hand-off is listed before the state is read (P15).
        context.node.hand_offs.insert(hand_off);
        let passed = check(context, hand_off).and_then(|()| journal_begin(&context.journal, hand_off.claimed_slot));
        match passed {
            Ok(()) => {
                metrics::counter!("reveille_gate_passes_total").increment(1);
                GateAnswer::Pass
            }
            Err(refusal) => {
                // After a second `begin` the first hand-off of this recipient may be in flight, so it stays listed.
                if refusal != GateRefusal::BegunBefore {
                    context.node.hand_offs.remove(hand_off);
                }
                metrics::counter!("reveille_gate_shut_total", "why" => refusal.to_string()).increment(1);
                GateAnswer::Closed(refusal)
            }
        }
    }
}

/// Journals `begin`. After it the terminator may be written.
fn journal_begin(journal: &JournalWriter, claimed_slot: ClaimedSlot) -> Result<(), GateRefusal> {
    journal.append(claimed_slot, JournalStep::Begin).map_err(|fault| match fault {
        JournalFault::BegunTwice(_) => GateRefusal::BegunBefore,
        JournalFault::Broken(_) | JournalFault::Create { .. } => GateRefusal::JournalFailed,
    })
}

/// All checks of the gate (P5).
pub(crate) fn check(context: &WorkerContext, hand_off: &HandOff) -> Result<(), GateRefusal> {
    state_then_lease(context, |ledger| may_hand_off(ledger, context.node.me, hand_off))
}

/// Checks a recipient that is about to get a session, as far as no address is needed. The gate checks the same again.
pub(crate) fn check_before_session(
    context: &WorkerContext,
    claimed_slot: ClaimedSlot,
    run: RunId,
) -> Result<(), GateRefusal> {
    state_then_lease(context, |ledger| may_send(ledger, context.node.me, claimed_slot, run))
}

/// Checks the applied state by `allowed`, then the lease. The lease is checked last (P9), so that at the gate only the
/// append to the journal comes between it and the write.
fn state_then_lease(
    context: &WorkerContext,
    allowed: impl FnOnce(&Ledger) -> Result<(), GateRefusal>,
) -> Result<(), GateRefusal> {
    let node = &context.node;
    let applied = node.replica.read(|ledger| allowed(ledger).map(|()| ledger.head().applied))?;
    if node.lease.is_valid(node.lease_clock(), applied) { Ok(()) } else { Err(GateRefusal::LeaseOver) }
}

/// Checks that need the applied state only.
fn may_hand_off(ledger: &Ledger, me: ClaimOwner, hand_off: &HandOff) -> Result<(), GateRefusal> {
    may_send(ledger, me, hand_off.claimed_slot, hand_off.run)?;
    if ledger.opted_out().contains(&(hand_off.tenant.clone(), hand_off.key.clone())) {
        return Err(GateRefusal::OptedOut);
    }
    Ok(())
}

/// Checks of the applied state that need no address: claim, run state and deadline.
fn may_send(ledger: &Ledger, me: ClaimOwner, claimed_slot: ClaimedSlot, run: RunId) -> Result<(), GateRefusal> {
    let claim = ledger.claims().get(&claimed_slot.fence).ok_or(GateRefusal::NotInClaim)?;
    if claim.owner != me || !claim.claimed.contains(claimed_slot.slot) {
        return Err(GateRefusal::NotInClaim);
    }
    let run = ledger.run(run).ok_or(GateRefusal::NotInClaim)?;
    match run.state {
        RunState::Open => {}
        RunState::Paused { .. } => return Err(GateRefusal::RunPaused),
        RunState::Cancelled { .. } | RunState::Expired { .. } | RunState::Finished => {
            return Err(GateRefusal::RunEnded);
        }
    }
    if run.finish_by <= ledger.head().now {
        return Err(GateRefusal::PastDeadline);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Epoch, Fence, Incarnation, NodeId};

    use super::*;
    use crate::node::supervisor::Supervisor;
    use crate::worker::journal::{Journal, JournalOwner};
    use crate::worker::outcome::DeliveryOutcome;

    #[tokio::test]
    async fn second_begin_of_recipient_stops_node_and_settles_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = JournalOwner { cluster: 7, process: ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) } };
        let journal = Journal::create(folder.path(), &owner, "this boot").expect("a journal");
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let journal = JournalWriter::new(journal, supervisor.failing());
        let fence = Fence { group: 1, epoch: Epoch(1), index: 7, place: 0 };
        let claimed_slot = ClaimedSlot { page: RunId { index: 5, place: 0 }, chunk: 0, fence, slot: 3 };
        assert_eq!(journal_begin(&journal, claimed_slot), Ok(()));
        assert_eq!(*supervisor.failed().borrow(), None);
        assert_eq!(journal_begin(&journal, claimed_slot), Err(GateRefusal::BegunBefore));
        assert!(supervisor.failed().borrow().is_some(), "the node stops");
        assert_eq!(
            DeliveryOutcome::of_closed_gate(GateRefusal::BegunBefore),
            None,
            "the first hand-off may be under way"
        );
    }
}
