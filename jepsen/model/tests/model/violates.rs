//! The search for an order of events in which a property fails without a rule.

use std::collections::BTreeSet;

use reveille_model::action::Action;
use reveille_model::{BrokenRule, Protocol, Sizes};
use stateright::{Checker, HasDiscoveries, Model};

/// Searches one step deeper each time until `property` fails, so that the order of events is a shortest one, and prints
/// it. Panics when a search has seen every state.
pub fn violates(broken: BrokenRule, property: &'static str, sizes: Sizes) {
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
    println!("without {broken:?}: \"{property}\" fails in {} steps", steps.len());
    for step in steps {
        println!("  {step:?}");
    }
}
