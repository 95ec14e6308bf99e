//! Describes a [`ClaimEvent`] of a recipient as text: the outcome, and the state it led to.

use reveille_ledger::RecipientState;
use reveille_ledger::claim_history::{ClaimEvent, ClaimEventKind, DoubtReason};
use reveille_ledger::command::{Decider, EnhancedCode, RefusalEffect, ReleaseReason, Unsendable};

/// Returns the name of the event and its detail.
pub fn describe(claim_event: &ClaimEvent) -> (&'static str, String) {
    let (what, mut detail) = match &claim_event.what {
        ClaimEventKind::Accepted => ("sent", "the relay answered 250 to the final dot".to_owned()),
        ClaimEventKind::TestAccepted(said) => {
            ("sent", format!("{} answered {}", said.relay, answer(said.code, said.enhanced, &said.text)))
        }
        ClaimEventKind::TestRelay(relay) => ("asked", format!("{relay} was asked to take it")),
        ClaimEventKind::KnownDuplicate => {
            ("sent twice", "the relay had taken it under this fence too: counted as a known duplicate".to_owned())
        }
        ClaimEventKind::Contradiction => {
            ("sent after all", "the relay had taken it, though it was closed: counted as a contradiction".to_owned())
        }
        ClaimEventKind::Refused { code: 0, effect: effect @ RefusalEffect::CountAttempt, text, .. } => {
            ("refused", format!("{}; {}", without_answer(text), concerns(*effect)))
        }
        ClaimEventKind::Refused { code: 0, text, .. } if text.is_empty() => {
            ("given back", "no relay took it".to_owned())
        }
        ClaimEventKind::Refused { code: 0, text, .. } => ("given back", format!("no relay could take it: {text}")),
        ClaimEventKind::Refused { code, enhanced, effect, text } => {
            ("refused", format!("{}; {}", answer(*code, *enhanced, text), concerns(*effect)))
        }
        ClaimEventKind::Released(why) => ("given back", released(*why).to_owned()),
        ClaimEventKind::Suppressed => ("suppressed", "it had opted out before it was handed off".to_owned()),
        ClaimEventKind::Unsendable(cause) if cause.text().is_empty() => {
            ("not composed", "its mail cannot be composed".to_owned())
        }
        ClaimEventKind::Unsendable(cause @ Unsendable::NotComposed(_)) => ("not composed", cause.text().to_owned()),
        ClaimEventKind::Unsendable(cause @ Unsendable::NoSmtpUtf8) => ("given up", cause.text().to_owned()),
        ClaimEventKind::InDoubt(doubt) => ("in doubt", in_doubt(*doubt).to_owned()),
        ClaimEventKind::Assumed(by) => {
            ("assumed", format!("closed while in doubt, by {}; not counted as sent", decider(*by)))
        }
        ClaimEventKind::Resent(by) => {
            ("to be resent", format!("while in doubt, by {}: it may come twice", decider(*by)))
        }
        ClaimEventKind::AcceptedByLog => ("accepted", "by the log of the relay, which an operator gave".to_owned()),
        ClaimEventKind::AcceptedElsewhere => ("taken out", "the relay had taken it under another fence".to_owned()),
    };
    if claim_event.entries > 1 {
        detail += &format!(" (or before: the last of {} entries that did so in its row)", claim_event.entries);
    }
    (what, detail)
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
