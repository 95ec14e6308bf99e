//! The effect of decisions, a deadline and the end of a run on one recipient, command by command: the cells of P14 and
//! P16 that `evidence.rs` leaves out.

use reveille_model::Rules;
use reveille_model::apply::{Refusal, apply};
use reveille_model::entry::{Decide, Decider, Decision, Entry, Outcome, Settle};
use reveille_model::ledger::{Ledger, RecipientState};
use reveille_model::names::{ClaimOwner, Fence, Node, Recipients};
use reveille_model::run::{Policies, RunState};

const RULES: Rules = Rules { broken: None };
const OWNER: ClaimOwner = ClaimOwner { node: Node(1), incarnation: 1 };
const POLICIES: Policies = Policies { max_attempts: 2, finish_by: 1, ..Policies::DEFAULT };

/// A ledger, built by committing entries only.
struct LedgerScenario(Ledger);

impl LedgerScenario {
    /// Returns one recipient, in doubt in the claim.
    fn of_a_doubt() -> (LedgerScenario, Fence) {
        let mut scenario = LedgerScenario(Ledger::opening(1, POLICIES));
        let claim = scenario.claim();
        scenario.settle(claim, Outcome::InDoubt);
        (scenario, claim)
    }

    fn commit(&mut self, entry: Entry) {
        self.0 = apply(RULES, &self.0, &entry).expect("the entry is possible");
    }

    fn refuses(&self, entry: Entry) -> Refusal {
        apply(RULES, &self.0, &entry).expect_err("it must be refused")
    }

    fn claim(&mut self) -> Fence {
        let epoch = self.0.epoch;
        self.commit(Entry::Claim { epoch, owner: OWNER, slice: Recipients::first(1) });
        self.0.claims[self.0.claims.len() - 1].fence
    }

    fn settle(&mut self, claim: Fence, outcome: Outcome) {
        self.commit(Entry::Settle(Settle { claim, recipient: 0, outcome }));
    }

    fn tick(&mut self) {
        let (epoch, now) = (self.0.epoch, self.0.now + 1);
        self.commit(Entry::Tick { epoch, now });
    }

    fn is_in_state(&self, recipient_state: RecipientState) -> bool {
        self.0.is_in_state(0, recipient_state)
    }
}

fn by_operator(decision: Decision) -> Entry {
    Entry::Decide(Decide { recipient: 0, decision, by: Decider::Operator })
}

fn by_policy(scenario: &LedgerScenario, decision: Decision) -> Entry {
    Entry::Decide(Decide { recipient: 0, decision, by: Decider::Policy(scenario.0.epoch) })
}

#[test]
fn assumption_is_disproved_once_and_proved_for_ever() {
    for outcome in [Outcome::Released, Outcome::Refused] {
        let (mut scenario, claim) = LedgerScenario::of_a_doubt();
        scenario.commit(by_operator(Decision::Assume));
        assert!(scenario.is_in_state(RecipientState::Assumed) && scenario.0.run.state == RunState::Finished);
        let doubt = Entry::Settle(Settle { claim, recipient: 0, outcome: Outcome::InDoubt });
        assert_eq!(scenario.refuses(doubt), Refusal::NotInClaim, "doubt proves nothing");
        scenario.settle(claim, outcome);
        assert!(scenario.is_in_state(RecipientState::Pending) && scenario.0.run.state == RunState::Open);
        assert_eq!(scenario.0.run.assumptions_disproved, 1);
        assert_eq!(scenario.refuses(Entry::Settle(Settle { claim, recipient: 0, outcome })), Refusal::NotInClaim);
    }
    let (mut scenario, claim) = LedgerScenario::of_a_doubt();
    scenario.commit(by_operator(Decision::Assume));
    scenario.settle(claim, Outcome::Accepted);
    assert!(scenario.is_in_state(RecipientState::Sent));
    assert_eq!((scenario.0.run.assumptions_disproved, scenario.0.run.contradictions), (0, 0));
}

#[test]
fn assumption_that_is_disproved_too_late_has_expired() {
    let (mut scenario, claim) = LedgerScenario::of_a_doubt();
    scenario.commit(by_operator(Decision::Assume));
    scenario.tick();
    scenario.settle(claim, Outcome::Released);
    assert!(scenario.is_in_state(RecipientState::Expired));
}

