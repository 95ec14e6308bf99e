//! What decisions, a deadline and the end of a run do to one recipient, command by command: the cells of P14 and P16
//! that `evidence.rs` leaves out.

use reveille_model::Rules;
use reveille_model::apply::{Refusal, apply};
use reveille_model::entry::{Decide, Decider, Decision, Entry, Outcome, Settle};
use reveille_model::ledger::{Ledger, Standing};
use reveille_model::names::{Fence, Holder, Node, Recipients};
use reveille_model::run::{Policies, RunState};

const RULES: Rules = Rules { broken: None };
const HOLDER: Holder = Holder { node: Node(1), incarnation: 1 };
const POLICIES: Policies = Policies { max_attempts: 2, finish_by: 1, ..Policies::DEFAULT };

/// A ledger, built by committing entries only.
struct Story(Ledger);

impl Story {
    /// One recipient, in doubt in the row.
    fn of_a_doubt() -> (Story, Fence) {
        let mut story = Story(Ledger::opening(1, POLICIES));
        let row = story.claim();
        story.settle(row, Outcome::InDoubt);
        (story, row)
    }

    fn commit(&mut self, entry: Entry) {
        self.0 = apply(RULES, &self.0, &entry).expect("the story is one that can happen");
    }

    fn refuses(&self, entry: Entry) -> Refusal {
        apply(RULES, &self.0, &entry).expect_err("it must be refused")
    }

    fn claim(&mut self) -> Fence {
        let epoch = self.0.epoch;
        self.commit(Entry::Claim { epoch, holder: HOLDER, slice: Recipients::first(1) });
        self.0.rows[self.0.rows.len() - 1].fence
    }

    fn settle(&mut self, row: Fence, outcome: Outcome) {
        self.commit(Entry::Settle(Settle { row, recipient: 0, outcome }));
    }

    fn tick(&mut self) {
        let (epoch, now) = (self.0.epoch, self.0.now + 1);
        self.commit(Entry::Tick { epoch, now });
    }

    fn stands(&self, standing: Standing) -> bool {
        self.0.stands(0, standing)
    }
}

fn by_operator(decision: Decision) -> Entry {
    Entry::Decide(Decide { recipient: 0, decision, by: Decider::Operator })
}

fn by_policy(story: &Story, decision: Decision) -> Entry {
    Entry::Decide(Decide { recipient: 0, decision, by: Decider::Policy(story.0.epoch) })
}

#[test]
fn assumption_is_disproved_once_and_proved_for_ever() {
    for outcome in [Outcome::Released, Outcome::Refused] {
        let (mut story, row) = Story::of_a_doubt();
        story.commit(by_operator(Decision::Assume));
        assert!(story.stands(Standing::Assumed) && story.0.run.state == RunState::Finished);
        let doubt = Entry::Settle(Settle { row, recipient: 0, outcome: Outcome::InDoubt });
        assert_eq!(story.refuses(doubt), Refusal::NotInClaim, "doubt proves nothing");
        story.settle(row, outcome);
        assert!(story.stands(Standing::Pending) && story.0.run.state == RunState::Open);
        assert_eq!(story.0.run.assumptions_disproved, 1);
        assert_eq!(story.refuses(Entry::Settle(Settle { row, recipient: 0, outcome })), Refusal::NotInClaim);
    }
    let (mut story, row) = Story::of_a_doubt();
    story.commit(by_operator(Decision::Assume));
    story.settle(row, Outcome::Accepted);
    assert!(story.stands(Standing::Sent));
    assert_eq!((story.0.run.assumptions_disproved, story.0.run.contradictions), (0, 0));
}

#[test]
fn assumption_that_is_disproved_too_late_has_expired() {
    let (mut story, row) = Story::of_a_doubt();
    story.commit(by_operator(Decision::Assume));
    story.tick();
    story.settle(row, Outcome::Released);
    assert!(story.stands(Standing::Expired));
}

