//! Converts the result of a dialogue into an event for the circuit breaker of its relay.

use std::time::Duration;

use super::circuit::CircuitEvent;
use super::failure::{RelayFailure, RelayTrouble};
use crate::smtp::cause::Cause;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::stage::Stage;

/// A dialogue that reaches the caller's limit before the gate counts as a loss from this age on: the relay is slow. A
/// younger dialogue says nothing about the relay, because it was begun shortly before the limit.
const SLOW: Duration = Duration::from_secs(3);

/// Returns what a result says about the relay. A relay that is too busy for one more session, while others are open,
/// works: it is slowed down, but its circuit stays closed.
pub(crate) fn circuit_event(result: &DialogueResult, tried_for: Duration, others_open: bool) -> CircuitEvent {
    match result {
        DialogueResult::Accepted { .. } => CircuitEvent::Accepted,
        DialogueResult::GateClosed => CircuitEvent::Reached,
        DialogueResult::NoSmtpUtf8 { .. } => CircuitEvent::SessionOpened,
        DialogueResult::InDoubt { cause } => {
            CircuitEvent::LostAfter(RelayFailure::without_stage(RelayTrouble::Broken(cause.clone())))
        }
        DialogueResult::Refused { stage, class, text, code, .. } => match (stage, class) {
            (_, ReplyClass::Quota) => CircuitEvent::QuotaUsedUp(RelayFailure::answered(None, *code, text)),
            (Stage::Answered, _) => CircuitEvent::Answered,
            (stage, ReplyClass::Throttle) if *stage < Stage::Mail && others_open => CircuitEvent::Nothing,
            (stage, _) if *stage < Stage::Mail => {
                CircuitEvent::NotOpened(RelayFailure::answered(Some(*stage), *code, text))
            }
            (Stage::Mail, ReplyClass::Relay) => {
                CircuitEvent::MailFailed(RelayFailure::answered(Some(*stage), *code, text))
            }
            (Stage::Mail, _) => CircuitEvent::SessionOpened,
            _ => CircuitEvent::Reached,
        },
        DialogueResult::Broken { cause: Cause::NotBegunInTime, stage } if tried_for >= SLOW => {
            loss(*stage, RelayTrouble::Slow(tried_for))
        }
        DialogueResult::Broken { cause, .. } if cause.ended_by_this_node() => CircuitEvent::Nothing,
        DialogueResult::Broken { cause, stage } => loss(*stage, RelayTrouble::Broken(cause.clone())),
    }
}

fn loss(stage: Stage, trouble: RelayTrouble) -> CircuitEvent {
    let cause = RelayFailure { stage: Some(stage), trouble };
    match stage {
        stage if stage < Stage::Mail => CircuitEvent::NotOpened(cause),
        Stage::Mail => CircuitEvent::MailFailed(cause),
        _ => CircuitEvent::LostBefore(cause),
    }
}
