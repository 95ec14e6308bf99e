//! The gate (P5): the last check before the final dot, and the only code that permits a handoff.
//!
//! It reads the state that this node has applied. The recipient must be in this claim, its run must be open and before
//! its deadline, and the recipient must not have opted out. The node's lease must be valid. Then `handoff` goes into the
//! journal, and only then may the final dot be written.

use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use reveille_ledger::ids::{ClaimOwner, RunId};
use reveille_ledger::{Ledger, RunState};

use super::context::WorkerContext;
use super::in_flight_handoffs::Handoff;
use super::journal::{ClaimedSlot, JournalFault, JournalStep};
use super::outcome::DeliveryOutcome;
use crate::smtp::{Gate, GateAnswer};

/// The gate of one handoff.
pub(crate) struct WorkerGate {
    context: Arc<WorkerContext>,
    handoff: Arc<Handoff>,
    /// Outcome of the recipient after the gate was closed. If the recipient has left the claim, it resolves the doubt
    /// of a revoked claim, and changes nothing otherwise (P14). `None` if an earlier handoff of the same claim may be
    /// in flight: its task, or recovery after the next start, settles the outcome.
    pub outcome_if_closed: Option<DeliveryOutcome>,
}

impl WorkerGate {
    pub fn new(context: &Arc<WorkerContext>, handoff: &Arc<Handoff>) -> WorkerGate {
        WorkerGate { context: Arc::clone(context), handoff: Arc::clone(handoff), outcome_if_closed: None }
    }

    /// Makes all checks, then journals `handoff`. After it the final dot may be written.
    ///
    /// # Errors
    /// Returns the outcome of [`WorkerGate::outcome_if_closed`].
    fn check_and_journal_handoff(&self) -> Result<(), Option<DeliveryOutcome>> {
        check(&self.context, &self.handoff)?;
        self.context.journal.append(self.handoff.claimed_slot, JournalStep::Handoff).map_err(|fault| match fault {
            JournalFault::HandedOffTwice(_) => None,
            JournalFault::Broken(_) => Some(DeliveryOutcome::Released(ReleaseReason::JournalFailed)),
        })
    }
}

impl Gate for WorkerGate {
    fn decide(&mut self) -> GateAnswer {
        // The handoff is listed before the state is read (P15).
        self.context.node.handoffs.insert(&self.handoff);
        let Err(outcome) = self.check_and_journal_handoff() else {
            metrics::counter!("reveille_gate_passes_total").increment(1);
            return GateAnswer::Pass;
        };
        // After a second `handoff` the first handoff of this recipient may be in flight, so it stays listed.
        if outcome.is_some() {
            self.context.node.handoffs.remove(&self.handoff);
        }
        let why = outcome.as_ref().map_or("begun_before", |outcome| outcome.metric_labels().1);
        metrics::counter!("reveille_gate_closed_total", "why" => why).increment(1);
        self.outcome_if_closed = outcome;
        GateAnswer::Closed
    }
}

/// Makes all checks of the gate (P5).
///
/// # Errors
/// Returns the outcome of a recipient that may not be sent.
pub(crate) fn check(context: &WorkerContext, handoff: &Handoff) -> Result<(), DeliveryOutcome> {
    check_state_then_lease(context, |ledger| {
        may_send(ledger, context.node.me, handoff.claimed_slot, handoff.run).map_err(DeliveryOutcome::Released)?;
        let opted_out = ledger.opt_out_of(&handoff.tenant_and_key);
        if opted_out.is_some() { Err(DeliveryOutcome::Suppressed) } else { Ok(()) }
    })
}

/// Checks a recipient that is about to get a session, as far as no address is needed. The gate checks the same again.
///
/// # Errors
/// The same outcomes as [`check`].
pub(crate) fn check_before_session(
    context: &WorkerContext,
    claimed_slot: ClaimedSlot,
    run: RunId,
) -> Result<(), DeliveryOutcome> {
    check_state_then_lease(context, |ledger| {
        may_send(ledger, context.node.me, claimed_slot, run).map_err(DeliveryOutcome::Released)
    })
}

/// Checks the applied state by `allowed`, then the lease. The lease is checked last (P9), so that at the gate only the
/// append to the journal comes between it and the write.
fn check_state_then_lease(
    context: &WorkerContext,
    allowed: impl FnOnce(&Ledger) -> Result<(), DeliveryOutcome>,
) -> Result<(), DeliveryOutcome> {
    let node = &context.node;
    let applied = node.replica.read(|ledger| allowed(ledger).map(|()| ledger.head().applied))?;
    match node.lease.is_valid(node.lease_clock(), applied) {
        true => Ok(()),
        false => Err(DeliveryOutcome::Released(ReleaseReason::LeaseOver)),
    }
}

/// Checks claim, run state and deadline in the applied state. These checks need no address.
fn may_send(ledger: &Ledger, me: ClaimOwner, claimed_slot: ClaimedSlot, run: RunId) -> Result<(), ReleaseReason> {
    let claim = ledger.claims().get(&claimed_slot.fence).ok_or(ReleaseReason::NotInClaim)?;
    let is_held = ledger.unaccepted_restore().is_some();
    if is_held || claim.owner != me || !claim.claimed.contains(claimed_slot.slot) {
        return Err(ReleaseReason::NotInClaim);
    }
    let run = ledger.run(run).ok_or(ReleaseReason::NotInClaim)?;
    match run.state {
        RunState::Open => {}
        RunState::Paused { .. } => return Err(ReleaseReason::RunPaused),
        RunState::Cancelled { .. } | RunState::Expired { .. } | RunState::Finished => {
            return Err(ReleaseReason::RunEnded);
        }
    }
    if run.finish_by <= ledger.head().now {
        return Err(ReleaseReason::PastDeadline);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Epoch, Fence, Incarnation, NodeId, PageId};

    use super::*;
    use crate::process::supervisor::Supervisor;
    use crate::worker::context::JournalWriter;
    use crate::worker::journal::{Journal, JournalOwner};

    #[tokio::test]
    async fn second_handoff_of_recipient_stops_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = JournalOwner { cluster: 7, process: ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) } };
        let journal = Journal::create(folder.path(), &owner, "this boot").expect("a journal");
        let supervisor = Supervisor::new();
        let journal = JournalWriter::new(journal, supervisor.stop_reporter());
        let fence = Fence { group: 1, epoch: Epoch(1), index: 7, place: 0 };
        let claimed_slot = ClaimedSlot { chunk: PageId(RunId { index: 5, place: 0 }).chunk(0), fence, slot: 3 };
        assert!(journal.append(claimed_slot, JournalStep::Handoff).is_ok());
        assert_eq!(*supervisor.failed().borrow(), None);
        let again = journal.append(claimed_slot, JournalStep::Handoff);
        assert!(matches!(again, Err(JournalFault::HandedOffTwice(_))), "{again:?}");
        assert!(supervisor.failed().borrow().is_some(), "the node stops");
    }
}
