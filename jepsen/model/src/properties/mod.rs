//! The properties that must always hold, and ([`reach`]) the states that a search must reach to prove anything.
//!
//! The names begin with the number of the rule or invariant. The relay's side of a handoff is the truth by which the
//! ledger is judged.

pub mod reach;

use stateright::Property;

use crate::handoff::{Handoff, Transit};
use crate::ledger::{Ledger, RecipientState};
use crate::names::{Recipient, Recipients};
use crate::protocol::Protocol;
use crate::run::RunState;
use crate::state::ModelState;

/// Judges the emails that the recipient gets. Without `resend` and without operators no recipient is sent again.
pub const ONE_ACCEPT: &str = "I1 at most one accept for each recipient, but for each counted resend";
/// No process sends by a claim that is not in the log, or that another process owns.
pub const COVERED: &str = "I2 each accept is covered by a committed claim of its sender";
/// I1 before the relay has decided, because an email past the gate may arrive.
pub const ONE_PAST_THE_GATE: &str =
    "I3 at most one attempt past the gate without a refusal, but for each counted resend";
/// A gate may decide by an old state, and leases and revocations must make this safe. A recipient that is in doubt,
/// pending or ended in the log passes no gate (P5, P9). The exception is a recipient that was resent although the
/// former claim had sent it: a gate that does not know this yet makes the duplicate that was counted.
pub const IN_CLAIM: &str = "P5 a gate passes only recipients that are still claimed in that claim";
/// Judged by the state of the gate's node. The lease bounds how much newer the log may be.
pub const IN_TIME: &str = "P5 no gate passes by a state in which the deadline has come";
/// The first half of the promise behind an opt-out, a pause and a cancel (P15).
pub const SILENCE_AFTER_ANSWER: &str = "I6 no gate pass after the answer, until a pause is resumed";
/// The second half of that promise: the answer names the emails that may still arrive (P15).
pub const ARRIVALS_ARE_NAMED: &str = "I6 an accept after the answer was named in it";
/// A run past its deadline counts as ended.
pub const NO_LATER_CLAIM: &str = "I8 no recipient is claimed of a run that is paused or ended";
/// Each sent recipient was accepted. An accepted recipient that is not sent is in a claim, assumed, or was sent again.
pub const LEDGER_AND_RELAY: &str = "I9 ledger and relay agree";
/// The sum over the states is the audience, and claims agree with states.
pub const CLOSED_ACCOUNTING: &str = "P1 each recipient is in one state and at most one open claim";
/// The process that owns a claim, or the next process of its node, settles it.
pub const OWNED: &str = "P1 each open claim has an owner";
/// Only evidence moves an assumed recipient, only an operator a dead recipient, and nothing any other terminal
/// recipient.
pub const TERMINAL: &str = "P1 a terminal state stays";
/// A proposal that timed out may have been committed, and is made again.
pub const REPEATS: &str = "P4 a settle applied again changes nothing more";
/// A later claim has a higher fence, also across elections.
pub const FENCES_GROW: &str = "P4 fences only grow";
/// Attempts are the relay's refusals, and decisions that count as an attempt.
pub const ATTEMPTS: &str = "P4 an attempt is counted once";
/// The last attempt makes a recipient dead.
pub const RETRIES_END: &str = "P4 a pending or claimed recipient has attempts left";
/// Without `resend` and without operators there are none.
pub const NO_CONTRADICTION: &str = "P14 no contradiction and no known duplicate, but for each counted resend";
/// In a cancelled or expired run a recipient that returns ends too.
pub const ENDED: &str = "P15 no recipient is pending in a run that has ended";
/// The clocks of leaders may show any time.
pub const TIME: &str = "P18 ledger time never goes back, and no entry of an epoch moves it too far";

/// Returns all properties, in the order of their report.
pub fn all() -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::<Protocol>::always(ONE_ACCEPT, one_accept),
        Property::<Protocol>::always(COVERED, covered),
        Property::<Protocol>::always(ONE_PAST_THE_GATE, one_past_the_gate),
        Property::<Protocol>::always(IN_CLAIM, |_, state| !state.observations.passed_outside_claim),
        Property::<Protocol>::always(IN_TIME, |_, state| !state.observations.passed_too_late),
        Property::<Protocol>::always(SILENCE_AFTER_ANSWER, |_, state| !state.observations.passed_after_answer),
        Property::<Protocol>::always(ARRIVALS_ARE_NAMED, |_, state| !state.observations.accepted_unnamed),
        Property::<Protocol>::always(NO_LATER_CLAIM, |_, state| !state.observations.claimed_of_stopped),
        Property::<Protocol>::always(LEDGER_AND_RELAY, ledger_and_relay),
        Property::<Protocol>::always(CLOSED_ACCOUNTING, closed_accounting),
        Property::<Protocol>::always(OWNED, owned),
        Property::<Protocol>::always(TERMINAL, |_, state| !state.observations.left_for_good),
        Property::<Protocol>::always(REPEATS, |_, state| !state.observations.repeat_changed),
        Property::<Protocol>::always(FENCES_GROW, fences_grow),
        Property::<Protocol>::always(ATTEMPTS, attempts),
        Property::<Protocol>::always(RETRIES_END, retries_end),
        Property::<Protocol>::always(NO_CONTRADICTION, |_, state| {
            let run = &state.log.tip().run;
            run.contradictions + run.known_duplicates <= run.resent
        }),
        Property::<Protocol>::always(ENDED, |_, state| {
            let tip = state.log.tip();
            let has_ended = matches!(tip.run.state, RunState::Cancelled | RunState::Expired);
            !has_ended || tip.set(RecipientState::Pending).is_empty()
        }),
        Property::<Protocol>::always(TIME, |_, state| !state.observations.time_broke),
    ];
    all.extend(reach::all());
    all
}

