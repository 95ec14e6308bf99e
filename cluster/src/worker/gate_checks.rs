//! The gate (P5): the last check before the final dot, and the only code that permits a handoff.
//!
//! It reads the state that this node has applied. The recipient must be in this claim, its run must be open and before
//! its deadline, and the recipient must not have opted out. The node's lease must be valid. Then `begin` goes into the
//! journal, and only then may the final dot be written.

use std::sync::Arc;

use reveille_ledger::ids::{ClaimOwner, RunId};
use reveille_ledger::{Ledger, RunState};

use super::context::{JournalWriter, WorkerContext};
use super::in_flight_handoffs::Handoff;
use super::journal::{ClaimedSlot, JournalFault, JournalStep};
use crate::smtp::{Gate, GateAnswer, GateRefusal};

/// The gate of one handoff.
pub(crate) struct WorkerGate {
    pub context: Arc<WorkerContext>,
    pub handoff: Arc<Handoff>,
}

impl Gate for WorkerGate {
    fn pass(&mut self) -> GateAnswer {
        let (context, handoff) = (&self.context, &self.handoff);
        // The handoff is listed before the state is read (P15).
        context.node.handoffs.insert(handoff);
        let passed = check(context, handoff).and_then(|()| journal_begin(&context.journal, handoff.claimed_slot));
        match passed {
            Ok(()) => {
                metrics::counter!("reveille_gate_passes_total").increment(1);
                GateAnswer::Pass
            }
            Err(refusal) => {
                // After a second `begin` the first handoff of this recipient may be in flight, so it stays listed.
                if refusal != GateRefusal::BegunBefore {
                    context.node.handoffs.remove(handoff);
                }
                metrics::counter!("reveille_gate_shut_total", "why" => refusal.to_string()).increment(1);
                GateAnswer::Closed(refusal)
            }
        }
    }
}

/// Journals `begin`. After it the final dot may be written.
fn journal_begin(journal: &JournalWriter, claimed_slot: ClaimedSlot) -> Result<(), GateRefusal> {
    journal.append(claimed_slot, JournalStep::Begin).map_err(|fault| match fault {
        JournalFault::BegunTwice(_) => GateRefusal::BegunBefore,
        JournalFault::Broken(_) | JournalFault::Create { .. } => GateRefusal::JournalFailed,
    })
}

/// All checks of the gate (P5).
pub(crate) fn check(context: &WorkerContext, handoff: &Handoff) -> Result<(), GateRefusal> {
    state_then_lease(context, |ledger| handoff_allowed(ledger, context.node.me, handoff))
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
fn handoff_allowed(ledger: &Ledger, me: ClaimOwner, handoff: &Handoff) -> Result<(), GateRefusal> {
    may_send(ledger, me, handoff.claimed_slot, handoff.run)?;
    if ledger.opted_out().contains(&(handoff.tenant.clone(), handoff.key.clone())) {
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
    use crate::process::supervisor::Supervisor;
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
            "the first handoff may be under way"
        );
    }
}
