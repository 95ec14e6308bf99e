//! I5: doubt is bounded and honest. At the end at most so many are in doubt (or were closed as assumed) as the faults
//! allow, and each of them had been granted to somebody.
//!
//! What a fault allows, for each node that it struck:
//!
//! - the end of a life with its journal (kill, crash point, restart, damage, a disk that fails), and a pause: the
//!   hand-offs past the gate as the sink saw them, those whose dots it read later and before the node went on (they were
//!   under way), and those whose dots it read shortly before: their answers may have been under way. Never more than the
//!   node's sessions, and those where nobody counted;
//! - the same with the journal lost, a power cut, a node that never comes back: its claim cap;
//! - a partition or a bad link, which may cut dialogues as long as it lasts: its sessions in each begun minute;
//! - the clock, the relay, operators, transfers, memberships, overload: nothing. What a relay does shows in the sink's
//!   own record instead. Somebody whose last hand-off the sink left without an answer, or cut off within the message, is
//!   in doubt by that, and nobody else is: such a dot allows no doubt of another recipient. (A message that was cut off
//!   before its run was read allows one of anybody.)

use crate::book::{Book, Item, rows_of};
use crate::history::{Answered, Fate, Fault, FaultKind, FaultStatus, Fence, Part};
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
    let by_relay = doubted(book).filter(|item| was_left_untold(book, *item)).count() as u64 + nameless(book);
    let by_faults: u64 = book.faults.iter().map(|fault| allowed_by(book, fault)).sum();
    Doubt { in_doubt, arrived, allowed: by_relay + by_faults }
}

fn doubted(book: &Book) -> impl Iterator<Item = Item> {
    let doubted = book.standings.iter().filter(|stands| matches!(stands.state, Fate::InDoubt | Fate::Assumed));
    doubted.map(|stands| stands.item)
}

/// From a dot that the sink has read and answered until its sender has written the answer down, on a busy machine.
const ANSWER_UNDER_WAY_NS: u64 = 250 * MS;

/// Dots of the struck nodes that the sink read shortly before they were struck, or after and before they went on or lived
/// again.
fn under_way(book: &Book, fault: &Fault) -> u64 {
    let of_node = |node: &String| {
        let lives = book.lives.iter().filter(|life| life.node == *node && life.started_ns > fault.from_ns);
        let lives_again = lives.map(|life| life.started_ns).min();
        let goes_on = (fault.kind == FaultKind::Pause).then(|| fault.until_ns.unwrap_or(fault.from_ns));
        let until_ns = lives_again.into_iter().chain(goes_on).min().unwrap_or(u64::MAX);
        let node = book.names.find(node);
        let dots = book.dots.iter().filter(|dot| Some(dot.node) == node && dot.answer != Answered::Cut);
        let from_ns = fault.from_ns.saturating_sub(ANSWER_UNDER_WAY_NS);
        dots.filter(|dot| (from_ns..until_ns).contains(&dot.at_ns)).count() as u64
    };
    fault.nodes.iter().map(of_node).sum()
}

/// Did the relay, on purpose, leave the sender of its last hand-off without an answer?
fn was_left_untold(book: &Book, item: Item) -> bool {
    let last = rows_of(&book.grants, item).last().map(|grant| grant.fence);
    // Of a message that was cut off nobody may have read the fence.
    let is_last = |fence: Option<Fence>| fence.is_none() || fence == last;
    rows_of(&book.dots, item).iter().any(|dot| dot.answer.leaves_doubt() && is_last(dot.fence))
}

/// Messages that were cut off before their run was read.
fn nameless(book: &Book) -> u64 {
    let Some(none) = book.names.find("") else { return 0 };
    book.dots.iter().filter(|dot| dot.answer == Answered::Cut && dot.item.run == none).count() as u64
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
        | FaultKind::Disk => fault.past_gate.map_or(sessions, |past| (past + under_way(book, fault)).min(sessions)),
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
