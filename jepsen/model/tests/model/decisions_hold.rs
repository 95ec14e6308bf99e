//! With all rules in force no order of events violates a property. Attempts are used up, doubts are decided, operators
//! act and ledger time moves. Each search sees every state of its size.

use reveille_model::Sizes;
use reveille_model::properties::reach;
use reveille_model::run::{InDoubt, Policies};

use crate::holds::holds;

const TWO_CLAIMS: Sizes = Sizes { claims: 2, ..Sizes::CALM };

fn policy(in_doubt: InDoubt) -> Policies {
    Policies { in_doubt, ..Policies::DEFAULT }
}

/// Ledger time reaches the deadline and goes beyond it.
fn with_a_deadline(sizes: Sizes) -> Sizes {
    Sizes { until: 2, policies: Policies { finish_by: 1, ..sizes.policies }, ..sizes }
}

#[test]
fn retries_that_end_and_requeue() {
    let policies = Policies { max_attempts: 2, ..Policies::DEFAULT };
    let sizes = Sizes { claims: 3, refusals: 2, requeues: 1, policies, ..Sizes::CALM };
    holds(sizes, &[reach::DEAD, reach::REQUEUED, reach::SECOND_CLAIM]);
}

#[test]
fn resend_and_kill() {
    let sizes = Sizes { kills: 1, policies: policy(InDoubt::Resend), ..TWO_CLAIMS };
    holds(sizes, &[reach::DUPLICATE, reach::KNOWN_DUPLICATE, reach::RESOLVED]);
}

#[test]
fn resend_refusals_and_cancel() {
    let policies = Policies { max_attempts: 2, ..policy(InDoubt::Resend) };
    let sizes = Sizes { refusals: 1, cancels: 1, policies, ..TWO_CLAIMS };
    holds(sizes, &[reach::DUPLICATE, reach::KNOWN_DUPLICATE, reach::CONTRADICTION, reach::DEAD, reach::CANCELLED]);
}

#[test]
fn assume_sent_and_kill() {
    let sizes = Sizes { kills: 1, policies: policy(InDoubt::AssumeSent), ..TWO_CLAIMS };
    holds(sizes, &[reach::ARRIVED_ASSUMED, reach::SENT_AFTER_ALL, reach::DISPROVED]);
}

#[test]
fn operators_decision_and_election() {
    let sizes = Sizes { decisions: 1, elections: 1, ..TWO_CLAIMS };
    holds(sizes, &[reach::DUPLICATE, reach::KNOWN_DUPLICATE, reach::ARRIVED_ASSUMED, reach::TWO_LEADERS]);
}

#[test]
fn operators_decision_and_opt_out() {
    let sizes = Sizes { decisions: 1, opt_outs: 1, ..TWO_CLAIMS };
    holds(sizes, &[reach::DUPLICATE, reach::SUPPRESSED, reach::CROSSED]);
}

#[test]
fn pause_that_is_taken_back() {
    let sizes = Sizes { pauses: 1, resumes: 1, ..TWO_CLAIMS };
    holds(sizes, &[reach::RESUMED, reach::CROSSED, reach::UNCONFIRMED]);
}

#[test]
fn pause_election_and_resume() {
    let sizes = Sizes { pauses: 1, resumes: 1, elections: 1, ..Sizes::CALM };
    holds(sizes, &[reach::CROSSED, reach::UNCONFIRMED, reach::TWO_LEADERS]);
}

#[test]
fn cancel_and_kill() {
    let sizes = Sizes { cancels: 1, kills: 1, ..Sizes::CALM };
    holds(sizes, &[reach::CANCELLED, reach::CROSSED, reach::UNCONFIRMED, reach::RESOLVED]);
}

#[test]
fn deadline_and_refusal() {
    let sizes = with_a_deadline(Sizes { refusals: 1, ..TWO_CLAIMS });
    holds(sizes, &[reach::EXPIRED, reach::DEAD_OF_TIME, reach::UNAWARE]);
}

#[test]
fn deadline_and_election_with_arbitrary_clocks() {
    let sizes = with_a_deadline(Sizes { elections: 1, ..Sizes::CALM });
    holds(sizes, &[reach::EXPIRED, reach::UNAWARE, reach::TWO_LEADERS]);
}

#[test]
fn deadline_decision_and_process_end() {
    let sizes = with_a_deadline(Sizes { decisions: 1, kills: 1, ..Sizes::CALM });
    holds(Sizes { until: 1, ..sizes }, &[reach::DISPROVED_TOO_LATE, reach::ARRIVED_ASSUMED]);
}

#[test]
fn run_that_is_opened_again_after_its_deadline() {
    let sizes = with_a_deadline(Sizes { decisions: 1, ..TWO_CLAIMS });
    holds(Sizes { until: 1, ..sizes }, &[reach::REOPENED, reach::DUPLICATE]);
}

#[test]
fn paused_run_that_deadline_overtakes() {
    let sizes = with_a_deadline(Sizes { decisions: 1, pauses: 1, ..Sizes::CALM });
    holds(Sizes { until: 1, ..sizes }, &[reach::EXPIRED, reach::CROSSED]);
}
