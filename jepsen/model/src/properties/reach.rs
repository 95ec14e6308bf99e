//! `sometimes` properties: a search that does not get there proves nothing about it.

use stateright::Property;

use super::accepted;
use crate::answer::About;
use crate::attempt::{Attempt, Transit};
use crate::ledger::RecipientState;
use crate::names::Node;
use crate::protocol::Protocol;
use crate::run::RunState;
use crate::state::ModelState;

/// A mail is sent and the ledger knows it.
pub const SENT: &str = "a recipient is sent";
/// Two processes act as leaders of different epochs.
pub const TWO_LEADERS: &str = "two processes lead at once";
/// A mail arrives from a process that has not applied what is committed.
pub const LATE_SENDER: &str = "a lagging process passes its gate";
/// The owner's lease was over and its claim was revoked.
pub const REVOKED: &str = "a row is revoked";
/// A mail arrived and the ledger holds it in doubt.
pub const ARRIVED_IN_DOUBT: &str = "an accepted mail is in doubt";
/// Evidence from an earlier life's journal moved a recipient out of doubt.
pub const RESOLVED: &str = "a later life resolves a doubt";
/// A recipient got its second claim after the first was given back or refused.
pub const SECOND_ROW: &str = "a recipient is sent by its second row";
/// An opt-out kept a mail from going out.
pub const SUPPRESSED: &str = "a claimed recipient is suppressed";
/// An answer was given and a mail that it named arrived later.
pub const CROSSED: &str = "a named mail arrives after the answer";
/// A node was waited out.
pub const UNCONFIRMED: &str = "an answer is given with a node unconfirmed";
/// The attempts of a recipient are used up.
pub const DEAD: &str = "a recipient is dead of its attempts";
/// An operator sent a dead recipient again, and it arrived.
pub const REQUEUED: &str = "a dead recipient is sent again and arrives";
/// A duplicate by choice: two accepts, and the ledger cannot know.
pub const DUPLICATE: &str = "a recipient that was sent again gets two emails";
/// And where both answers are heard in the end.
pub const KNOWN_DUPLICATE: &str = "a known duplicate is counted";
/// Sent again, ended without a mail, and the first mail had arrived.
pub const CONTRADICTION: &str = "a contradiction is counted";
/// What is assumed may have arrived.
pub const ARRIVED_ASSUMED: &str = "an accepted mail is assumed";
/// And its acceptance may be heard of later.
pub const SENT_AFTER_ALL: &str = "an assumed recipient turns out to be sent";
/// Or that there was none.
pub const DISPROVED: &str = "an assumption is disproved and the recipient is sent";
/// Too late for another attempt.
pub const DISPROVED_TOO_LATE: &str = "an assumption is disproved after the deadline";
/// A pause was answered, taken back, and the run went on.
pub const RESUMED: &str = "a mail is sent after a pause that was answered";
/// A recipient that was claimed when its run was cancelled came back, and was cancelled.
pub const CANCELLED: &str = "a claimed recipient is cancelled";
/// The deadline came before anything was attempted.
pub const EXPIRED: &str = "a recipient expires";
/// The deadline came after an attempt.
pub const DEAD_OF_TIME: &str = "a recipient is dead of the deadline";
/// A gate lags behind the deadline, as long as its lease lets it.
pub const UNAWARE: &str = "a gate passes before its node learns of the deadline";
/// An operator sends a recipient again after the deadline: the run has another one.
pub const REOPENED: &str = "a run is opened again after its deadline and sends";

/// All of them.
pub(super) fn all() -> Vec<Property<Protocol>> {
    let mut all = of_the_spine();
    all.extend(of_decisions());
    all.extend(of_runs());
    all
}