#[test]
fn resend_is_counted_and_policy_resend_is_attempt() {
    let (mut scenario, claim) = LedgerScenario::of_a_doubt();
    scenario.commit(by_policy(&scenario, Decision::Resend));
    assert!(scenario.is_in_state(RecipientState::Pending));
    assert_eq!((scenario.0.run.resent, scenario.0.run.attempts_of(0)), (1, 1));
    let second = scenario.claim();
    scenario.settle(second, Outcome::InDoubt);
    assert_eq!(
        scenario.refuses(by_policy(&scenario, Decision::Resend)),
        Refusal::NotPossible,
        "P4: an operator decides"
    );
    scenario.commit(by_operator(Decision::Resend));
    assert_eq!((scenario.0.run.resent, scenario.0.run.attempts_of(0)), (2, 1));
    scenario.settle(claim, Outcome::Accepted);
    scenario.settle(second, Outcome::Accepted);
    assert!(scenario.is_in_state(RecipientState::Sent));
    assert_eq!((scenario.0.run.known_duplicates, scenario.0.run.contradictions), (1, 0));
}

#[test]
fn recipient_without_doubt_is_not_decided() {
    let (mut scenario, claim) = LedgerScenario::of_a_doubt();
    scenario.settle(claim, Outcome::Accepted);
    assert_eq!(scenario.refuses(by_operator(Decision::Resend)), Refusal::NotInClaim);
    assert_eq!(scenario.refuses(by_operator(Decision::Assume)), Refusal::NotInClaim);
}

#[test]
fn cancelled_run_takes_no_recipient_back() {
    let (mut scenario, claim) = LedgerScenario::of_a_doubt();
    scenario.commit(Entry::RunCancel);
    assert_eq!(scenario.refuses(by_operator(Decision::Resend)), Refusal::NotPossible);
    assert_eq!(scenario.refuses(Entry::RunResume), Refusal::NotPossible);
    scenario.settle(claim, Outcome::Released);
    assert!(scenario.is_in_state(RecipientState::Cancelled));
}

#[test]
fn last_attempt_is_dead_and_requeue_counts_anew() {
    let mut scenario = LedgerScenario(Ledger::opening(1, POLICIES));
    for attempts in 1..=2 {
        assert!(scenario.is_in_state(RecipientState::Pending));
        let claim = scenario.claim();
        scenario.settle(claim, Outcome::Refused);
        assert_eq!(scenario.0.run.attempts_of(0), attempts);
    }
    assert!(scenario.is_in_state(RecipientState::Dead) && scenario.0.run.state == RunState::Finished);
    scenario.commit(Entry::Requeue { recipient: 0 });
    assert!(scenario.is_in_state(RecipientState::Pending) && scenario.0.run.state == RunState::Open);
    assert_eq!(scenario.0.run.attempts_of(0), 0);
}

#[test]
fn deadline_leaves_claimed_recipient_and_resend_moves_it() {
    let mut scenario = LedgerScenario(Ledger::opening(2, POLICIES));
    let claim = scenario.claim();
    scenario.tick();
    let epoch = scenario.0.epoch;
    let second = Entry::Claim { epoch, owner: OWNER, slice: Recipients::first(2) };
    assert_eq!(scenario.refuses(second), Refusal::NothingPending, "P16");
    scenario.commit(Entry::Expire { epoch });
    assert!(scenario.0.is_in_state(1, RecipientState::Expired) && scenario.is_in_state(RecipientState::Claimed));
    scenario.settle(claim, Outcome::InDoubt);
    assert_eq!(scenario.refuses(by_policy(&scenario, Decision::Resend)), Refusal::NotPossible);
    scenario.commit(by_operator(Decision::Resend));
    assert_eq!((scenario.0.run.state, scenario.0.run.finish_by), (RunState::Open, 2));
}

#[test]
fn pause_outlives_deadline() {
    let mut scenario = LedgerScenario(Ledger::opening(2, POLICIES));
    let claim = scenario.claim();
    scenario.commit(Entry::RunPause);
    scenario.tick();
    let epoch = scenario.0.epoch;
    scenario.commit(Entry::Expire { epoch });
    scenario.settle(claim, Outcome::InDoubt);
    scenario.commit(by_operator(Decision::Resend));
    assert_eq!(scenario.0.run.state, RunState::Paused);
    scenario.commit(Entry::RunResume);
    assert_eq!(scenario.0.run.state, RunState::Open);
}

#[test]
fn ledger_time_advances_by_step_and_within_epoch() {
    let mut scenario = LedgerScenario(Ledger::opening(1, POLICIES));
    let epoch = scenario.0.epoch;
    scenario.tick();
    assert_eq!(scenario.refuses(Entry::Tick { epoch, now: 0 }), Refusal::TimeWentBack);
    assert_eq!(scenario.refuses(Entry::Tick { epoch, now: 3 }), Refusal::TimeLeaps);
    scenario.commit(Entry::EpochStart { leader: OWNER, agreed: 0 });
    assert_eq!(scenario.0.now, 1, "the clocks lag");
    scenario.commit(Entry::EpochStart { leader: OWNER, agreed: 7 });
    assert_eq!(scenario.0.now, 7, "an outage");
    assert_eq!(scenario.refuses(Entry::Tick { epoch, now: 8 }), Refusal::WrongEpoch);
}
