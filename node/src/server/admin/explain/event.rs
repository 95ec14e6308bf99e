//! Describes a [`ClaimEvent`] of a recipient: the outcome, and the state it led to.

use reveille_ledger::causes::DeadLetterCause;
use reveille_ledger::claim_history::{ClaimEvent, ClaimEventKind};
use reveille_ledger::command::{EnhancedCode, RefusalEffect, ReleaseReason, Unsendable};
use reveille_ledger::{DeadLetter, RecipientState};
use reveille_proto::admin::v1::{self, DeathReason, ExplainedEvent, ExplainedEventKind as Kind, SuppressionReason};

use crate::server::admin::enums::OnWire;

/// Returns the event with what its outcome says, without its place and its time.
pub fn describe(claim_event: &ClaimEvent) -> ExplainedEvent {
    let event = match &claim_event.what {
        ClaimEventKind::Accepted => of(Kind::Sent),
        ClaimEventKind::TestAccepted(said) => {
            let answer = with_answer(of(Kind::Sent), said.code, said.enhanced, &said.text);
            ExplainedEvent { relay: said.relay.clone(), ..answer }
        }
        ClaimEventKind::TestRelay(relay) => ExplainedEvent { relay: relay.clone(), ..of(Kind::Asked) },
        ClaimEventKind::KnownDuplicate => of(Kind::SentTwice),
        ClaimEventKind::Contradiction => of(Kind::SentAfterAll),
        ClaimEventKind::Refused { code, enhanced, effect, text } => {
            let is_answer = *code > 0 || *effect == RefusalEffect::CountAttempt;
            let event = match is_answer {
                true => ExplainedEvent { effect: effect.wire().into(), ..of(Kind::Refused) },
                // No relay was asked.
                false => {
                    ExplainedEvent { release_reason: v1::ReleaseReason::Unavailable.into(), ..of(Kind::GivenBack) }
                }
            };
            with_answer(event, *code, *enhanced, text)
        }
        ClaimEventKind::Released(why) => {
            let why = why.map_or(v1::ReleaseReason::Unspecified, OnWire::wire);
            ExplainedEvent { release_reason: why.into(), ..of(Kind::GivenBack) }
        }
        ClaimEventKind::Suppressed => opted_out(),
        ClaimEventKind::Unsendable(Unsendable::NotComposed(text)) => {
            ExplainedEvent { text: text.clone(), ..of(Kind::NotComposed) }
        }
        ClaimEventKind::Unsendable(Unsendable::NoSmtpUtf8) => of(Kind::GivenUp),
        ClaimEventKind::InDoubt(doubt) => ExplainedEvent { doubt_cause: doubt.wire().into(), ..of(Kind::InDoubt) },
        ClaimEventKind::Assumed(by) => ExplainedEvent { decider: by.wire().into(), ..of(Kind::Assumed) },
        ClaimEventKind::Resent(by) => ExplainedEvent { decider: by.wire().into(), ..of(Kind::ToBeResent) },
        ClaimEventKind::AcceptedByLog => of(Kind::Accepted),
        ClaimEventKind::AcceptedElsewhere => of(Kind::TakenOut),
    };
    ExplainedEvent { entries: claim_event.entries, ..event }
}

/// Returns an event of this kind.
pub fn of(kind: Kind) -> ExplainedEvent {
    ExplainedEvent { kind: kind.into(), ..ExplainedEvent::default() }
}

/// Returns an event that says that the recipient had opted out.
pub fn opted_out() -> ExplainedEvent {
    ExplainedEvent { suppression_reason: SuppressionReason::OptedOut.into(), ..of(Kind::Suppressed) }
}

/// Adds the parts of a relay's answer.
pub fn with_answer(event: ExplainedEvent, code: u16, enhanced: Option<EnhancedCode>, text: &str) -> ExplainedEvent {
    let enhanced = enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default();
    ExplainedEvent { code: u32::from(code), enhanced, text: text.to_owned(), ..event }
}

/// Returns an event that says why the recipient is dead.
pub fn dead(reason: DeathReason) -> ExplainedEvent {
    ExplainedEvent { death_reason: reason.into(), ..of(Kind::Dead) }
}

fn unsendable(cause: &Unsendable) -> ExplainedEvent {
    match cause {
        Unsendable::NotComposed(text) => ExplainedEvent { text: text.clone(), ..dead(DeathReason::NotComposed) },
        Unsendable::NoSmtpUtf8 => dead(DeathReason::NoSmtputf8),
    }
}

/// Returns why the recipient is dead after this event. Its dead letter has more detail as long as it exists.
pub fn why_dead(claim_event: &ClaimEvent) -> ExplainedEvent {
    match &claim_event.what {
        ClaimEventKind::Refused { code, enhanced, text, .. } if *code > 0 => {
            with_answer(dead(DeathReason::Answer), *code, *enhanced, text)
        }
        ClaimEventKind::Refused { effect: RefusalEffect::CountAttempt, text, .. } => {
            with_answer(dead(DeathReason::Broken), 0, None, text)
        }
        ClaimEventKind::Released(Some(ReleaseReason::OwnerCrashedComposing)) => dead(DeathReason::CrashedOrDeadline),
        ClaimEventKind::Unsendable(cause) => unsendable(cause),
        _ => dead(DeathReason::Deadline),
    }
}

/// Returns why the recipient is dead, as its dead letter has it.
pub fn of_letter(letter: &DeadLetter) -> ExplainedEvent {
    let (reason, text) = death(letter);
    with_answer(dead(reason), letter.code, letter.enhanced, text)
}

/// Returns the reason of a dead letter, and the text of a relay or of a template that belongs to it.
pub fn death(letter: &DeadLetter) -> (DeathReason, &str) {
    match &letter.cause {
        DeadLetterCause::Answer(text) if letter.code > 0 => (DeathReason::Answer, text),
        DeadLetterCause::Answer(text) => (DeathReason::Broken, text),
        DeadLetterCause::Unsendable(Unsendable::NotComposed(text)) => (DeathReason::NotComposed, text),
        DeadLetterCause::Unsendable(Unsendable::NoSmtpUtf8) => (DeathReason::NoSmtputf8, ""),
        DeadLetterCause::DeadlinePassed => (DeathReason::Deadline, ""),
        DeadLetterCause::CrashedComposing => (DeathReason::CrashedComposing, ""),
    }
}

/// Returns the final state that the event led to. Returns `None` if the event's name says it already.
pub fn led_to(claim_event: &ClaimEvent) -> Option<RecipientState> {
    let ends = matches!(
        claim_event.what,
        ClaimEventKind::Refused { .. } | ClaimEventKind::Released(_) | ClaimEventKind::Unsendable(_)
    );
    (ends && claim_event.to.is_terminal()).then_some(claim_event.to)
}