fn of_the_spine() -> Vec<Property<Protocol>> {
    vec![
        place(SENT, |_, state| is_in_state(state, RecipientState::Sent)),
        place(TWO_LEADERS, |_, state| Node::all().all(|node| state.process(node).term.is_some())),
        place(LATE_SENDER, |_, state| {
            let tip = state.log.tip();
            state.attempts.iter().any(|attempt| {
                attempt.transit == Transit::Accepted
                    && tip.epoch > attempt.claim.epoch
                    && state.process(attempt.by.node).applied < tip.epoch
            })
        }),
        place(REVOKED, |_, state| state.observations.revoked),
        place(ARRIVED_IN_DOUBT, |_, state| has_arrived(state, RecipientState::InDoubt)),
        place(RESOLVED, |_, state| {
            let tip = state.log.tip();
            tip.claims.iter().any(|claim| {
                let is_resolved = !claim.granted.and(tip.resolved).is_empty();
                is_resolved && claim.owner != tip.current(claim.owner.node)
            })
        }),
        place(SECOND_ROW, |_, state| state.log.tip().claims.iter().skip(1).any(|claim| !claim.sent.is_empty())),
        place(SUPPRESSED, |_, state| is_in_state(state, RecipientState::Suppressed)),
        place(CROSSED, |_, state| state.observations.accepted_named),
        place(UNCONFIRMED, |_, state| state.answer.as_ref().is_some_and(|answer| answer.unconfirmed.contains(&true))),
    ]
}

fn of_decisions() -> Vec<Property<Protocol>> {
    vec![
        place(DEAD, |_, state| {
            let tip = state.log.tip();
            let mut dead = tip.set(RecipientState::Dead).iter();
            dead.any(|recipient| tip.run.attempts_of(recipient) == tip.run.policies.max_attempts)
        }),
        place(REQUEUED, |_, state| state.orders.requeues > 0 && is_in_state(state, RecipientState::Sent)),
        place(DUPLICATE, |_, state| {
            let is_taken = |attempt: &&Attempt| attempt.recipient == 0 && attempt.is_accepted();
            state.attempts.iter().filter(is_taken).count() > 1
        }),
        place(KNOWN_DUPLICATE, |_, state| state.log.tip().run.known_duplicates > 0),
        place(CONTRADICTION, |_, state| state.log.tip().run.contradictions > 0),
        place(ARRIVED_ASSUMED, |_, state| has_arrived(state, RecipientState::Assumed)),
        place(SENT_AFTER_ALL, |_, state| {
            let tip = state.log.tip();
            tip.claims.iter().any(|claim| !claim.assumed.and(claim.sent).and(tip.set(RecipientState::Sent)).is_empty())
        }),
        place(DISPROVED, |_, state| {
            state.log.tip().run.assumptions_disproved > 0 && is_in_state(state, RecipientState::Sent)
        }),
        place(DISPROVED_TOO_LATE, |_, state| {
            state.log.tip().run.assumptions_disproved > 0 && is_in_state(state, RecipientState::Expired)
        }),
    ]
}

fn of_runs() -> Vec<Property<Protocol>> {
    vec![
        place(RESUMED, |_, state| {
            let is_answered = state.answer.as_ref().is_some_and(|answer| answer.about == About::Run);
            let later =
                |index| state.log.tip().claims.iter().any(|claim| claim.fence.index > index && !claim.sent.is_empty());
            is_answered && state.answer.as_ref().is_some_and(|answer| later(answer.index))
        }),
        place(CANCELLED, |_, state| {
            is_in_state(state, RecipientState::Cancelled) && !state.log.tip().claims.is_empty()
        }),
        place(EXPIRED, |_, state| is_in_state(state, RecipientState::Expired)),
        place(DEAD_OF_TIME, |_, state| {
            let tip = state.log.tip();
            tip.run.state == RunState::Expired && is_in_state(state, RecipientState::Dead)
        }),
        place(UNAWARE, |_, state| state.observations.passed_unaware),
        place(REOPENED, |_, state| {
            let run = &state.log.tip().run;
            run.finish_by > run.policies.finish_by && is_in_state(state, RecipientState::Sent)
        }),
    ]
}

fn place(name: &'static str, is_there: fn(&Protocol, &ModelState) -> bool) -> Property<Protocol> {
    Property::<Protocol>::sometimes(name, is_there)
}

fn is_in_state(state: &ModelState, recipient_state: RecipientState) -> bool {
    !state.log.tip().set(recipient_state).is_empty()
}

/// Whether the relay took the mail of a recipient who stands there.
fn has_arrived(state: &ModelState, recipient_state: RecipientState) -> bool {
    !accepted(state).and(state.log.tip().set(recipient_state)).is_empty()
}
