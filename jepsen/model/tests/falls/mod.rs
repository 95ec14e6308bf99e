//! The search for an order of events in which a rule that was left out is missed.

use std::collections::BTreeSet;

use reveille_model::action::Action;
use reveille_model::{BrokenRule, Protocol, Sizes};
use stateright::{Checker, HasDiscoveries, Model};

/// Searches one step deeper each time until `property` falls, so that the way there is a shortest
/// one, and prints it. Ends without a finding when a search has seen every state.
pub fn falls(broken: BrokenRule, property: &'static str, sizes: Sizes) {
    let mut states = 0;
    for depth in 2.. {
        let checker = Protocol::without(broken, sizes)
            .checker()
            .target_max_depth(depth)
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([property])))
            .spawn_bfs()
            .join();
        if let Some(path) = checker.discovery(property) {
            return print(broken, property, path.into_actions());
        }
        if checker.unique_state_count() == states {
            break;
        }
        states = checker.unique_state_count();
    }
    panic!("without {broken:?} \"{property}\" holds in all {states} states: {sizes:?}");
}

fn print(broken: BrokenRule, property: &str, steps: Vec<Action>) {
    println!("without {broken:?}: \"{property}\" falls in {} steps", steps.len());
    for step in steps {
        println!("  {step:?}");
    }
}
