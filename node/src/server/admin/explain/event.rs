//! What a moment of a row means, in words: the verdict, and what it led to.

use reveille_ledger::Standing;
use reveille_ledger::command::{Decider, Scope, Unsendable, Why};
use reveille_ledger::moments::{Doubt, Moment, What};

/// The word of the event and its detail.
pub fn told(moment: &Moment) -> (&'static str, String) {
    let (what, mut detail) = match &moment.what {
        What::Accepted => ("sent", "the relay answered 250 to the final dot".to_owned()),
        What::Taken(said) => {
            ("sent", format!("{} answered {}", said.relay, answer(said.code, said.enhanced, &said.text)))
        }
        What::Asked(relay) => ("asked", format!("{relay} was asked to take it")),
        What::KnownDuplicate => {
            ("sent twice", "the relay had taken it under this fence too: counted as a known duplicate".to_owned())
        }
        What::Contradiction => {
            ("sent after all", "the relay had taken it, though it was closed: counted as a contradiction".to_owned())
        }
        What::Refused { code: 0, text, .. } if text.is_empty() => ("given back", "no relay took it".to_owned()),
        What::Refused { code: 0, text, .. } => ("given back", format!("no relay could take it: {text}")),
        What::Refused { code, enhanced, scope, text } => {
            ("refused", format!("{}; {}", answer(*code, *enhanced, text), concerns(*scope)))
        }
        What::Released(why) => ("given back", released(*why).to_owned()),
        What::Suppressed => ("suppressed", "it had opted out before it was handed off".to_owned()),
        What::Unsendable(cause) if cause.text().is_empty() => {
            ("not composed", "its mail cannot be composed".to_owned())
        }
        What::Unsendable(cause @ Unsendable::NotComposed(_)) => ("not composed", cause.text().to_owned()),
        What::Unsendable(cause @ Unsendable::NoSmtpUtf8) => ("given up", cause.text().to_owned()),
        What::InDoubt(doubt) => ("in doubt", in_doubt(*doubt).to_owned()),
        What::Assumed(by) => ("assumed", format!("closed while in doubt, by {}; not counted as sent", decider(*by))),
        What::Resent(by) => ("to be resent", format!("while in doubt, by {}: it may come twice", decider(*by))),
        What::AcceptedElsewhere => ("taken out", "the relay had taken it under another fence".to_owned()),
    };
    if moment.entries > 1 {
        detail += &format!(" (or before: the last of {} entries that did so in its row)", moment.entries);
    }
    (what, detail)
}

/// An answer as it is written: code, enhanced code, words.
pub fn answer(code: u16, enhanced: Option<(u8, u16, u16)>, text: &str) -> String {
    let enhanced = enhanced.map(|(class, subject, detail)| format!(" {class}.{subject}.{detail}"));
    let text = if text.is_empty() { String::new() } else { format!(" {text}") };
    format!("{code}{}{text}", enhanced.unwrap_or_default())
}

/// What it died of at this moment; its letter says more, as long as it is there.
pub fn died_of(moment: &Moment) -> String {
    match &moment.what {
        What::Refused { code, enhanced, text, .. } if *code > 0 => answer(*code, *enhanced, text),
        What::Released(Some(Why::HolderDiedPreparing)) => {
            "its holder died preparing it, or its deadline passed".to_owned()
        }
        What::Unsendable(cause) => cause.text().to_owned(),
        _ => "the deadline passed before another attempt".to_owned(),
    }
}

/// What it led to beyond going back; none where the word says it all.
pub fn led_to(moment: &Moment) -> Option<Standing> {
    let ends = matches!(moment.what, What::Refused { .. } | What::Released(_) | What::Unsendable(_));
    (ends && moment.to.is_terminal()).then_some(moment.to)
}

fn concerns(scope: Scope) -> &'static str {
    match scope {
        Scope::Mailbox => "about this mailbox: the attempt counts",
        Scope::Greylist => "deferred: no attempt is counted",
        Scope::Relay => "about the relay: no attempt is counted",
        Scope::Policy => "about content or sender: no attempt is counted",
    }
}

fn released(why: Option<Why>) -> &'static str {
    match why {
        None => "it was not handed off",
        Some(Why::Busy) => "not begun within ten seconds: the sessions of its relays were busy",
        Some(Why::Paced) => "not begun within ten seconds: the rate of its relays allowed no more",
        Some(Why::SessionEnded) => "the relay had closed the idle session that was to carry it",
        Some(Why::NotInRow) => "its gate stayed shut: the row had been taken from this node",
        Some(Why::RunPaused) => "its gate stayed shut: the run was paused",
        Some(Why::RunEnded) => "its gate stayed shut: the run had ended",
        Some(Why::PastDeadline) => "its gate stayed shut: the run's deadline had passed",
        Some(Why::LeaseOver) => "the lease of this node was over, and its gates shut",
        Some(Why::JournalFailed) => "the journal of this node could not be written, so its gates were shut",
        Some(Why::Stopping) => "this node was stopping",
        Some(Why::HolderDied) => "this node died before the hand-off began, as its journal proves",
        Some(Why::HolderDiedPreparing) => "this node died while it prepared the mail, as its journal proves",
    }
}

fn in_doubt(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::NoAnswer => "no answer came after the final dot",
        Doubt::HolderLost => "holder lost: the lease of this node was over while it held the row",
        Doubt::Begun => "this node came back: its journal says that the hand-off began, and holds no answer",
        Doubt::NoJournal => "this node came back, and no journal proves what became of it",
    }
}

fn decider(by: Decider) -> &'static str {
    match by {
        Decider::Operator => "an operator",
        Decider::Policy => "the policy of the run",
    }
}
