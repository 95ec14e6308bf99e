//! The gate (P5): the last check before the final dot, and the only place that says yes.
//!
//! Asked in the state that this node has applied: is the recipient still in my row, does its run send,
//! is it before its deadline, has it not opted out, does the node's lease run? Then `begin` goes into the
//! journal, and only then the terminator may be written.

use std::sync::Arc;

use reveille_ledger::ids::{ClaimOwner, RunId};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::{Ledger, RunState};

use super::claim::Job;
use super::context::{JournalWriter, Room};
use super::in_flight_handoffs::HandOff;
use super::injected_send;
use super::journal::{Act, JournalFault, Place};
use crate::smtp::{Gate, GateAnswer, Shut};

/// The gate of one hand-off.
pub(crate) struct LaneGate {
    pub room: Arc<Room>,
    pub job: Arc<Job>,
}

impl Gate for LaneGate {
    fn pass(&mut self) -> GateAnswer {
        let (room, job) = (&self.room, &self.job);
        // P15: the mark comes before the look at the state.
        room.site.marks.set(job.hand_off());
        let answer = match look(room, job) {
            Err(shut) => GateAnswer::Shut(shut),
            Ok(()) if injected_bugs::is(Bug::JournalAfterAct) => GateAnswer::Pass,
            Ok(()) => begin(&room.journal, job.place).map_or_else(GateAnswer::Shut, |()| GateAnswer::Pass),
        };
        if let GateAnswer::Shut(shut) = answer {
            // The first hand-off of a recipient that was handed off before keeps its mark.
            if shut != Shut::BegunBefore {
                room.site.marks.clear(job.place.fence, job.run, job.recipient);
            }
            metrics::counter!("reveille_gate_shut_total", "why" => shut.to_string()).increment(1);
        } else {
            metrics::counter!("reveille_gate_passes_total").increment(1);
        }
        answer
    }
}

/// Journals `begin`: from here on the terminator may be written.
fn begin(journal: &JournalWriter, place: Place) -> Result<(), Shut> {
    journal.note(place, Act::Begin).map_err(|fault| match fault {
        JournalFault::BegunTwice(_) => Shut::BegunBefore,
        JournalFault::Broken(_) | JournalFault::Create { .. } => Shut::JournalFailed,
    })
}

/// P9 last: the lease is looked at after the state, so that nothing comes between it and the write.
fn look(room: &Room, job: &Job) -> Result<(), Shut> {
    let applied = room.site.replica.read(|ledger| {
        may_leave(ledger, room.site.me, job)?;
        Ok(ledger.head().applied)
    })?;
    if !room.site.lease.runs(room.site.lease_clock(), applied) {
        return Err(Shut::LeaseOver);
    }
    Ok(())
}

/// What the applied state says.
pub(crate) fn may_leave(ledger: &Ledger, me: ClaimOwner, job: &Job) -> Result<(), Shut> {
    if injected_bugs::is(Bug::ClaimAfterSend) && injected_send::is_ahead(job.place) {
        return Ok(());
    }
    may_begin(ledger, me, job.place, job.run)?;
    if ledger.opted_out().contains(&(job.tenant.clone(), job.key.clone())) {
        return Err(Shut::OptedOut);
    }
    Ok(())
}

/// The part of it that needs no recipient: asked before a session and the relay's pace are spent.
pub(crate) fn may_begin(ledger: &Ledger, me: ClaimOwner, place: Place, run: RunId) -> Result<(), Shut> {
    if injected_bugs::is(Bug::ClaimAfterSend) && injected_send::is_ahead(place) {
        return Ok(());
    }
    let row = ledger.claims().get(&place.fence).ok_or(Shut::NotInRow)?;
    if row.owner != me || !row.claimed.contains(place.slot) {
        return Err(Shut::NotInRow);
    }
    let run = ledger.run(run).ok_or(Shut::NotInRow)?;
    match run.state {
        RunState::Open => {}
        RunState::Paused { .. } => return Err(Shut::RunPaused),
        RunState::Cancelled { .. } | RunState::Expired { .. } | RunState::Finished => return Err(Shut::RunEnded),
    }
    if run.finish_by <= ledger.head().now {
        return Err(Shut::PastDeadline);
    }
    Ok(())
}

impl Job {
    fn hand_off(&self) -> HandOff {
        HandOff {
            run: self.run,
            recipient: self.recipient,
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            fence: self.place.fence,
        }
    }

    /// `r1042.3#17`: the recipient as log lines name it.
    pub(crate) fn name(&self) -> String {
        recipient_name(self.run, self.recipient)
    }
}

/// `r1042.3#17`: a recipient as log lines name it. Never an address.
pub(crate) fn recipient_name(run: RunId, recipient: u32) -> String {
    format!("{run}#{recipient}")
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Epoch, Fence, Incarnation, NodeId};

    use super::*;
    use crate::node::supervisor::Supervisor;
    use crate::worker::claim::fate_of_shut;
    use crate::worker::journal::{Journal, Owner};

    #[tokio::test]
    async fn second_begin_of_recipient_stops_node_and_settles_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = Owner { cluster: 7, holder: ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) } };
        let journal = Journal::create(folder.path(), &owner, "this boot").expect("a journal");
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let journal = JournalWriter::new(journal, supervisor.failing());
        let fence = Fence { group: 1, epoch: Epoch(1), index: 7, place: 0 };
        let place = Place { page: RunId { index: 5, place: 0 }, chunk: 0, fence, slot: 3 };
        assert_eq!(begin(&journal, place), Ok(()));
        assert_eq!(*supervisor.failed().borrow(), None);
        assert_eq!(begin(&journal, place), Err(Shut::BegunBefore));
        assert!(supervisor.failed().borrow().is_some(), "the node stops");
        assert_eq!(fate_of_shut(Shut::BegunBefore), None, "the first hand-off may be under way");
    }
}
