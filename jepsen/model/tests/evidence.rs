//! The table of P14, cell by cell: what a Settle of row f does to a recipient, by where it is. The
//! search reaches only some of the cells while all rules hold; the ledger must be right in all.

use reveille_model::Rules;
use reveille_model::apply::{Refusal, apply};
use reveille_model::entry::{Entry, Outcome, Settle};
use reveille_model::ledger::{Ledger, Standing};
use reveille_model::names::{Fence, Holder, Node, Recipients};
use reveille_model::run::Policies;

const RULES: Rules = Rules { broken: None };
const HOLDER: Holder = Holder { node: Node(1), incarnation: 1 };

/// A ledger and the fences of its rows, built by committing entries only.
struct Story {
    ledger: Ledger,
}

impl Story {
    fn new() -> Story {
        Story { ledger: Ledger::opening(1, Policies::DEFAULT) }
    }

    fn commit(&mut self, entry: Entry) {
        self.ledger = apply(RULES, &self.ledger, &entry).expect("the story is one that can happen");
    }

    fn claim(&mut self) -> Fence {
        let epoch = self.ledger.epoch;
        self.commit(Entry::Claim { epoch, holder: HOLDER, slice: Recipients::first(1) });
        self.ledger.rows[self.ledger.rows.len() - 1].fence
    }

    fn settle(&self, row: Fence, outcome: Outcome) -> Result<Ledger, Refusal> {
        apply(RULES, &self.ledger, &Entry::Settle(Settle { row, recipient: 0, outcome }))
    }

    fn settled(&mut self, row: Fence, outcome: Outcome) {
        self.commit(Entry::Settle(Settle { row, recipient: 0, outcome }));
    }

    /// Evidence of `row` must change nothing here.
    fn ignores(&self, row: Fence, outcomes: &[Outcome]) {
        for outcome in outcomes {
            assert!(self.settle(row, *outcome).is_err(), "{outcome:?} of {row:?} moved something");
        }
    }
}

const NEGATIVE: [Outcome; 4] = [Outcome::Refused, Outcome::Released, Outcome::Suppressed, Outcome::InDoubt];

#[test]
fn evidence_of_row_moves_who_is_in_it() {
    let mut story = Story::new();
    let row = story.claim();
    let after = |outcome| story.settle(row, outcome).expect("the recipient is in the row");
    assert!(after(Outcome::Accepted).stands(0, Standing::Sent));
    assert!(after(Outcome::Refused).stands(0, Standing::Pending));
    assert!(after(Outcome::Released).stands(0, Standing::Pending));
    assert!(after(Outcome::InDoubt).stands(0, Standing::InDoubt));
}

#[test]
fn recipient_in_doubt_stays_in_row_until_its_evidence() {
    let mut story = Story::new();
    let row = story.claim();
    story.settled(row, Outcome::InDoubt);
    story.ignores(row, &[Outcome::InDoubt]);
    let after = |outcome| story.settle(row, outcome).expect("the recipient is in the row");
    assert!(after(Outcome::Accepted).stands(0, Standing::Sent));
    assert!(after(Outcome::Released).stands(0, Standing::Pending));
    assert!(after(Outcome::Refused).resolved.has(0));
}

#[test]
fn opted_out_recipient_is_suppressed_by_gate_that_knows() {
    let mut story = Story::new();
    let row = story.claim();
    story.commit(Entry::OptOut { recipient: 0 });
    let after = story.settle(row, Outcome::Suppressed).expect("the recipient is in the row");
    assert!(after.stands(0, Standing::Suppressed) && after.set(Standing::Pending).is_empty());
    let after = story.settle(row, Outcome::Released).expect("the recipient is in the row");
    assert!(after.stands(0, Standing::Pending));
}

#[test]
fn late_evidence_on_pending_recipient_counts_only_if_acceptance() {
    let mut story = Story::new();
    let row = story.claim();
    story.settled(row, Outcome::Released);
    story.ignores(row, &NEGATIVE);
    let after = story.settle(row, Outcome::Accepted).expect("an acceptance is true for ever");
    assert!(after.stands(0, Standing::Sent) && after.set(Standing::Pending).is_empty());
}

#[test]
fn late_evidence_on_recipient_in_another_row_counts_only_if_acceptance() {
    let mut story = Story::new();
    let first = story.claim();
    story.settled(first, Outcome::Released);
    let second = story.claim();
    story.ignores(first, &NEGATIVE);
    story.settled(first, Outcome::Accepted);
    assert!(story.ledger.stands(0, Standing::Sent));
    assert!(!story.ledger.is_claimed_in(second, 0), "the second row's gate must refuse");
    story.ignores(second, &NEGATIVE);
}

#[test]
fn second_fence_that_was_accepted_is_known_duplicate_and_is_counted_once() {
    let mut story = Story::new();
    let first = story.claim();
    story.settled(first, Outcome::Released);
    let second = story.claim();
    story.settled(first, Outcome::Accepted);
    story.settled(second, Outcome::Accepted);
    assert_eq!((story.ledger.run.known_duplicates, story.ledger.run.contradictions), (1, 0));
    story.ignores(first, &[Outcome::Accepted]);
    story.ignores(second, &[Outcome::Accepted]);
}

#[test]
fn acceptance_after_another_end_is_contradiction_and_is_counted_once() {
    let mut story = Story::new();
    let row = story.claim();
    story.commit(Entry::OptOut { recipient: 0 });
    story.settled(row, Outcome::Suppressed);
    story.settled(row, Outcome::Accepted);
    assert_eq!((story.ledger.run.known_duplicates, story.ledger.run.contradictions), (0, 1));
    assert!(story.ledger.stands(0, Standing::Suppressed), "a terminal state stays");
    story.ignores(row, &[Outcome::Accepted]);
}

#[test]
fn claim_of_another_epoch_or_life_is_refused() {
    let mut story = Story::new();
    let former = story.ledger.epoch;
    story.commit(Entry::EpochStart { leader: HOLDER, agreed: 0 });
    let slice = Recipients::first(1);
    let claim = |epoch, holder| apply(RULES, &story.ledger, &Entry::Claim { epoch, holder, slice });
    assert_eq!(claim(former, HOLDER).err(), Some(Refusal::WrongEpoch));
    let next_life = Holder { incarnation: 2, ..HOLDER };
    assert_eq!(claim(story.ledger.epoch, next_life).err(), Some(Refusal::OtherIncarnation));
    assert!(claim(story.ledger.epoch, HOLDER).is_ok());
}

#[test]
fn announcement_of_earlier_life_comes_too_late() {
    let mut story = Story::new();
    let life = |incarnation| Entry::NodeUp { process: Holder { incarnation, ..HOLDER } };
    story.commit(life(3));
    assert_eq!(apply(RULES, &story.ledger, &life(2)).err(), Some(Refusal::OtherIncarnation));
    assert_eq!(story.ledger.current(HOLDER.node).incarnation, 3);
}
