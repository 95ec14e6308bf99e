//! What must always hold, and what must be reached for the search to mean anything.
//!
//! The names begin with the number of the rule or invariant. The relay's side of an attempt is the
//! truth; the ledger is what is judged.

use stateright::Property;

use crate::attempt::{Attempt, Wire};
use crate::ledger::Ledger;
use crate::names::{Node, Recipient, Recipients};
use crate::protocol::Protocol;
use crate::state::State;

/// What the recipient sees.
pub const ONE_ACCEPT: &str = "I1 at most one accept for each recipient";
/// Nobody sends by a row that is not in the log, or that is another's.
pub const COVERED: &str = "I2 each accept is covered by a committed claim of its sender";
/// I1 before the relay has decided: what is past the gate may arrive.
pub const ONE_PAST_THE_GATE: &str = "I3 at most one attempt past the gate without a refusal";
/// A gate decides by an old state; leases and revocations must make that good. What the ledger
/// calls in doubt, pending or ended passes no gate any more (P5, P9).
pub const ON_ROW: &str = "P5 a gate passes only what the log still holds claimed in that row";
/// The first half of the promise behind an opt-out (P15).
pub const SILENCE_AFTER_ANSWER: &str = "I6 no gate pass after the opt-out's answer";
/// The second half: what may still arrive is named (P15).
pub const ARRIVALS_ARE_NAMED: &str = "I6 an accept after the answer was named in it";
/// Sent was accepted; what was accepted and is not sent is still held by a row.
pub const LEDGER_AND_RELAY: &str = "I9 ledger and relay agree";
/// The sum over the states is the audience; rows and states tell the same.
pub const CLOSED_ACCOUNTING: &str = "P1 each recipient is in one state and at most one open row";
/// Somebody alive, or the next life of the node, will settle it.
pub const OWNED: &str = "P1 each open row has an owner";
/// Proposals time out and are made again; a time-out means unknown.
pub const REPEATS: &str = "P4 a settle applied again changes nothing more";
/// A later row has a higher fence, across elections too.
pub const FENCES_GROW: &str = "P4 fences only grow";
/// Both are reached only by rules that are not in the model yet (`resend`, operators).
pub const NO_CONTRADICTION: &str = "P14 no contradiction and no known duplicate";

/// Everything that is checked, in the order in which it is read.
pub fn all() -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::<Protocol>::always(ONE_ACCEPT, one_accept),
        Property::<Protocol>::always(COVERED, covered),
        Property::<Protocol>::always(ONE_PAST_THE_GATE, one_past_the_gate),
        Property::<Protocol>::always(ON_ROW, |_, state| !state.witness.passed_off_row),
        Property::<Protocol>::always(SILENCE_AFTER_ANSWER, |_, state| !state.witness.passed_after_answer),
        Property::<Protocol>::always(ARRIVALS_ARE_NAMED, |_, state| !state.witness.accepted_unnamed),
        Property::<Protocol>::always(LEDGER_AND_RELAY, ledger_and_relay),
        Property::<Protocol>::always(CLOSED_ACCOUNTING, closed_accounting),
        Property::<Protocol>::always(OWNED, owned),
        Property::<Protocol>::always(REPEATS, |_, state| !state.witness.repeat_changed),
        Property::<Protocol>::always(FENCES_GROW, fences_grow),
        Property::<Protocol>::always(NO_CONTRADICTION, |_, state| {
            let tip = state.log.tip();
            tip.contradictions == 0 && tip.known_duplicates == 0
        }),
    ];
    all.extend(reached());
    all
}

fn recipients(model: &Protocol) -> impl Iterator<Item = Recipient> + use<> {
    0..model.sizes.recipients
}

fn one_accept(model: &Protocol, state: &State) -> bool {
    at_most_one(model, state, Attempt::is_accepted)
}

fn one_past_the_gate(model: &Protocol, state: &State) -> bool {
    at_most_one(model, state, Attempt::may_have_arrived)
}

fn at_most_one(model: &Protocol, state: &State, counts: fn(&Attempt) -> bool) -> bool {
    recipients(model).all(|recipient| {
        let of_recipient = |attempt: &&Attempt| attempt.recipient == recipient && counts(attempt);
        state.attempts.iter().filter(of_recipient).count() <= 1
    })
}

fn covered(_: &Protocol, state: &State) -> bool {
    state.attempts.iter().filter(|attempt| attempt.is_accepted()).all(|attempt| {
        state
            .log
            .tip()
            .row(attempt.row)
            .is_some_and(|row| row.holder == attempt.by && row.granted.has(attempt.recipient))
    })
}

fn accepted(state: &State) -> Recipients {
    let mut accepted = Recipients::NONE;
    for attempt in state.attempts.iter().filter(|attempt| attempt.is_accepted()) {
        accepted.insert(attempt.recipient);
    }
    accepted
}

