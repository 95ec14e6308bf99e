//! Each rule that is left out must be missed: the search finds an order of events in which a named property falls. A
//! variant that survives would mean that the model is too weak to judge. Here: claims, leases, settles, the gate, the
//! journal, the barrier. What a run, an operator and ledger time add is in `broken_decisions.rs`.

mod falls;

use falls::falls;
use reveille_model::properties::{
    ARRIVALS_ARE_NAMED, CLOSED_ACCOUNTING, COVERED, FENCES_GROW, LEDGER_AND_RELAY, NO_CONTRADICTION, ON_ROW,
    ONE_ACCEPT, ONE_PAST_THE_GATE, OWNED, REPEATS, SILENCE_AFTER_ANSWER,
};
use reveille_model::{Broken, Protocol, Replay, Sizes};
use stateright::{Checker, Expectation, Model};

const TWO_ROWS: Sizes = Sizes { claims: 2, ..Sizes::CALM };
const ELECTION: Sizes = Sizes { elections: 1, ..Sizes::CALM };
const OPT_OUT: Sizes = Sizes { opt_outs: 1, ..Sizes::CALM };
const OPT_OUT_AND_ELECTION: Sizes = Sizes { opt_outs: 1, ..ELECTION };

#[test]
fn row_of_node_is_sent_again_by_its_next_life() {
    let replay = Sizes { kills: 1, replay: Replay::Everything, ..Sizes::CALM };
    falls(Broken::NoIncarnation, ONE_ACCEPT, replay);
    falls(Broken::NoIncarnation, COVERED, replay);
}

#[test]
fn claim_of_claimed_recipient_puts_it_into_two_rows() {
    falls(Broken::ClaimWithoutPending, CLOSED_ACCOUNTING, TWO_ROWS);
    falls(Broken::ClaimWithoutPending, ONE_ACCEPT, TWO_ROWS);
}

#[test]
fn row_of_dead_incarnation_has_no_owner() {
    falls(Broken::ClaimForAnyIncarnation, OWNED, Sizes { kills: 1, ..Sizes::CALM });
}

#[test]
fn claim_of_former_epoch_makes_fences_go_back() {
    falls(Broken::ClaimOfAnyEpoch, FENCES_GROW, Sizes { elections: 1, ..TWO_ROWS });
}

/// What keeps a recipient out of two rows is that it must be pending at apply. The epoch in a claim
/// guards the order of fences, and what leaders count (caps, budgets), not I1 to I6.
#[test]
fn claim_of_former_epoch_breaks_nothing_else() {
    for sizes in [Sizes { elections: 1, ..TWO_ROWS }, OPT_OUT_AND_ELECTION] {
        let checker = Protocol::without(Broken::ClaimOfAnyEpoch, sizes).checker().threads(2).spawn_bfs().join();
        for property in checker.model().properties() {
            if property.expectation == Expectation::Always && property.name != FENCES_GROW {
                checker.assert_no_discovery(property.name);
            }
        }
    }
}

#[test]
fn deposed_leader_revokes_row_that_lives() {
    falls(Broken::RevokeOfAnyEpoch, ON_ROW, ELECTION);
}

#[test]
fn lease_that_starts_at_apply_starts_after_it_was_taken_for_over() {
    falls(Broken::LeaseFromApply, ON_ROW, Sizes::CALM);
    falls(Broken::LeaseFromApply, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn lease_from_deposed_leader_is_not_waited_for() {
    falls(Broken::GrantWithoutQuorum, ON_ROW, ELECTION);
    falls(Broken::GrantWithoutQuorum, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn lease_that_demands_no_index_brings_old_state_back_to_life() {
    falls(Broken::GrantWithoutFloor, ON_ROW, Sizes::CALM);
    falls(Broken::GrantWithoutFloor, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn lease_granted_during_revocation_outlives_it() {
    falls(Broken::GrantDuringRevocation, ON_ROW, Sizes::CALM);
}

#[test]
fn row_revoked_by_age_is_sent_from() {
    falls(Broken::RevokeByAge, ON_ROW, Sizes::CALM);
}

#[test]
fn new_leader_that_does_not_wait_meets_leases_of_former() {
    falls(Broken::NewLeaderDoesNotWait, ON_ROW, ELECTION);
    falls(Broken::NewLeaderDoesNotWait, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn resend_of_claimed_recipient_arrives_twice() {
    falls(Broken::Resend, ONE_ACCEPT, TWO_ROWS);
    falls(Broken::Resend, ONE_PAST_THE_GATE, TWO_ROWS);
    falls(Broken::Resend, LEDGER_AND_RELAY, TWO_ROWS);
}

#[test]
fn settle_without_its_row_frees_what_another_row_holds() {
    falls(Broken::SettleWithoutRow, REPEATS, TWO_ROWS);
    falls(Broken::SettleWithoutRow, ONE_ACCEPT, Sizes { claims: 3, ..Sizes::CALM });
}

#[test]
fn acceptance_that_comes_again_is_taken_for_duplicate() {
    falls(Broken::CountEachRepeat, NO_CONTRADICTION, Sizes::CALM);
    falls(Broken::CountEachRepeat, REPEATS, Sizes::CALM);
}

#[test]
fn begin_written_after_terminator_is_missing_after_kill() {
    falls(Broken::BeginAfterTerminator, ONE_ACCEPT, Sizes { kills: 1, ..TWO_ROWS });
}

#[test]
fn journal_that_power_cut_took_proves_nothing() {
    falls(Broken::TrustLostJournal, ONE_ACCEPT, Sizes { power_cuts: 1, ..TWO_ROWS });
}

#[test]
fn opt_out_answered_at_once_is_followed_by_mail() {
    falls(Broken::AnswerBeforeBarrier, SILENCE_AFTER_ANSWER, OPT_OUT);
}

#[test]
fn barrier_run_by_deposed_leader_misses_leases_of_next() {
    falls(Broken::BarrierOfAnyEpoch, SILENCE_AFTER_ANSWER, OPT_OUT_AND_ELECTION);
}

#[test]
fn hand_offs_of_dead_process_must_be_named() {
    falls(Broken::NameOnlyTheLiving, ARRIVALS_ARE_NAMED, Sizes { kills: 1, ..OPT_OUT });
}
