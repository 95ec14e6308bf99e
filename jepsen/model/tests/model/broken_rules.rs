//! Without each rule the search finds an order of events in which a named property fails. If it found none, the model
//! would be too weak to judge the rule. Here: claims, leases, settles, the gate, the journal, the barrier. Runs,
//! operators and ledger time are in `broken_decisions.rs`.

use reveille_model::properties::{
    ARRIVALS_ARE_NAMED, CLOSED_ACCOUNTING, COVERED, FENCES_GROW, IN_CLAIM, LEDGER_AND_RELAY, NO_CONTRADICTION,
    ONE_ACCEPT, ONE_PAST_THE_GATE, OWNED, REPEATS, SILENCE_AFTER_ANSWER,
};
use reveille_model::{BrokenRule, Protocol, Replay, Sizes};
use stateright::{Checker, Expectation, Model};

use crate::violates::violates;

const TWO_CLAIMS: Sizes = Sizes { claims: 2, ..Sizes::CALM };
const ELECTION: Sizes = Sizes { elections: 1, ..Sizes::CALM };
const OPT_OUT: Sizes = Sizes { opt_outs: 1, ..Sizes::CALM };
const OPT_OUT_AND_ELECTION: Sizes = Sizes { opt_outs: 1, ..ELECTION };

#[test]
fn claim_of_node_is_sent_again_by_its_next_incarnation() {
    let replay = Sizes { kills: 1, replay: Replay::Everything, ..Sizes::CALM };
    violates(BrokenRule::NoIncarnation, ONE_ACCEPT, replay);
    violates(BrokenRule::NoIncarnation, COVERED, replay);
}

#[test]
fn claim_of_claimed_recipient_puts_it_into_two_claims() {
    violates(BrokenRule::ClaimWithoutPending, CLOSED_ACCOUNTING, TWO_CLAIMS);
    violates(BrokenRule::ClaimWithoutPending, ONE_ACCEPT, TWO_CLAIMS);
}

#[test]
fn claim_of_dead_incarnation_has_no_owner() {
    violates(BrokenRule::ClaimForAnyIncarnation, OWNED, Sizes { kills: 1, ..Sizes::CALM });
}

#[test]
fn claim_of_former_epoch_makes_fences_go_back() {
    violates(BrokenRule::ClaimOfAnyEpoch, FENCES_GROW, Sizes { elections: 1, ..TWO_CLAIMS });
}

/// A recipient must be pending at apply, so it is never in two claims. The epoch in a claim protects the order of
/// fences and the counts of leaders (caps, budgets), not I1 to I6.
#[test]
fn claim_of_former_epoch_breaks_nothing_else() {
    for sizes in [Sizes { elections: 1, ..TWO_CLAIMS }, OPT_OUT_AND_ELECTION] {
        let checker = Protocol::without(BrokenRule::ClaimOfAnyEpoch, sizes).checker().threads(2).spawn_bfs().join();
        for property in checker.model().properties() {
            if property.expectation == Expectation::Always && property.name != FENCES_GROW {
                checker.assert_no_discovery(property.name);
            }
        }
    }
}

#[test]
fn deposed_leader_revokes_live_claim() {
    violates(BrokenRule::RevokeOfAnyEpoch, IN_CLAIM, ELECTION);
}

#[test]
fn lease_that_starts_at_apply_is_waited_out_too_early() {
    violates(BrokenRule::LeaseFromApply, IN_CLAIM, Sizes::CALM);
    violates(BrokenRule::LeaseFromApply, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn lease_from_deposed_leader_is_not_waited_for() {
    violates(BrokenRule::GrantWithoutQuorum, IN_CLAIM, ELECTION);
    violates(BrokenRule::GrantWithoutQuorum, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn lease_that_demands_no_index_brings_old_state_back_to_life() {
    violates(BrokenRule::GrantWithoutFloor, IN_CLAIM, Sizes::CALM);
    violates(BrokenRule::GrantWithoutFloor, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn lease_granted_during_revocation_outlives_it() {
    violates(BrokenRule::GrantDuringRevocation, IN_CLAIM, Sizes::CALM);
}

#[test]
fn claim_revoked_by_age_is_still_sent() {
    violates(BrokenRule::RevokeByAge, IN_CLAIM, Sizes::CALM);
}

#[test]
fn new_leader_that_does_not_wait_meets_leases_of_former() {
    violates(BrokenRule::NewLeaderDoesNotWait, IN_CLAIM, ELECTION);
    violates(BrokenRule::NewLeaderDoesNotWait, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn resend_of_claimed_recipient_arrives_twice() {
    violates(BrokenRule::Resend, ONE_ACCEPT, TWO_CLAIMS);
    violates(BrokenRule::Resend, ONE_PAST_THE_GATE, TWO_CLAIMS);
    violates(BrokenRule::Resend, LEDGER_AND_RELAY, TWO_CLAIMS);
}

#[test]
fn settle_without_claim_releases_recipient_of_another_claim() {
    violates(BrokenRule::SettleWithoutClaim, REPEATS, TWO_CLAIMS);
    violates(BrokenRule::SettleWithoutClaim, ONE_ACCEPT, Sizes { claims: 3, ..Sizes::CALM });
}

#[test]
fn repeated_acceptance_is_counted_as_duplicate() {
    violates(BrokenRule::CountEachRepeat, NO_CONTRADICTION, Sizes::CALM);
    violates(BrokenRule::CountEachRepeat, REPEATS, Sizes::CALM);
}

#[test]
fn begin_written_after_final_dot_is_missing_after_kill() {
    violates(BrokenRule::BeginAfterFinalDot, ONE_ACCEPT, Sizes { kills: 1, ..TWO_CLAIMS });
}

#[test]
fn journal_that_power_cut_took_proves_nothing() {
    violates(BrokenRule::TrustLostJournal, ONE_ACCEPT, Sizes { power_cuts: 1, ..TWO_CLAIMS });
}

#[test]
fn opt_out_answered_at_once_is_followed_by_email() {
    violates(BrokenRule::AnswerBeforeBarrier, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn barrier_run_by_deposed_leader_misses_leases_of_next() {
    violates(BrokenRule::BarrierOfAnyEpoch, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn handoffs_of_dead_process_must_be_named() {
    violates(BrokenRule::NameOnlyTheLiving, ARRIVALS_ARE_NAMED, Sizes { kills: 1, ..OPT_OUT });
}
