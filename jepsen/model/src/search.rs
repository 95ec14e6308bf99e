//! The protocol as a state space that stateright searches: its first state, its steps and its properties.

use stateright::{Model, Property};

use crate::action::Action;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::names::{NODES, Node};
use crate::observations::Observations;
use crate::process::Process;
use crate::properties;
use crate::protocol::Protocol;
use crate::state::{ModelState, Orders};
use crate::steps;

impl Model for Protocol {
    type State = ModelState;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState> {
        let opening = Ledger::opening(self.sizes.recipients, self.sizes.policies);
        let (applied, epoch) = (opening.index, opening.epoch);
        let mut processes: [Process; NODES] =
            std::array::from_fn(|position| Process::first(Node(position as u8), applied));
        processes[0].term = Some(epoch);
        vec![ModelState {
            log: Log::new(opening),
            processes,
            handoffs: Vec::new(),
            settles: Vec::new(),
            answer: None,
            elections: 0,
            opt_outs: 0,
            kills: 0,
            power_cuts: 0,
            orders: Orders::default(),
            observations: Observations::default(),
        }]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<Action>) {
        steps::all(&self.sizes, state, actions);
    }

    fn next_state(&self, last: &ModelState, action: Action) -> Option<ModelState> {
        let mut next = last.clone();
        let happened = self.happens(&mut next, action);
        self.tidy(&mut next);
        happened.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
