//! `sometimes` properties: a search that does not reach a state proves nothing about it.

use stateright::Property;

use super::accepted;
use crate::answer::About;
use crate::handoff::{Handoff, Transit};
use crate::ledger::RecipientState;
use crate::names::Node;
use crate::protocol::Protocol;
use crate::run::RunState;
use crate::state::ModelState;

/// An email is sent and the ledger knows it.
pub const SENT: &str = "a recipient is sent";
/// Two processes act as leaders of different epochs.
pub const TWO_LEADERS: &str = "two processes lead at once";
/// An email arrives from a process that has not applied all committed entries.
pub const LATE_SENDER: &str = "a lagging process passes its gate";
/// The owner's lease had ended and its claim was revoked.
pub const REVOKED: &str = "a claim is revoked";
/// An email arrived and its recipient is in doubt in the ledger.
pub const ARRIVED_IN_DOUBT: &str = "an accepted email is in doubt";
/// Evidence from an earlier incarnation's journal moved a recipient out of doubt.
pub const RESOLVED: &str = "a later incarnation resolves a doubt";
/// A recipient got its second claim after the first was returned or refused.
pub const SECOND_CLAIM: &str = "a recipient is sent by its second claim";
/// An opt-out prevented an email.
pub const SUPPRESSED: &str = "a claimed recipient is suppressed";
/// An answer was given and an email that it named arrived later.
pub const CROSSED: &str = "a named email arrives after the answer";
/// The leader waited until a node's leases had ended.
pub const UNCONFIRMED: &str = "an answer is given with a node unconfirmed";
/// The attempts of a recipient are used up.
pub const DEAD: &str = "a recipient is dead of its attempts";
/// An operator sent a dead recipient again, and it arrived.
pub const REQUEUED: &str = "a dead recipient is sent again and arrives";
/// A duplicate by choice: two accepts, and the ledger cannot know.
pub const DUPLICATE: &str = "a recipient that was sent again gets two emails";
/// A duplicate by choice of which both answers arrive in the end.
pub const KNOWN_DUPLICATE: &str = "a known duplicate is counted";
/// A recipient was sent again and ended without an email, and the first email had arrived.
pub const CONTRADICTION: &str = "a contradiction is counted";
/// The email of an assumed recipient may have arrived.
pub const ARRIVED_ASSUMED: &str = "an accepted email is assumed";
/// The acceptance of an assumed recipient may become known later.
pub const SENT_AFTER_ALL: &str = "an assumed recipient turns out to be sent";
/// Evidence may show that an assumed recipient was not accepted.
pub const DISPROVED: &str = "an assumption is disproved and the recipient is sent";
/// Evidence that an assumed recipient was not accepted may be too late for another attempt.
pub const DISPROVED_TOO_LATE: &str = "an assumption is disproved after the deadline";
/// A pause was answered and resumed, and the run continued.
pub const RESUMED: &str = "an email is sent after a pause that was answered";
/// A recipient that was claimed when its run was cancelled returned, and was cancelled.
pub const CANCELLED: &str = "a claimed recipient is cancelled";
/// The deadline came before the first attempt.
pub const EXPIRED: &str = "a recipient expires";
/// The deadline came after an attempt.
pub const DEAD_OF_TIME: &str = "a recipient is dead of the deadline";
/// A gate lags behind the deadline, as long as its lease permits it.
pub const UNAWARE: &str = "a gate passes before its node learns of the deadline";
/// An operator sends a recipient again after the deadline: the run has another one.
pub const REOPENED: &str = "a run is opened again after its deadline and sends";

/// Returns all `sometimes` properties.
pub(super) fn all() -> Vec<Property<Protocol>> {
    let mut all = of_the_spine();
    all.extend(of_decisions());
    all.extend(of_runs());
    all
}

