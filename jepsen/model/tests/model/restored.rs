//! A backup is restored while its cluster goes on (P21): with all rules no order of events sends an instant twice
//! without a decision, and without each rule one does.

use std::collections::BTreeSet;

use reveille_model::restored::{
    DOUBLED, EVIDENCE_IS_TRUE, GOES_ON, LATE_ARRIVAL, ONE_ACCEPT_OF_BOTH, RestoreProtocol, SENT_SINCE,
    SILENT_UNTIL_ACCEPTED,
};
use reveille_model::run::InDoubt;
use reveille_model::{BrokenRule, Rules};
use stateright::{Checker, HasDiscoveries, Model};

fn holds(in_doubt: InDoubt, decisions: u8, reached: &[&'static str]) {
    let protocol = RestoreProtocol { rules: Rules { broken: None }, in_doubt, decisions };
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    for property in [ONE_ACCEPT_OF_BOTH, SILENT_UNTIL_ACCEPTED, EVIDENCE_IS_TRUE] {
        checker.assert_no_discovery(property);
    }
    reached.iter().for_each(|property| drop(checker.assert_any_discovery(property)));
}

#[test]
fn backup_restored_beside_its_cluster_sends_nothing_twice() {
    holds(InDoubt::Hold, 0, &[SENT_SINCE, GOES_ON, LATE_ARRIVAL]);
}

#[test]
fn policy_resend_of_former_cluster_and_restore() {
    holds(InDoubt::Resend, 0, &[SENT_SINCE, GOES_ON]);
}

#[test]
fn operator_that_sends_again_is_counted() {
    holds(InDoubt::Hold, 1, &[SENT_SINCE, DOUBLED]);
}

#[test]
fn each_rule_of_the_restore_is_needed() {
    let cases = [
        (BrokenRule::PendingAfterRestore, InDoubt::Hold, ONE_ACCEPT_OF_BOTH),
        (BrokenRule::PolicyDecidesOlder, InDoubt::Resend, ONE_ACCEPT_OF_BOTH),
        (BrokenRule::InstantFiresAgain, InDoubt::Hold, ONE_ACCEPT_OF_BOTH),
        (BrokenRule::OlderInstantFires, InDoubt::Hold, ONE_ACCEPT_OF_BOTH),
        (BrokenRule::RestoreWithoutHold, InDoubt::Hold, SILENT_UNTIL_ACCEPTED),
        (BrokenRule::RestoreWithoutHold, InDoubt::Hold, ONE_ACCEPT_OF_BOTH),
    ];
    for (broken, in_doubt, property) in cases {
        let protocol = RestoreProtocol { rules: Rules { broken: Some(broken) }, in_doubt, decisions: 0 };
        let first = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let found = protocol.checker().finish_when(first).spawn_bfs().join().discovery(property);
        let path = found.unwrap_or_else(|| panic!("without {broken:?} \"{property}\" holds"));
        println!("without {broken:?}: {:?}", path.into_actions());
    }
}
