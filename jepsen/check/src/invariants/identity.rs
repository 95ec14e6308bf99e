//! The part of I9 about the emails themselves. All attempts of an item have the same Message-ID, so that the recipient
//! can recognize a duplicate, and no two items share a Message-ID. The body is the same at each attempt too. No message
//! is malformed: line ends that readers may interpret differently (RFC 5321 2.3.8) are never written. An identity
//! header that occurs twice is a violation too, because readers may use different occurrences.
//!
//! Messages that were cut off are not judged.

use crate::events::{Answered, Handoff};
use crate::history::{HasItem, History};
use crate::verdict::Findings;

/// Reports violations of the emails.
pub fn report_emails(history: &History, findings: &mut Findings) {
    for handoff in history.handoffs.iter().filter(|handoff| handoff.answer == Answered::Malformed) {
        findings.violation(|| format!("{} was a malformed message: {}", handoff.item(), origin(handoff)));
    }
    for handoff in history.accepts().filter(|handoff| handoff.message_id.is_none()) {
        findings.violation(|| format!("{} came without a Message-ID: {}", handoff.item(), origin(handoff)));
    }
    for handoff in &history.handoffs {
        for header in &handoff.repeated_headers {
            findings.violation(|| format!("{} came with more than one {header}", handoff.item()));
        }
    }
    for (item, handoffs) in history.handoffs_by_item() {
        let differ = |what: fn(&Handoff) -> Option<_>| {
            let mut known = handoffs.iter().filter(|handoff| is_whole(handoff)).filter_map(what);
            let first = known.next();
            known.any(|other| Some(other) != first)
        };
        if differ(|handoff| handoff.message_id) {
            findings.violation(|| format!("{item} came under two Message-IDs"));
        }
        if differ(|handoff| handoff.body) {
            findings.violation(|| format!("{item} came with two bodies"));
        }
    }
    let named = history.handoffs.iter().filter(|handoff| is_whole(handoff));
    let mut named: Vec<_> = named.filter_map(|handoff| Some((handoff.message_id?, handoff.item()))).collect();
    named.sort_unstable();
    for pair in named.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let (one, other) = (pair[0].1, pair[1].1);
        findings.violation(|| format!("{one} and {other} came under one Message-ID"));
    }
}

/// Returns true if the sink read the final dot of the message.
pub(super) fn is_whole(handoff: &Handoff) -> bool {
    !matches!(handoff.answer, Answered::Cut | Answered::Malformed)
}

/// Returns the node and the time of a handoff, as text for people.
pub(super) fn origin(handoff: &Handoff) -> String {
    format!("from {} at {:.3} s", handoff.node, handoff.at_ns as f64 / 1e9)
}
