//! I5: doubt is bounded and honest. At the end at most so many are in doubt (or were closed as assumed) as the faults
//! allow, and each of them had been granted to somebody.
//!
//! What a fault allows, for each node that it struck:
//!
//! - the end of a life with its journal (kill, crash point, restart, damage, a disk that fails), and a pause: the
//!   hand-offs past the gate as the sink saw them, or the node's sessions where nobody counted;
//! - the same with the journal lost, a power cut, a node that never comes back: its claim cap;
//! - a partition or a bad link, which may cut dialogues as long as it lasts: its sessions in each begun minute;
//! - the clock, the relay, operators, transfers, memberships, overload: nothing. What a relay does shows in the sink's
//!   own record instead: each final dot that it left without an answer allows one.

use crate::book::{Book, Item, rows_of};
use crate::history::{Answered, Fate, Fault, FaultKind, FaultStatus, Part};
use crate::time::MS;
use crate::verdict::{Inquiry, Verdict};

/// What the history says of doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// In doubt at the end, or closed as assumed.
    pub in_doubt: u64,
    /// Of those, how many had in fact arrived.
    pub arrived: u64,
    /// So many may be.
    pub allowed: u64,
}

/// I5.
pub fn bounded(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
    let mut whole = inquiry.needs(book, &[Part::Standings, Part::Faults, Part::Accepts, Part::Claims]);
    // A relay that was left in peace answers every dot.
    let is_amiss = |fault: &Fault| fault.kind == FaultKind::Relay && fault.status != FaultStatus::Skipped;
    if book.faults.iter().any(is_amiss) {
        whole &= inquiry.needs(book, &[Part::Dots]);
    }
    let doubt = doubt(book);
    if whole && doubt.in_doubt > doubt.allowed {
        inquiry.offends(|| format!("{} in doubt, and the faults allow {}", doubt.in_doubt, doubt.allowed));
    }
    if whole {
        for item in doubted(book).filter(|item| rows_of(&book.grants, *item).is_empty()) {
            inquiry.offends(|| format!("{} is in doubt and nobody ever held it", book.describe(item)));
        }
    }
    inquiry.verdict()
}

/// Counts.
pub fn doubt(book: &Book) -> Doubt {
    let in_doubt = doubted(book).count() as u64;
    let arrived = doubted(book).filter(|item| book.arrived(*item)).count() as u64;
    let unanswered = |answer| matches!(answer, Answered::AcceptedUntold | Answered::Nothing);
    let by_relay = book.dots.iter().filter(|dot| unanswered(dot.answer)).count() as u64;
    let by_faults: u64 = book.faults.iter().map(|fault| allowed_by(book, fault)).sum();
    Doubt { in_doubt, arrived, allowed: by_relay + by_faults }
}

fn doubted(book: &Book) -> impl Iterator<Item = Item> {
    let doubted = book.standings.iter().filter(|stands| matches!(stands.state, Fate::InDoubt | Fate::Assumed));
    doubted.map(|stands| stands.item)
}

fn allowed_by(book: &Book, fault: &Fault) -> u64 {
    if fault.status == FaultStatus::Skipped {
        return 0;
    }
    let nodes = fault.nodes.len() as u64;
    let sessions = nodes * u64::from(book.header.sessions);
    let caps = nodes * u64::from(book.header.claim_cap);
    match fault.kind {
        FaultKind::PowerCut | FaultKind::NodeLost => caps,
        _ if fault.journals_lost => caps,
        FaultKind::Kill
        | FaultKind::Restart
        | FaultKind::Pause
        | FaultKind::CrashPoint
        | FaultKind::Damage
        | FaultKind::Disk => fault.past_gate.map_or(sessions, |past| past.min(sessions)),
        FaultKind::Partition | FaultKind::Link => {
            let length_ns = fault.until_ns.unwrap_or(book.ended_ns()).saturating_sub(fault.from_ns);
            sessions * (length_ns / (60_000 * MS) + 1)
        }
        FaultKind::Clock
        | FaultKind::Relay
        | FaultKind::Transfer
        | FaultKind::Membership
        | FaultKind::Operator
        | FaultKind::Overload => 0,
    }
}
