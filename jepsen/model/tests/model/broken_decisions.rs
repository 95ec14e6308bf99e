//! As `broken_rules.rs`, for runs, operators and ledger time.

use reveille_model::properties::{
    ARRIVALS_ARE_NAMED, ATTEMPTS, CLOSED_ACCOUNTING, ENDED, IN_CLAIM, IN_TIME, LEDGER_AND_RELAY, NO_LATER_CLAIM,
    ONE_ACCEPT, REPEATS, RETRIES_END, SILENCE_AFTER_ANSWER, TERMINAL, TIME,
};
use reveille_model::run::{InDoubt, Policies};
use reveille_model::{BrokenRule, Sizes};

use crate::violates::violates;

const TWO_CLAIMS: Sizes = Sizes { claims: 2, ..Sizes::CALM };
const PAUSE: Sizes = Sizes { pauses: 1, ..Sizes::CALM };
const CANCEL: Sizes = Sizes { cancels: 1, ..Sizes::CALM };
const DECISION: Sizes = Sizes { decisions: 1, ..Sizes::CALM };
const DEADLINE: Sizes = Sizes { until: 1, policies: Policies { finish_by: 1, ..Policies::DEFAULT }, ..Sizes::CALM };

#[test]
fn claim_of_paused_run_is_sent() {
    violates(BrokenRule::ClaimOfStoppedRun, NO_LATER_CLAIM, PAUSE);
    violates(BrokenRule::ClaimOfStoppedRun, NO_LATER_CLAIM, DEADLINE);
}

#[test]
fn gate_that_does_not_ask_for_run_passes_after_answer() {
    violates(BrokenRule::GateIgnoresTheRun, SILENCE_AFTER_ANSWER, PAUSE);
    violates(BrokenRule::GateIgnoresTheRun, SILENCE_AFTER_ANSWER, CANCEL);
}

#[test]
fn cancel_answered_at_once_is_followed_by_email() {
    violates(BrokenRule::AnswerBeforeBarrier, SILENCE_AFTER_ANSWER, CANCEL);
    violates(BrokenRule::AnswerBeforeBarrier, SILENCE_AFTER_ANSWER, PAUSE);
}

#[test]
fn lease_that_demands_no_index_knows_nothing_of_pause() {
    violates(BrokenRule::GrantWithoutFloor, SILENCE_AFTER_ANSWER, PAUSE);
}

/// The owner removes its handoff from its list when its own state has it in doubt; the leader's state does not have
/// that yet.
#[test]
fn leader_that_is_behind_owner_names_no_crossing() {
    violates(BrokenRule::NameByAnOlderState, ARRIVALS_ARE_NAMED, Sizes { opt_outs: 1, ..Sizes::CALM });
    violates(BrokenRule::NameByAnOlderState, ARRIVALS_ARE_NAMED, CANCEL);
}

#[test]
fn recipient_returned_to_cancelled_run_waits_for_ever() {
    violates(BrokenRule::CancelForgetsReturned, ENDED, CANCEL);
}

#[test]
fn resend_returns_recipient_to_cancelled_run() {
    violates(BrokenRule::ResendOfCancelledRun, ENDED, Sizes { decisions: 1, ..CANCEL });
}

#[test]
fn paused_run_continues_when_reopened_after_deadline() {
    let sizes = Sizes { claims: 2, refusals: 1, pauses: 1, requeues: 1, ..DEADLINE };
    violates(BrokenRule::ExpiryForgetsPause, NO_LATER_CLAIM, sizes);
}

#[test]
fn repeated_refusal_is_counted_as_attempt() {
    let sizes = Sizes { refusals: 1, ..Sizes::CALM };
    violates(BrokenRule::CountEachRefusal, ATTEMPTS, sizes);
    violates(BrokenRule::CountEachRefusal, REPEATS, sizes);
}

#[test]
fn refusals_without_limit_never_end() {
    let policies = Policies { max_attempts: 1, ..Policies::DEFAULT };
    violates(BrokenRule::RetryForEver, RETRIES_END, Sizes { refusals: 1, policies, ..Sizes::CALM });
}

#[test]
fn requeue_of_sent_recipient_sends_another_email() {
    violates(BrokenRule::RequeueNotDead, TERMINAL, Sizes { requeues: 1, ..Sizes::CALM });
    violates(BrokenRule::RequeueNotDead, ONE_ACCEPT, Sizes { requeues: 1, ..TWO_CLAIMS });
}

#[test]
fn resend_of_claimed_recipient_still_passes_gate() {
    violates(BrokenRule::DecideClaimed, IN_CLAIM, DECISION);
}

#[test]
fn late_decision_moves_terminal_recipient() {
    violates(BrokenRule::DecideEnded, TERMINAL, DECISION);
}

#[test]
fn uncounted_resend_is_unchosen_duplicate() {
    let policies = Policies { in_doubt: InDoubt::Resend, ..Policies::DEFAULT };
    violates(BrokenRule::ResendUncounted, ONE_ACCEPT, Sizes { policies, ..TWO_CLAIMS });
    violates(BrokenRule::ResendUncounted, ONE_ACCEPT, Sizes { decisions: 1, ..TWO_CLAIMS });
}

#[test]
fn assumed_recipient_counted_as_sent_may_have_no_email() {
    violates(BrokenRule::AssumedIsSent, LEDGER_AND_RELAY, DECISION);
}

#[test]
fn assumed_recipient_that_never_returns_has_no_decider() {
    violates(BrokenRule::AssumedNeverReturns, CLOSED_ACCOUNTING, DECISION);
}

#[test]
fn gate_that_does_not_ask_for_deadline_passes_after_it() {
    violates(BrokenRule::GateIgnoresTheDeadline, IN_TIME, DEADLINE);
}

#[test]
fn expiry_of_claimed_recipient_calls_sent_recipient_expired() {
    let sizes = Sizes { recipients: 2, ..DEADLINE };
    violates(BrokenRule::ExpireClaimed, IN_CLAIM, sizes);
    violates(BrokenRule::ExpireClaimed, LEDGER_AND_RELAY, sizes);
}

#[test]
fn ledger_time_goes_where_leaders_clock_goes() {
    violates(BrokenRule::TimeGoesBack, TIME, Sizes { until: 1, ..Sizes::CALM });
    violates(BrokenRule::TimeLeaps, TIME, Sizes { until: 2, ..Sizes::CALM });
    violates(BrokenRule::EpochLowersTime, TIME, Sizes { until: 1, elections: 1, ..Sizes::CALM });
}

#[test]
fn lease_by_ledger_time_ends_for_leader_and_not_for_node() {
    violates(BrokenRule::LeaseByLedgerTime, IN_CLAIM, DEADLINE);
}
