//! The search of every state of a size, with all rules in force.

use reveille_model::{Protocol, Sizes};
use stateright::{Checker, Expectation, Model};

/// Searches all states: all `always` properties must hold, and the `sometimes` properties in `reached` must be found.
pub fn holds(sizes: Sizes, reached: &[&'static str]) {
    let checker = Protocol::sound(sizes).checker().threads(2).spawn_bfs().join();
    println!("{} states: {sizes:?}", checker.unique_state_count());
    for property in checker.model().properties() {
        if property.expectation == Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
    for property in reached {
        checker.assert_any_discovery(property);
    }
}
