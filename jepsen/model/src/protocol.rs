//! Computes the state after each step. `steps.rs` chooses the steps.

use crate::action::Action;
use crate::auditor;
use crate::barrier;
use crate::broken::{BrokenRule, Rules};
use crate::entry::Entry;
use crate::lease;
use crate::names::{ClaimOwner, Node, Recipients, Time};
use crate::process::Lease;
use crate::sizes::{Replay, Sizes};
use crate::state::ModelState;
use crate::worker;

/// The model: sizes, and the rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Maximum number of each kind of event.
    pub sizes: Sizes,
    /// All rules, or all but one.
    pub rules: Rules,
}

impl Protocol {
    /// Returns the protocol with all its rules.
    pub fn sound(sizes: Sizes) -> Protocol {
        Protocol { sizes, rules: Rules { broken: None } }
    }

    /// Returns the protocol without one of its rules.
    pub fn without(broken: BrokenRule, sizes: Sizes) -> Protocol {
        Protocol { sizes, rules: Rules { broken: Some(broken) } }
    }

    pub(crate) fn happens(&self, state: &mut ModelState, action: Action) -> bool {
        let rules = self.rules;
        match action {
            Action::Elect(node, agreed) => self.elect(state, node, agreed),
            Action::Tick(leader, now) => auditor::tick(rules, state, leader, now),
            Action::Commit(entry) => {
                state.count(&entry);
                state.commit(rules, entry)
            }
            Action::Apply(node) => self.apply_next(state, node),
            Action::Grant(leader, node) => lease::grant(rules, state, leader, node),
            Action::Claim(leader, owner, slice) => self.claim(state, leader, owner, slice),
            Action::Revoke(leader, claim) => lease::revoke(rules, state, leader, claim),
            Action::Pass(node, claim, recipient) => worker::pass(rules, state, node, claim, recipient),
            Action::Release(node, claim, recipient) => worker::release(rules, state, node, claim, recipient),
            Action::WorkerEvent(position, event) => worker::event(state, position, event),
            Action::Settle(position) => self.settle(state, position),
            Action::Answer(leader, about) => barrier::answer(rules, state, leader, about),
            Action::Expire(leader) => auditor::expire(rules, state, leader),
            Action::Decide(leader, recipient) => auditor::decide(rules, state, leader, recipient),
            Action::Kill(node) => {
                state.kills += 1;
                state.process_mut(node).crash();
                true
            }
            Action::PowerCut(node) => {
                state.power_cuts += 1;
                let process = state.process_mut(node);
                process.journals_lost_through = process.name.incarnation;
                process.crash();
                true
            }
            Action::Start(node) => {
                let applied = match self.sizes.replay {
                    Replay::Everything => state.log.first(),
                    Replay::Nothing => state.log.tip().index,
                };
                state.process_mut(node).start(applied);
                true
            }
        }
    }

    /// Makes states equal that lead to the same futures.
    pub(crate) fn tidy(&self, state: &mut ModelState) {
        if !self.sizes.has_claims_left(state) {
            state.drop_useless_leases();
        }
        let has_crashes = self.sizes.kills + self.sizes.power_cuts > 0;
        if !has_crashes || self.sizes.replay == Replay::Nothing {
            state.forget();
        }
    }

    fn elect(&self, state: &mut ModelState, node: Node, agreed: Time) -> bool {
        let leader = state.process(node).name;
        state.elections += 1;
        state.commit(self.rules, Entry::EpochStart { leader, agreed })
    }

    fn settle(&self, state: &mut ModelState, position: usize) -> bool {
        let Some((settle, was_committed)) = state.settles.get(position).copied() else { return false };
        let changes = state.commit(self.rules, Entry::Settle(settle));
        state.observations.repeat_changed |= was_committed && changes;
        state.settles[position].1 = true;
        changes
    }

    /// Applies the next entry on one node. A replay does the same (P10), so the effects of an entry must not depend on
    /// how often it is applied.
    fn apply_next(&self, state: &mut ModelState, node: Node) -> bool {
        let index = state.process(node).applied + 1;
        let Some(entry) = state.log.entry(index).copied() else { return false };
        let process = state.process_mut(node);
        let name = process.name;
        process.applied = index;
        match entry {
            Entry::EpochStart { leader, .. } if leader == name => {
                process.term = Some(index);
            }
            Entry::EpochStart { .. } if self.rules.enforces(BrokenRule::BarrierOfAnyEpoch) => {
                process.term = None;
            }
            Entry::NodeUp { process } if process == name => {
                worker::settle_earlier_incarnations(self.rules, state, node);
            }
            Entry::Claim { epoch, owner, .. } if owner == name && !self.rules.enforces(BrokenRule::LeaseFromApply) => {
                process.take_lease(Lease { epoch, floor: 0, is_backed: true });
            }
            _ => {}
        }
        true
    }

    fn claim(&self, state: &mut ModelState, leader: Node, owner: ClaimOwner, slice: Recipients) -> bool {
        let Some(epoch) = state.process(leader).term else { return false };
        state.commit(self.rules, Entry::Claim { epoch, owner, slice })
    }
}
