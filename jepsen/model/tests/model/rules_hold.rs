//! With all rules in force no order of events violates a property, and the searches reach the states in which it could
//! be violated. Each search sees every state of its size. Runs, operators and ledger time are in `decisions_hold.rs`.

use reveille_model::properties::reach;
use reveille_model::{Replay, Sizes};

use crate::holds::holds;

#[test]
fn two_claims_election_and_refusal() {
    let sizes = Sizes { claims: 2, elections: 1, refusals: 1, ..Sizes::CALM };
    let reached = [
        reach::SENT,
        reach::TWO_LEADERS,
        reach::LATE_SENDER,
        reach::REVOKED,
        reach::ARRIVED_IN_DOUBT,
        reach::SECOND_CLAIM,
    ];
    holds(sizes, &reached);
}

#[test]
fn two_claims_and_kill() {
    let sizes = Sizes { claims: 2, kills: 1, ..Sizes::CALM };
    holds(sizes, &[reach::SENT, reach::REVOKED, reach::RESOLVED, reach::SECOND_CLAIM]);
}

#[test]
fn kill_and_power_cut() {
    let sizes = Sizes { kills: 1, power_cuts: 1, ..Sizes::CALM };
    holds(sizes, &[reach::SENT, reach::ARRIVED_IN_DOUBT, reach::RESOLVED]);
}

#[test]
fn kill_election_and_replay_of_every_entry() {
    let sizes = Sizes { elections: 1, kills: 1, replay: Replay::Everything, ..Sizes::CALM };
    holds(sizes, &[reach::TWO_LEADERS, reach::RESOLVED]);
}

#[test]
fn opt_out_and_election() {
    let sizes = Sizes { elections: 1, opt_outs: 1, ..Sizes::CALM };
    holds(sizes, &[reach::SUPPRESSED, reach::CROSSED, reach::UNCONFIRMED, reach::TWO_LEADERS]);
}

#[test]
fn opt_out_two_claims_and_kill() {
    let sizes = Sizes { claims: 2, kills: 1, opt_outs: 1, ..Sizes::CALM };
    holds(sizes, &[reach::SUPPRESSED, reach::CROSSED, reach::UNCONFIRMED, reach::RESOLVED]);
}

#[test]
fn opt_out_and_power_cut() {
    let sizes = Sizes { power_cuts: 1, opt_outs: 1, ..Sizes::CALM };
    holds(sizes, &[reach::SUPPRESSED, reach::CROSSED, reach::UNCONFIRMED]);
}

#[test]
fn two_recipients_in_claims_of_every_cut() {
    let sizes = Sizes { recipients: 2, claims: 2, ..Sizes::CALM };
    holds(sizes, &[reach::SENT, reach::REVOKED, reach::SECOND_CLAIM]);
}
