//! One state of the model: the log, the processes, the handoffs, and the proposed settles.

use crate::answer::Answer;
use crate::broken::Rules;
use crate::entry::{Entry, Settle};
use crate::handoff::Handoff;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::names::{ClaimOwner, Fence, NODES, Node, Recipient};
use crate::observations::Observations;
use crate::process::Process;

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    /// The committed log.
    pub log: Log,
    /// The processes, one for each node.
    pub processes: [Process; NODES],
    /// Every handoff so far, sorted.
    pub handoffs: Vec<Handoff>,
    /// All Settles ever proposed, sorted, each with whether it was committed. They stay, since a proposal may be
    /// committed late or twice.
    pub settles: Vec<(Settle, bool)>,
    /// The answer to an opt-out, a pause or a cancel. `None`: there is no answer yet.
    pub answer: Option<Answer>,
    /// Elections so far, after the opening one.
    pub elections: u8,
    /// Opt-out entries so far.
    pub opt_outs: u8,
    /// Kills so far.
    pub kills: u8,
    /// Power cuts so far.
    pub power_cuts: u8,
    /// The commands of operators so far.
    pub orders: Orders,
    /// The judged events so far.
    pub observations: Observations,
}

/// Operator commands so far, by kind. The search bounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orders {
    /// Pauses.
    pub pauses: u8,
    /// Resumes.
    pub resumes: u8,
    /// Cancels.
    pub cancels: u8,
    /// Decisions about a recipient in doubt.
    pub decisions: u8,
    /// Requeues of a dead recipient.
    pub requeues: u8,
}

impl ModelState {
    /// Counts an entry that the search bounds.
    pub fn count(&mut self, entry: &Entry) {
        let orders = &mut self.orders;
        let count = match entry {
            Entry::OptOut { .. } => &mut self.opt_outs,
            Entry::RunPause => &mut orders.pauses,
            Entry::RunResume => &mut orders.resumes,
            Entry::RunCancel => &mut orders.cancels,
            Entry::Decide(_) => &mut orders.decisions,
            Entry::Requeue { .. } => &mut orders.requeues,
            _ => return,
        };
        *count += 1;
    }

    /// Commits `entry`. Returns false if `apply` refuses it.
    pub fn commit(&mut self, rules: Rules, entry: Entry) -> bool {
        let before = self.log.kept_tip();
        if self.log.commit(rules, entry).is_err() {
            return false;
        }
        self.observations.record(&before, &entry, self.log.tip());
        true
    }

    /// Returns the process of `node`.
    pub fn process(&self, node: Node) -> &Process {
        &self.processes[node.position()]
    }

    /// Returns the process of `node`, to be changed.
    pub fn process_mut(&mut self, node: Node) -> &mut Process {
        &mut self.processes[node.position()]
    }

    /// Returns the state by which the process of `node` decides.
    pub fn view(&self, node: Node) -> &Ledger {
        self.log.at(self.process(node).applied)
    }

    /// Returns true if this process runs now. An earlier incarnation does not.
    pub fn is_alive(&self, name: ClaimOwner) -> bool {
        let process = self.process(name.node);
        process.alive && process.name == name
    }

    /// Returns the handoff of this owner for this recipient of this claim.
    pub fn handoff(&self, claim: Fence, recipient: Recipient, by: ClaimOwner) -> Option<&Handoff> {
        self.handoffs
            .iter()
            .find(|handoff| handoff.claim == claim && handoff.recipient == recipient && handoff.by == by)
    }

    /// Adds a handoff.
    pub fn begin(&mut self, handoff: Handoff) {
        self.handoffs.push(handoff);
        self.handoffs.sort_unstable();
    }

    /// Proposes a Settle, which may be committed at any time from now on.
    pub fn propose(&mut self, settle: Settle) {
        if let Err(position) = self.settles.binary_search_by_key(&settle, |known| known.0) {
            self.settles.insert(position, (settle, false));
        }
    }

    /// Returns true if the process on `node` owns a claim, applied or not, with a recipient that it has not tried.
    pub fn has_work(&self, node: Node) -> bool {
        let process = self.process(node);
        let view = self.view(node);
        let mut claims = self.log.tip().claims.iter().filter(|claim| claim.owner.node == node);
        claims.any(|claim| {
            let open = view.claim(claim.fence).map_or(claim.granted, |claim| claim.open);
            let is_new = |recipient| self.handoff(claim.fence, recipient, process.name).is_none();
            open.iter().any(is_new)
        })
    }

    /// Drops the leases of processes without work, if there will be no further claim. A lease that is never used would
    /// only make states differ.
    pub fn drop_useless_leases(&mut self) {
        for node in Node::all() {
            if !self.process(node).leases.is_empty() && !self.has_work(node) {
                self.process_mut(node).leases.clear();
            }
        }
    }

    /// Forgets the part of the log that every process has applied.
    pub fn forget(&mut self) {
        let alive = self.processes.iter().filter(|process| process.alive);
        let oldest = alive.map(|process| process.applied).min();
        self.log.forget_before(oldest.unwrap_or(self.log.tip().index));
    }
}
