//! The search of every state of a size, with all rules in force.

use reveille_model::{Protocol, Sizes};
use stateright::{Checker, Expectation, Model};

/// Searches everything; all `always` properties must hold, and `reached` must be among the places.
pub fn holds(sizes: Sizes, reached: &[&'static str]) {
    let checker = Protocol::sound(sizes).checker().threads(2).spawn_bfs().join();
    println!("{} states: {sizes:?}", checker.unique_state_count());
    for property in checker.model().properties() {
        if property.expectation == Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
    for place in reached {
        checker.assert_any_discovery(place);
    }
}