#[test]
fn resend_is_counted_and_by_policy_it_is_attempt() {
    let (mut story, row) = Story::of_a_doubt();
    story.commit(by_policy(&story, Decision::Resend));
    assert!(story.stands(Standing::Pending));
    assert_eq!((story.0.run.resent, story.0.run.attempts_of(0)), (1, 1));
    let second = story.claim();
    story.settle(second, Outcome::InDoubt);
    assert_eq!(story.refuses(by_policy(&story, Decision::Resend)), Refusal::NotPossible, "P4: a person decides");
    story.commit(by_operator(Decision::Resend));
    assert_eq!((story.0.run.resent, story.0.run.attempts_of(0)), (2, 1));
    story.settle(row, Outcome::Accepted);
    story.settle(second, Outcome::Accepted);
    assert!(story.stands(Standing::Sent));
    assert_eq!((story.0.run.known_duplicates, story.0.run.contradictions), (1, 0));
}

#[test]
fn recipient_without_doubt_is_not_decided() {
    let (mut story, row) = Story::of_a_doubt();
    story.settle(row, Outcome::Accepted);
    assert_eq!(story.refuses(by_operator(Decision::Resend)), Refusal::NotInClaim);
    assert_eq!(story.refuses(by_operator(Decision::Assume)), Refusal::NotInClaim);
}

#[test]
fn cancelled_run_takes_no_recipient_back() {
    let (mut story, row) = Story::of_a_doubt();
    story.commit(Entry::RunCancel);
    assert_eq!(story.refuses(by_operator(Decision::Resend)), Refusal::NotPossible);
    assert_eq!(story.refuses(Entry::RunResume), Refusal::NotPossible);
    story.settle(row, Outcome::Released);
    assert!(story.stands(Standing::Cancelled));
}

#[test]
fn last_attempt_is_dead_and_requeue_counts_anew() {
    let mut story = Story(Ledger::opening(1, POLICIES));
    for attempts in 1..=2 {
        assert!(story.stands(Standing::Pending));
        let row = story.claim();
        story.settle(row, Outcome::Refused);
        assert_eq!(story.0.run.attempts_of(0), attempts);
    }
    assert!(story.stands(Standing::Dead) && story.0.run.state == RunState::Finished);
    story.commit(Entry::Requeue { recipient: 0 });
    assert!(story.stands(Standing::Pending) && story.0.run.state == RunState::Open);
    assert_eq!(story.0.run.attempts_of(0), 0);
}

#[test]
fn deadline_leaves_claimed_recipient_and_resend_moves_it() {
    let mut story = Story(Ledger::opening(2, POLICIES));
    let row = story.claim();
    story.tick();
    let epoch = story.0.epoch;
    let claim = Entry::Claim { epoch, holder: HOLDER, slice: Recipients::first(2) };
    assert_eq!(story.refuses(claim), Refusal::NothingPending, "P16");
    story.commit(Entry::Expire { epoch });
    assert!(story.0.stands(1, Standing::Expired) && story.stands(Standing::Claimed));
    story.settle(row, Outcome::InDoubt);
    assert_eq!(story.refuses(by_policy(&story, Decision::Resend)), Refusal::NotPossible);
    story.commit(by_operator(Decision::Resend));
    assert_eq!((story.0.run.state, story.0.run.finish_by), (RunState::Open, 2));
}

#[test]
fn pause_outlives_deadline() {
    let mut story = Story(Ledger::opening(2, POLICIES));
    let row = story.claim();
    story.commit(Entry::RunPause);
    story.tick();
    let epoch = story.0.epoch;
    story.commit(Entry::Expire { epoch });
    story.settle(row, Outcome::InDoubt);
    story.commit(by_operator(Decision::Resend));
    assert_eq!(story.0.run.state, RunState::Paused);
    story.commit(Entry::RunResume);
    assert_eq!(story.0.run.state, RunState::Open);
}

#[test]
fn ledger_time_goes_on_by_step_and_in_epoch_alone() {
    let mut story = Story(Ledger::opening(1, POLICIES));
    let epoch = story.0.epoch;
    story.tick();
    assert_eq!(story.refuses(Entry::Tick { epoch, now: 0 }), Refusal::TimeWentBack);
    assert_eq!(story.refuses(Entry::Tick { epoch, now: 3 }), Refusal::TimeLeaps);
    story.commit(Entry::EpochStart { leader: HOLDER, agreed: 0 });
    assert_eq!(story.0.now, 1, "the clocks lag");
    story.commit(Entry::EpochStart { leader: HOLDER, agreed: 7 });
    assert_eq!(story.0.now, 7, "an outage");
    assert_eq!(story.refuses(Entry::Tick { epoch, now: 8 }), Refusal::WrongEpoch);
}
