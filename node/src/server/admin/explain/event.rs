//! Describes a [`ClaimEvent`] of a recipient as text: the outcome, and the state it led to.

use reveille_ledger::RecipientState;
use reveille_ledger::claim_history::{ClaimEvent, ClaimEventKind, DoubtReason};
use reveille_ledger::command::{Decider, EnhancedCode, RefusalEffect, ReleaseReason, Unsendable};
use reveille_proto::admin::v1::ExplainedEventKind as Kind;

/// Returns the kind of the event and its detail.
pub fn describe(claim_event: &ClaimEvent) -> (Kind, String) {
    let (kind, mut detail) = match &claim_event.what {
        ClaimEventKind::Accepted => (Kind::Sent, "the relay answered 250 to the final dot".to_owned()),
        ClaimEventKind::TestAccepted(said) => {
            (Kind::Sent, format!("{} answered {}", said.relay, answer(said.code, said.enhanced, &said.text)))
        }
        ClaimEventKind::TestRelay(relay) => (Kind::Asked, format!("{relay} was asked to take it")),
        ClaimEventKind::KnownDuplicate => {
            (Kind::SentTwice, "the relay had taken it under this fence too: counted as a known duplicate".to_owned())
        }
        ClaimEventKind::Contradiction => {
            (Kind::SentAfterAll, "the relay had taken it, though it was closed: counted as a contradiction".to_owned())
        }
        ClaimEventKind::Refused { code: 0, effect: effect @ RefusalEffect::CountAttempt, text, .. } => {
            (Kind::Refused, format!("{}; {}", without_answer(text), concerns(*effect)))
        }
        ClaimEventKind::Refused { code: 0, text, .. } if text.is_empty() => {
            (Kind::GivenBack, "no relay took it".to_owned())
        }
        ClaimEventKind::Refused { code: 0, text, .. } => (Kind::GivenBack, format!("no relay could take it: {text}")),
        ClaimEventKind::Refused { code, enhanced, effect, text } => {
            (Kind::Refused, format!("{}; {}", answer(*code, *enhanced, text), concerns(*effect)))
        }
        ClaimEventKind::Released(why) => (Kind::GivenBack, released(*why).to_owned()),
        ClaimEventKind::Suppressed => (Kind::Suppressed, "it had opted out before it was handed off".to_owned()),
        ClaimEventKind::Unsendable(cause) if cause.text().is_empty() => {
            (Kind::NotComposed, "its mail cannot be composed".to_owned())
        }
        ClaimEventKind::Unsendable(cause @ Unsendable::NotComposed(_)) => (Kind::NotComposed, cause.text().to_owned()),
        ClaimEventKind::Unsendable(cause @ Unsendable::NoSmtpUtf8) => (Kind::GivenUp, cause.text().to_owned()),
        ClaimEventKind::InDoubt(doubt) => (Kind::InDoubt, in_doubt(*doubt).to_owned()),
        ClaimEventKind::Assumed(by) => {
            (Kind::Assumed, format!("closed while in doubt, by {}; not counted as sent", decider(*by)))
        }
        ClaimEventKind::Resent(by) => {
            (Kind::ToBeResent, format!("while in doubt, by {}: it may come twice", decider(*by)))
        }
        ClaimEventKind::AcceptedByLog => (Kind::Accepted, "by the log of the relay, which an operator gave".to_owned()),
        ClaimEventKind::AcceptedElsewhere => (Kind::TakenOut, "the relay had taken it under another fence".to_owned()),
    };
    if claim_event.entries > 1 {
        detail += &format!(" (or before: the last of {} entries that did so in its row)", claim_event.entries);
    }
    (kind, detail)
}

/// Formats a relay's answer: code, enhanced code, text.
pub fn answer(code: u16, enhanced: Option<EnhancedCode>, text: &str) -> String {
    let enhanced = enhanced.map(|enhanced| format!(" {enhanced}"));
    let text = if text.is_empty() { String::new() } else { format!(" {text}") };
    format!("{code}{}{text}", enhanced.unwrap_or_default())
}

/// Returns why the recipient is dead after this event. Its dead letter has more detail as long as it exists.
pub fn why_dead(claim_event: &ClaimEvent) -> String {
    match &claim_event.what {
        ClaimEventKind::Refused { code, enhanced, text, .. } if *code > 0 => answer(*code, *enhanced, text),
        ClaimEventKind::Refused { effect: RefusalEffect::CountAttempt, text, .. } => without_answer(text).to_owned(),
        ClaimEventKind::Released(Some(ReleaseReason::OwnerCrashedComposing)) => {
            "its node crashed composing it, or its deadline passed".to_owned()
        }
        ClaimEventKind::Unsendable(cause) => cause.text().to_owned(),
        _ => "the deadline passed before another attempt".to_owned(),
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

/// Returns where and why a dialogue broke. The text is empty if several entries are shown as one event.
fn without_answer(text: &str) -> &str {
    if text.is_empty() { "the dialogue broke" } else { text }
}

fn concerns(effect: RefusalEffect) -> &'static str {
    match effect {
        RefusalEffect::Dead => "about this mailbox: final",
        RefusalEffect::CountAttempt => "no cause is named: the attempt counts",
        RefusalEffect::BackOff => "deferred: no attempt is counted",
        RefusalEffect::NextWave => "about the relay: no attempt is counted",
        RefusalEffect::MayPauseRun => "about content or sender: no attempt is counted",
    }
}

fn released(why: Option<ReleaseReason>) -> &'static str {
    match why {
        None => "it was not handed off",
        Some(ReleaseReason::Busy) => "not begun within ten seconds: the sessions of its relays were busy",
        Some(ReleaseReason::RateLimited) => "not begun within ten seconds: the rate of its relays allowed no more",
        Some(ReleaseReason::SessionEnded) => "the relay had closed the idle session that was to carry it",
        Some(ReleaseReason::NotInClaim) => "its gate was closed: the recipient had been taken from this node",
        Some(ReleaseReason::RunPaused) => "its gate was closed: the run was paused",
        Some(ReleaseReason::RunEnded) => "its gate was closed: the run had ended",
        Some(ReleaseReason::PastDeadline) => "its gate was closed: the run's deadline had passed",
        Some(ReleaseReason::LeaseOver) => "the lease of this node was over, and its gates were closed",
        Some(ReleaseReason::JournalFailed) => "the journal of this node could not be written, so its gates were closed",
        Some(ReleaseReason::Stopping) => "this node was stopping",
        Some(ReleaseReason::OwnerCrashed) => "this node crashed before the handoff began, as its journal proves",
        Some(ReleaseReason::OwnerCrashedComposing) => {
            "this node crashed while it prepared the email, as its journal proves"
        }
    }
}

fn in_doubt(doubt: DoubtReason) -> &'static str {
    match doubt {
        DoubtReason::NoAnswer => "no answer came after the final dot",
        DoubtReason::OwnerLost => "owner lost: the lease of this node was over while it held the claim",
        DoubtReason::Begun => "this node came back: its journal says that the handoff began, and holds no answer",
        DoubtReason::NoJournal => "this node came back, and no journal proves what became of it",
        DoubtReason::Restored => "restored from a backup: the former cluster may have sent it since",
    }
}

fn decider(by: Decider) -> &'static str {
    match by {
        Decider::Operator => "an operator",
        Decider::Policy => "the policy of the run",
    }
}
