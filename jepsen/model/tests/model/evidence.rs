//! The table of P14, cell by cell: the effect of a Settle of a claim on a recipient, by its state. With all rules the
//! search reaches only some of the cells; the ledger must be right in all.

use reveille_model::Rules;
use reveille_model::apply::{Refusal, apply};
use reveille_model::entry::{Entry, Outcome, Settle};
use reveille_model::ledger::{Ledger, RecipientState};
use reveille_model::names::{ClaimOwner, Fence, Node, Recipients};
use reveille_model::run::Policies;

const RULES: Rules = Rules { broken: None };
const OWNER: ClaimOwner = ClaimOwner { node: Node(1), incarnation: 1 };

/// A ledger and the fences of its claims, built by committing entries only.
struct LedgerScenario {
    ledger: Ledger,
}

impl LedgerScenario {
    fn new() -> LedgerScenario {
        LedgerScenario { ledger: Ledger::opening(1, Policies::DEFAULT) }
    }

    fn commit(&mut self, entry: Entry) {
        self.ledger = apply(RULES, &self.ledger, &entry).expect("the entry is possible");
    }

    fn claim(&mut self) -> Fence {
        let epoch = self.ledger.epoch;
        self.commit(Entry::Claim { epoch, owner: OWNER, slice: Recipients::first(1) });
        self.ledger.claims[self.ledger.claims.len() - 1].fence
    }

    fn settle(&self, claim: Fence, outcome: Outcome) -> Result<Ledger, Refusal> {
        apply(RULES, &self.ledger, &Entry::Settle(Settle { claim, recipient: 0, outcome }))
    }

    fn settled(&mut self, claim: Fence, outcome: Outcome) {
        self.commit(Entry::Settle(Settle { claim, recipient: 0, outcome }));
    }

    /// Evidence of `claim` must change nothing here.
    fn ignores(&self, claim: Fence, outcomes: &[Outcome]) {
        for outcome in outcomes {
            assert!(self.settle(claim, *outcome).is_err(), "{outcome:?} of {claim:?} moved something");
        }
    }
}

const NEGATIVE: [Outcome; 4] = [Outcome::Refused, Outcome::Released, Outcome::Suppressed, Outcome::InDoubt];

#[test]
fn evidence_of_claim_moves_its_recipients() {
    let mut scenario = LedgerScenario::new();
    let claim = scenario.claim();
    let after = |outcome| scenario.settle(claim, outcome).expect("the recipient is in the claim");
    assert!(after(Outcome::Accepted).is_in_state(0, RecipientState::Sent));
    assert!(after(Outcome::Refused).is_in_state(0, RecipientState::Pending));
    assert!(after(Outcome::Released).is_in_state(0, RecipientState::Pending));
    assert!(after(Outcome::InDoubt).is_in_state(0, RecipientState::InDoubt));
}

#[test]
fn recipient_in_doubt_stays_in_claim_until_evidence() {
    let mut scenario = LedgerScenario::new();
    let claim = scenario.claim();
    scenario.settled(claim, Outcome::InDoubt);
    scenario.ignores(claim, &[Outcome::InDoubt]);
    let after = |outcome| scenario.settle(claim, outcome).expect("the recipient is in the claim");
    assert!(after(Outcome::Accepted).is_in_state(0, RecipientState::Sent));
    assert!(after(Outcome::Released).is_in_state(0, RecipientState::Pending));
    assert!(after(Outcome::Refused).resolved.has(0));
}

#[test]
fn opted_out_recipient_is_suppressed_by_gate_that_knows() {
    let mut scenario = LedgerScenario::new();
    let claim = scenario.claim();
    scenario.commit(Entry::OptOut { recipient: 0 });
    let after = scenario.settle(claim, Outcome::Suppressed).expect("the recipient is in the claim");
    assert!(after.is_in_state(0, RecipientState::Suppressed) && after.set(RecipientState::Pending).is_empty());
    let after = scenario.settle(claim, Outcome::Released).expect("the recipient is in the claim");
    assert!(after.is_in_state(0, RecipientState::Pending));
}

#[test]
fn late_evidence_on_pending_recipient_counts_only_if_acceptance() {
    let mut scenario = LedgerScenario::new();
    let claim = scenario.claim();
    scenario.settled(claim, Outcome::Released);
    scenario.ignores(claim, &NEGATIVE);
    let after = scenario.settle(claim, Outcome::Accepted).expect("an acceptance is true for ever");
    assert!(after.is_in_state(0, RecipientState::Sent) && after.set(RecipientState::Pending).is_empty());
}

#[test]
fn late_evidence_on_recipient_in_another_claim_counts_only_if_acceptance() {
    let mut scenario = LedgerScenario::new();
    let first = scenario.claim();
    scenario.settled(first, Outcome::Released);
    let second = scenario.claim();
    scenario.ignores(first, &NEGATIVE);
    scenario.settled(first, Outcome::Accepted);
    assert!(scenario.ledger.is_in_state(0, RecipientState::Sent));
    assert!(!scenario.ledger.is_claimed_in(second, 0), "the second claim's gate must refuse");
    scenario.ignores(second, &NEGATIVE);
}

#[test]
fn second_fence_that_was_accepted_is_known_duplicate_and_is_counted_once() {
    let mut scenario = LedgerScenario::new();
    let first = scenario.claim();
    scenario.settled(first, Outcome::Released);
    let second = scenario.claim();
    scenario.settled(first, Outcome::Accepted);
    scenario.settled(second, Outcome::Accepted);
    assert_eq!((scenario.ledger.run.known_duplicates, scenario.ledger.run.contradictions), (1, 0));
    scenario.ignores(first, &[Outcome::Accepted]);
    scenario.ignores(second, &[Outcome::Accepted]);
}

#[test]
fn acceptance_after_another_end_is_contradiction_and_is_counted_once() {
    let mut scenario = LedgerScenario::new();
    let claim = scenario.claim();
    scenario.commit(Entry::OptOut { recipient: 0 });
    scenario.settled(claim, Outcome::Suppressed);
    scenario.settled(claim, Outcome::Accepted);
    assert_eq!((scenario.ledger.run.known_duplicates, scenario.ledger.run.contradictions), (0, 1));
    assert!(scenario.ledger.is_in_state(0, RecipientState::Suppressed), "a terminal state stays");
    scenario.ignores(claim, &[Outcome::Accepted]);
}

#[test]
fn claim_of_another_epoch_or_incarnation_is_refused() {
    let mut scenario = LedgerScenario::new();
    let former = scenario.ledger.epoch;
    scenario.commit(Entry::EpochStart { leader: OWNER, agreed: 0 });
    let slice = Recipients::first(1);
    let claim = |epoch, owner| apply(RULES, &scenario.ledger, &Entry::Claim { epoch, owner, slice });
    assert_eq!(claim(former, OWNER).err(), Some(Refusal::WrongEpoch));
    let next = ClaimOwner { incarnation: 2, ..OWNER };
    assert_eq!(claim(scenario.ledger.epoch, next).err(), Some(Refusal::OtherIncarnation));
    assert!(claim(scenario.ledger.epoch, OWNER).is_ok());
}

#[test]
fn announcement_of_earlier_incarnation_is_refused() {
    let mut scenario = LedgerScenario::new();
    let up = |incarnation| Entry::NodeUp { process: ClaimOwner { incarnation, ..OWNER } };
    scenario.commit(up(3));
    assert_eq!(apply(RULES, &scenario.ledger, &up(2)).err(), Some(Refusal::OtherIncarnation));
    assert_eq!(scenario.ledger.current(OWNER.node).incarnation, 3);
}