fn of_the_spine() -> Vec<Property<Protocol>> {
    vec![
        sometimes(SENT, |_, state| is_in_state(state, RecipientState::Sent)),
        sometimes(TWO_LEADERS, |_, state| Node::all().all(|node| state.process(node).term.is_some())),
        sometimes(LATE_SENDER, |_, state| {
            let tip = state.log.tip();
            state.handoffs.iter().any(|handoff| {
                handoff.transit == Transit::Accepted
                    && tip.epoch > handoff.claim.epoch
                    && state.process(handoff.by.node).applied < tip.epoch
            })
        }),
        sometimes(REVOKED, |_, state| state.observations.revoked),
        sometimes(ARRIVED_IN_DOUBT, |_, state| has_arrived(state, RecipientState::InDoubt)),
        sometimes(RESOLVED, |_, state| {
            let tip = state.log.tip();
            tip.claims.iter().any(|claim| {
                let is_resolved = !claim.granted.and(tip.resolved).is_empty();
                is_resolved && claim.owner != tip.current(claim.owner.node)
            })
        }),
        sometimes(SECOND_CLAIM, |_, state| state.log.tip().claims.iter().skip(1).any(|claim| !claim.sent.is_empty())),
        sometimes(SUPPRESSED, |_, state| is_in_state(state, RecipientState::Suppressed)),
        sometimes(CROSSED, |_, state| state.observations.accepted_named),
        sometimes(UNCONFIRMED, |_, state| {
            state.answer.as_ref().is_some_and(|answer| answer.unconfirmed.contains(&true))
        }),
    ]
}

fn of_decisions() -> Vec<Property<Protocol>> {
    vec![
        sometimes(DEAD, |_, state| {
            let tip = state.log.tip();
            let mut dead = tip.set(RecipientState::Dead).iter();
            dead.any(|recipient| tip.run.attempts_of(recipient) == tip.run.policies.max_attempts)
        }),
        sometimes(REQUEUED, |_, state| state.orders.requeues > 0 && is_in_state(state, RecipientState::Sent)),
        sometimes(DUPLICATE, |_, state| {
            let is_taken = |handoff: &&Handoff| handoff.recipient == 0 && handoff.is_accepted();
            state.handoffs.iter().filter(is_taken).count() > 1
        }),
        sometimes(KNOWN_DUPLICATE, |_, state| state.log.tip().run.known_duplicates > 0),
        sometimes(CONTRADICTION, |_, state| state.log.tip().run.contradictions > 0),
        sometimes(ARRIVED_ASSUMED, |_, state| has_arrived(state, RecipientState::Assumed)),
        sometimes(SENT_AFTER_ALL, |_, state| {
            let tip = state.log.tip();
            tip.claims.iter().any(|claim| !claim.assumed.and(claim.sent).and(tip.set(RecipientState::Sent)).is_empty())
        }),
        sometimes(DISPROVED, |_, state| {
            state.log.tip().run.assumptions_disproved > 0 && is_in_state(state, RecipientState::Sent)
        }),
        sometimes(DISPROVED_TOO_LATE, |_, state| {
            state.log.tip().run.assumptions_disproved > 0 && is_in_state(state, RecipientState::Expired)
        }),
    ]
}

fn of_runs() -> Vec<Property<Protocol>> {
    vec![
        sometimes(RESUMED, |_, state| {
            let is_answered = state.answer.as_ref().is_some_and(|answer| answer.about == About::Run);
            let later =
                |index| state.log.tip().claims.iter().any(|claim| claim.fence.index > index && !claim.sent.is_empty());
            is_answered && state.answer.as_ref().is_some_and(|answer| later(answer.index))
        }),
        sometimes(CANCELLED, |_, state| {
            is_in_state(state, RecipientState::Cancelled) && !state.log.tip().claims.is_empty()
        }),
        sometimes(EXPIRED, |_, state| is_in_state(state, RecipientState::Expired)),
        sometimes(DEAD_OF_TIME, |_, state| {
            let tip = state.log.tip();
            tip.run.state == RunState::Expired && is_in_state(state, RecipientState::Dead)
        }),
        sometimes(UNAWARE, |_, state| state.observations.passed_unaware),
        sometimes(REOPENED, |_, state| {
            let run = &state.log.tip().run;
            run.finish_by > run.policies.finish_by && is_in_state(state, RecipientState::Sent)
        }),
    ]
}

fn sometimes(name: &'static str, holds: fn(&Protocol, &ModelState) -> bool) -> Property<Protocol> {
    Property::<Protocol>::sometimes(name, holds)
}

fn is_in_state(state: &ModelState, recipient_state: RecipientState) -> bool {
    !state.log.tip().set(recipient_state).is_empty()
}

/// Returns true if the relay accepted the email of a recipient in this state.
fn has_arrived(state: &ModelState, recipient_state: RecipientState) -> bool {
    !accepted(state).and(state.log.tip().set(recipient_state)).is_empty()
}
