//! The part of I9 about the emails themselves. All attempts of an item have the same Message-ID, so that the recipient
//! can recognize a duplicate, and no two items share one. The body is the same at each attempt too. No message is
//! malformed: line ends that readers may interpret differently (RFC 5321 2.3.8) are never written. An identity header
//! that comes twice is a violation too: different readers may use different ones.
//!
//! Messages that were cut off are not judged.

use crate::events::Answered;
use crate::history::{Handoff, History};
use crate::verdict::Findings;

/// Reports violations of the emails.
pub fn report_emails(history: &History, findings: &mut Findings) {
    for handoff in history.handoffs.iter().filter(|handoff| handoff.answer == Answered::Malformed) {
        findings.violation(|| {
            format!("{} was a malformed message: {}", history.describe(handoff.item), origin(history, handoff))
        });
    }
    for handoff in history.accepts().filter(|handoff| handoff.message_id.is_none()) {
        findings.violation(|| {
            format!("{} came without a Message-ID: {}", history.describe(handoff.item), origin(history, handoff))
        });
    }
    for (item, header) in &history.repeated_headers {
        findings.violation(|| format!("{} came with more than one {header}", history.describe(*item)));
    }
    for (item, handoffs) in history.handoffs_by_item() {
        let differ = |what: fn(&Handoff) -> Option<_>| {
            let mut known = handoffs.iter().filter(|handoff| is_whole(handoff)).filter_map(what);
            let first = known.next();
            known.any(|other| Some(other) != first)
        };
        if differ(|handoff| handoff.message_id) {
            findings.violation(|| format!("{} came under two Message-IDs", history.describe(item)));
        }
        if differ(|handoff| handoff.body) {
            findings.violation(|| format!("{} came with two bodies", history.describe(item)));
        }
    }
    let named = history.handoffs.iter().filter(|handoff| is_whole(handoff));
    let mut named: Vec<_> = named.filter_map(|handoff| Some((handoff.message_id?, handoff.item))).collect();
    named.sort_unstable();
    for pair in named.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let (one, other) = (history.describe(pair[0].1), history.describe(pair[1].1));
        findings.violation(|| format!("{one} and {other} came under one Message-ID"));
    }
}

pub(super) fn is_whole(handoff: &Handoff) -> bool {
    !matches!(handoff.answer, Answered::Cut | Answered::Malformed)
}

/// Text for people: the node and the time.
pub(super) fn origin(history: &History, handoff: &Handoff) -> String {
    format!("from {} at {:.3} s", history.names.text(handoff.node), handoff.at_ns as f64 / 1e9)
}