fn recipients(model: &Protocol) -> impl Iterator<Item = Recipient> + use<> {
    0..model.sizes.recipients
}

fn one_accept(model: &Protocol, state: &ModelState) -> bool {
    surplus(model, state, Handoff::is_accepted) <= usize::from(state.log.tip().run.resent)
}

fn one_past_the_gate(model: &Protocol, state: &ModelState) -> bool {
    surplus(model, state, Handoff::may_have_arrived) <= usize::from(state.log.tip().run.resent)
}

/// Returns the number of counted attempts above one for each recipient.
fn surplus(model: &Protocol, state: &ModelState, counts: fn(&Handoff) -> bool) -> usize {
    let surplus = recipients(model).map(|recipient| {
        let of_recipient = |handoff: &&Handoff| handoff.recipient == recipient && counts(handoff);
        state.handoffs.iter().filter(of_recipient).count().saturating_sub(1)
    });
    surplus.sum()
}

fn covered(_: &Protocol, state: &ModelState) -> bool {
    state.handoffs.iter().filter(|handoff| handoff.is_accepted()).all(|handoff| {
        state
            .log
            .tip()
            .claim(handoff.claim)
            .is_some_and(|claim| claim.owner == handoff.by && claim.granted.has(handoff.recipient))
    })
}

/// Returns the recipients whose emails the relay accepted.
fn accepted(state: &ModelState) -> Recipients {
    let mut accepted = Recipients::NONE;
    for handoff in state.handoffs.iter().filter(|handoff| handoff.is_accepted()) {
        accepted.insert(handoff.recipient);
    }
    accepted
}

fn ledger_and_relay(_: &Protocol, state: &ModelState) -> bool {
    let tip = state.log.tip();
    let held = [RecipientState::Sent, RecipientState::Claimed, RecipientState::InDoubt, RecipientState::Assumed];
    let held = held.into_iter().fold(Recipients::NONE, |held, recipient_state| held.or(tip.set(recipient_state)));
    let was_resent =
        |handoff: &Handoff| tip.claim(handoff.claim).is_some_and(|claim| claim.resent.has(handoff.recipient));
    let mut taken = state.handoffs.iter().filter(|handoff| handoff.is_accepted());
    tip.set(RecipientState::Sent).without(accepted(state)).is_empty()
        && taken.all(|handoff| held.has(handoff.recipient) || was_resent(handoff))
}

fn closed_accounting(model: &Protocol, state: &ModelState) -> bool {
    let Ledger { sets, claims, .. } = state.log.tip();
    let set = |recipient_state: RecipientState| sets[recipient_state as usize];
    let sum: u32 = sets.iter().map(|set| set.count()).sum();
    let union = sets.iter().fold(Recipients::NONE, |union, set| union.or(*set));
    let in_claims: u32 = claims.iter().map(|claim| claim.open.count()).sum();
    let union_of_claims = claims.iter().fold(Recipients::NONE, |union, claim| union.or(claim.open));
    let assumed_in_claims = claims.iter().fold(Recipients::NONE, |union, claim| union.or(claim.assumed));
    sum == u32::from(model.sizes.recipients)
        && union == Recipients::first(model.sizes.recipients)
        && union_of_claims == set(RecipientState::Claimed).or(set(RecipientState::InDoubt))
        && in_claims == union_of_claims.count()
        && set(RecipientState::Assumed).without(assumed_in_claims).is_empty()
        && claims.iter().all(|claim| claim.open.without(claim.granted).is_empty())
}

/// Returns true if each open claim belongs to the current incarnation of its node, or is older than that incarnation,
/// which settles it by the journal.
fn owned(_: &Protocol, state: &ModelState) -> bool {
    let tip = state.log.tip();
    tip.claims.iter().filter(|claim| !claim.open.is_empty()).all(|claim| {
        let up = tip.up[claim.owner.node.position()];
        claim.owner.incarnation == up.incarnation || claim.fence.index < up.since
    })
}

fn fences_grow(_: &Protocol, state: &ModelState) -> bool {
    state.log.tip().claims.windows(2).all(|pair| pair[0].fence < pair[1].fence)
}

fn attempts(model: &Protocol, state: &ModelState) -> bool {
    let tip = state.log.tip();
    recipients(model).all(|recipient| {
        let refused = |handoff: &&Handoff| handoff.recipient == recipient && handoff.transit == Transit::Refused;
        let resent = tip.claims.iter().filter(|claim| claim.resent.has(recipient)).count();
        usize::from(tip.run.attempts_of(recipient)) <= state.handoffs.iter().filter(refused).count() + resent
    })
}

fn retries_end(_: &Protocol, state: &ModelState) -> bool {
    let tip = state.log.tip();
    let mut goes_on = tip.set(RecipientState::Pending).or(tip.set(RecipientState::Claimed)).iter();
    goes_on.all(|recipient| tip.run.attempts_of(recipient) < tip.run.policies.max_attempts)
}
