//! What each step leads to. `offer` says which steps are tried.

use crate::action::Action;
use crate::auditor;
use crate::barrier;
use crate::broken::{Broken, Rules};
use crate::entry::{Decide, Decider, Entry};
use crate::lane;
use crate::lease;
use crate::names::{Holder, Node, Recipients, Time};
use crate::process::Lease;
use crate::sizes::{Replay, Sizes};
use crate::state::State;

/// The model: sizes, and the rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// How much may happen.
    pub sizes: Sizes,
    /// All rules, or all but one.
    pub rules: Rules,
}

impl Protocol {
    /// The protocol with all its rules.
    pub fn sound(sizes: Sizes) -> Protocol {
        Protocol { sizes, rules: Rules { broken: None } }
    }

    /// The protocol without one of its rules.
    pub fn without(broken: Broken, sizes: Sizes) -> Protocol {
        Protocol { sizes, rules: Rules { broken: Some(broken) } }
    }

    pub(crate) fn happens(&self, state: &mut State, action: Action) -> bool {
        let rules = self.rules;
        match action {
            Action::Elect(node, agreed) => self.elect(state, node, agreed),
            Action::Tick(leader, now) => auditor::tick(rules, state, leader, now),
            Action::NodeUp(process) => state.commit(rules, Entry::NodeUp { process }),
            Action::Apply(node) => self.apply_next(state, node),
            Action::Grant(leader, node) => lease::grant(rules, state, leader, node),
            Action::Claim(leader, holder, slice) => self.claim(state, leader, holder, slice),
            Action::Revoke(leader, row) => lease::revoke(rules, state, leader, row),
            Action::Pass(node, row, recipient) => lane::pass(rules, state, node, row, recipient),
            Action::Release(node, row, recipient) => lane::release(rules, state, node, row, recipient),
            Action::Turn(place, turn) => lane::turn(state, place, turn),
            Action::Settle(place) => self.settle(state, place),
            Action::OptOut(recipient) => {
                state.opt_outs += 1;
                state.commit(rules, Entry::OptOut { recipient })
            }
            Action::Pause => {
                state.orders.pauses += 1;
                state.commit(rules, Entry::RunPause)
            }
            Action::Resume => {
                state.orders.resumes += 1;
                state.commit(rules, Entry::RunResume)
            }
            Action::Cancel => {
                state.orders.cancels += 1;
                state.commit(rules, Entry::RunCancel)
            }
            Action::Answer(leader, about) => barrier::answer(rules, state, leader, about),
            Action::Expire(leader) => auditor::expire(rules, state, leader),
            Action::Decide(leader, recipient) => auditor::decide(rules, state, leader, recipient),
            Action::Resolve(recipient, decision) => {
                state.orders.decisions += 1;
                state.commit(rules, Entry::Decide(Decide { recipient, decision, by: Decider::Operator }))
            }
            Action::Requeue(recipient) => {
                state.orders.requeues += 1;
                state.commit(rules, Entry::Requeue { recipient })
            }
            Action::Kill(node) => {
                state.kills += 1;
                state.process_mut(node).die();
                true
            }
            Action::PowerCut(node) => {
                state.power_cuts += 1;
                let process = state.process_mut(node);
                process.journals_lost_through = process.name.incarnation;
                process.die();
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

    /// Makes states alike that no future can tell apart.
    pub(crate) fn tidy(&self, state: &mut State) {
        if !self.sizes.has_claims_left(state) {
            state.drop_useless_leases();
        }
        let has_deaths = self.sizes.kills + self.sizes.power_cuts > 0;
        if !has_deaths || self.sizes.replay == Replay::Nothing {
            state.forget();
        }
    }

    fn elect(&self, state: &mut State, node: Node, agreed: Time) -> bool {
        let leader = state.process(node).name;
        state.elections += 1;
        state.commit(self.rules, Entry::EpochStart { leader, agreed })
    }

    fn settle(&self, state: &mut State, place: usize) -> bool {
        let Some((settle, was_committed)) = state.settles.get(place).copied() else { return false };
        let changes = state.commit(self.rules, Entry::Settle(settle));
        state.witness.repeat_changed |= was_committed && changes;
        state.settles[place].1 = true;
        changes
    }

    /// One more entry on one node. A replay is no different, which is the point of P10: what an
    /// entry starts must not depend on how often it is applied.
    fn apply_next(&self, state: &mut State, node: Node) -> bool {
        let index = state.process(node).applied + 1;
        let Some(entry) = state.log.entry(index).copied() else { return false };
        let process = state.process_mut(node);
        let name = process.name;
        process.applied = index;
        match entry {
            Entry::EpochStart { leader, .. } if leader == name => {
                process.term = Some(index);
            }
            Entry::EpochStart { .. } if self.rules.keep(Broken::BarrierOfAnyEpoch) => {
                process.term = None;
            }
            Entry::NodeUp { process } if process == name => {
                lane::settle_earlier_lives(self.rules, state, node);
            }
            Entry::Claim { epoch, holder, .. } if holder == name && !self.rules.keep(Broken::LeaseFromApply) => {
                process.take_lease(Lease { epoch, floor: 0, is_backed: true });
            }
            _ => {}
        }
        true
    }

    fn claim(&self, state: &mut State, leader: Node, holder: Holder, slice: Recipients) -> bool {
        let Some(epoch) = state.process(leader).term else { return false };
        state.commit(self.rules, Entry::Claim { epoch, holder, slice })
    }
}