fn ledger_and_relay(_: &Protocol, state: &State) -> bool {
    let tip = state.log.tip();
    let accepted = accepted(state);
    let held = tip.sent.or(tip.claimed).or(tip.in_doubt);
    tip.sent.without(accepted).is_empty() && accepted.without(held).is_empty()
}

fn closed_accounting(model: &Protocol, state: &State) -> bool {
    let Ledger { pending, claimed, in_doubt, sent, suppressed, rows, .. } = state.log.tip();
    let states = [pending, claimed, in_doubt, sent, suppressed];
    let sum: u32 = states.iter().map(|set| set.count()).sum();
    let union = states.iter().fold(Recipients::NONE, |union, set| union.or(**set));
    let in_rows: u32 = rows.iter().map(|row| row.open.count()).sum();
    let union_of_rows = rows.iter().fold(Recipients::NONE, |union, row| union.or(row.open));
    sum == u32::from(model.sizes.recipients)
        && union == Recipients::first(model.sizes.recipients)
        && union_of_rows == claimed.or(*in_doubt)
        && in_rows == union_of_rows.count()
        && rows.iter().all(|row| row.open.without(row.granted).is_empty())
}

/// An open row belongs to the current life of its node, or was there when that life began: then its
/// journal settles it.
fn owned(_: &Protocol, state: &State) -> bool {
    let tip = state.log.tip();
    tip.rows.iter().filter(|row| !row.open.is_empty()).all(|row| {
        let up = tip.up[row.holder.node.place()];
        row.holder.incarnation == up.incarnation || row.fence.index < up.since
    })
}

fn fences_grow(_: &Protocol, state: &State) -> bool {
    state.log.tip().rows.windows(2).all(|pair| pair[0].fence < pair[1].fence)
}

/// `sometimes` properties: a search that does not get there proves nothing about it.
pub mod reach {
    /// A mail is sent and the ledger knows it.
    pub const SENT: &str = "a recipient is sent";
    /// Two processes act as leaders of different epochs.
    pub const TWO_LEADERS: &str = "two processes lead at once";
    /// A mail arrives from a process that has not applied what is committed.
    pub const LATE_SENDER: &str = "a lagging process passes its gate";
    /// The holder's lease was over and its row was revoked.
    pub const REVOKED: &str = "a row is revoked";
    /// A mail arrived and the ledger holds it in doubt.
    pub const ARRIVED_IN_DOUBT: &str = "an accepted mail is in doubt";
    /// Evidence from an earlier life's journal moved somebody out of doubt.
    pub const RESOLVED: &str = "a later life resolves a doubt";
    /// A recipient got its second row after the first was given back or refused.
    pub const SECOND_ROW: &str = "a recipient is sent by its second row";
    /// An opt-out kept a mail from going out.
    pub const SUPPRESSED: &str = "a claimed recipient is suppressed";
    /// An opt-out was answered and a mail that the answer named arrived later.
    pub const CROSSED: &str = "a named mail arrives after the answer";
    /// A node was waited out.
    pub const UNCONFIRMED: &str = "an opt-out is answered with a node unconfirmed";
}

fn reached() -> Vec<Property<Protocol>> {
    vec![
        Property::<Protocol>::sometimes(reach::SENT, |_, state| !state.log.tip().sent.is_empty()),
        Property::<Protocol>::sometimes(reach::TWO_LEADERS, |_, state| {
            Node::all().all(|node| state.process(node).term.is_some())
        }),
        Property::<Protocol>::sometimes(reach::LATE_SENDER, |_, state| {
            let tip = state.log.tip();
            state.attempts.iter().any(|attempt| {
                attempt.wire == Wire::Accepted
                    && tip.epoch > attempt.row.epoch
                    && state.process(attempt.by.node).applied < tip.epoch
            })
        }),
        Property::<Protocol>::sometimes(reach::REVOKED, |_, state| state.witness.revoked),
        Property::<Protocol>::sometimes(reach::ARRIVED_IN_DOUBT, |_, state| {
            !accepted(state).and(state.log.tip().in_doubt).is_empty()
        }),
        Property::<Protocol>::sometimes(reach::RESOLVED, |_, state| {
            let tip = state.log.tip();
            tip.rows.iter().any(|row| {
                let is_resolved = !row.granted.and(tip.resolved).is_empty();
                is_resolved && row.holder != tip.current(row.holder.node)
            })
        }),
        Property::<Protocol>::sometimes(reach::SECOND_ROW, |_, state| {
            let rows = &state.log.tip().rows;
            rows.iter().skip(1).any(|row| !row.accepted.is_empty())
        }),
        Property::<Protocol>::sometimes(reach::SUPPRESSED, |_, state| !state.log.tip().suppressed.is_empty()),
        Property::<Protocol>::sometimes(reach::CROSSED, |_, state| state.witness.accepted_named),
        Property::<Protocol>::sometimes(reach::UNCONFIRMED, |_, state| {
            state.answer.as_ref().is_some_and(|answer| answer.unconfirmed.contains(&true))
        }),
    ]
}
