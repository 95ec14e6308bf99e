//! I5: doubt is bounded and honest. Each recipient who is in doubt at the end, or was closed as assumed, must have been
//! claimed, and must be explained by a fault on the process that held it last; each fault explains at most as many
//! recipients as it allows. The account is by item (`blame.rs`): a fault of one node explains no doubt of another.
//!
//! What a fault allows, for each node that it struck:
//!
//! - the end of a process with its journal (kill, crash point, restart, damage, a disk that fails), and a pause: the
//!   hand-offs past the gate as the sink saw them, those whose dots it read later and before the node went on (they were
//!   under way), and those whose dots it read shortly before (their answers may have been under way). Never more than the
//!   node's sessions; also these where the hand-offs were not counted;
//! - the end of a process without its journal (a power cut, a node that never comes back), and each of the faults above
//!   where the policy `assume_sent` closes doubts before a journal is read: the node's claim cap as the sink measures it
//!   (`held.rs`), for each process whose claims may be open then;
//! - a partition or a bad link, which may cut SMTP sessions as long as it lasts: the node's sessions in each begun
//!   minute. One that never ends, so that no journal behind it is read, and each where the policy is `assume_sent`: the
//!   claim cap for each lease that it may have cost;
//! - the clock, the relay, operators, transfers, memberships, overload: nothing. Faults of the relay show in the sink's
//!   own record instead: a recipient whose last hand-off the sink left without an answer, or cut off within the message,
//!   is in doubt by that, and such a dot explains no other recipient. (A message that was cut off before its run was read
//!   explains any one recipient.)

use std::collections::BTreeMap;

use super::blame::{self, Suspects};
use super::held::{claim_cap, unsettled_lives};
use crate::book::{Book, Grant, Item, rows_of};
use crate::history::{Answered, Fate, Fault, FaultKind, Fence, InDoubt, Part};
use crate::time::MS;
use crate::verdict::Inquiry;

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
pub fn bounded(book: &Book, inquiry: &mut Inquiry) {
    let mut whole = inquiry.needs(book, &[Part::Standings, Part::Faults, Part::Accepts, Part::Claims, Part::Lives]);
    // A relay that was left in peace answers every dot.
    let is_amiss = |fault: &Fault| fault.kind == FaultKind::Relay && fault.may_have_struck();
    if book.faults.iter().any(is_amiss) {
        whole &= inquiry.needs(book, &[Part::Dots]);
    }
    if whole {
        for item in doubted(book).filter(|item| rows_of(&book.grants, *item).is_empty()) {
            inquiry.offends(|| format!("{} is in doubt and no claim ever held it", book.describe(item)));
        }
        for grant in unaccounted(book) {
            let (item, node) = (book.describe(grant.item), book.names.text(grant.node));
            let life = grant.incarnation.map_or("of some life".to_owned(), |life| format!("life {life}"));
            inquiry.offends(|| format!("{item} is in doubt, {node}, {life}, held it, and no fault is left to blame"));
        }
    }
}

/// Counts.
pub fn doubt(book: &Book) -> Doubt {
    let in_doubt = doubted(book).count() as u64;
    let arrived = doubted(book).filter(|item| book.arrived(*item)).count() as u64;
    let by_relay = doubted(book).filter(|item| was_left_untold(book, *item)).count() as u64 + nameless(book);
    let cap = claim_cap(book);
    let by_faults: u64 = book.faults.iter().map(|fault| allowed_by(book, fault, cap)).sum();
    Doubt { in_doubt, arrived, allowed: by_relay + by_faults }
}

/// The last grants of recipients in doubt that no remaining fault explains, and that the relay did not
/// leave without an answer.
fn unaccounted(book: &Book) -> Vec<&Grant> {
    let cap = claim_cap(book);
    let mut rooms: Vec<u64> = book.faults.iter().map(|fault| allowed_by(book, fault, cap)).collect();
    let unnamed = rooms.len();
    rooms.push(nameless(book));
    let mut classes: BTreeMap<Suspects, Vec<&Grant>> = BTreeMap::new();
    let held = doubted(book).filter(|item| !was_left_untold(book, *item));
    for grant in held.filter_map(|item| rows_of(&book.grants, item).last()) {
        let suspects = book.faults.iter().enumerate().filter(|(_, fault)| may_have_struck(book, fault, grant));
        let suspects = suspects.map(|(place, _)| place).chain([unnamed]).filter(|place| rooms[*place] > 0);
        classes.entry(suspects.collect()).or_default().push(grant);
    }
    let counts: Vec<(Suspects, u64)> =
        classes.iter().map(|(suspects, grants)| (suspects.clone(), grants.len() as u64)).collect();
    let left = blame::unaccounted(&counts, &rooms);
    let told = classes.into_values().zip(left).map(|(mut grants, left)| grants.split_off(grants.len() - left as usize));
    told.flatten().collect()
}

/// Can this fault have left a hand-off under this claim in doubt? It struck the process that held the claim or, where a
/// journal was lost, a later process of that node, which would have read the journal. A partition or a bad link may
/// strike any node; a partition that never ends also hides the journals of the nodes that it cuts off.
fn may_have_struck(book: &Book, fault: &Fault, grant: &Grant) -> bool {
    let holder = book.names.text(grant.node);
    if (!is_network(fault) || never_ends(fault)) && !fault.nodes.iter().any(|node| node == holder) {
        return false;
    }
    // Ledger time, which separates one incarnation from the next, may be off by that, and a node that is gone may be
    // granted something until its lease is over.
    let slack_ns = (book.header.lease_ms + book.header.margin_ms + book.header.clock_error_ms).saturating_mul(MS);
    let lives_again = book.next_start(holder, fault.from_ns);
    let over_ns = match fault.kind {
        FaultKind::Kill | FaultKind::Upgrade | FaultKind::PowerCut | FaultKind::CrashPoint => lives_again,
        FaultKind::NodeLost => None,
        _ if never_ends(fault) => None,
        _ => fault.until_ns.or(lives_again),
    };
    let over_ns = over_ns.unwrap_or(u64::MAX).saturating_add(slack_ns);
    let own = |node: &str, incarnation| node == holder && incarnation == grant.incarnation;
    let life = book.lives.iter().find(|life| life.incarnation.is_some() && own(&life.node, life.incarnation));
    let had_begun = life.is_none_or(|life| life.started_ns <= over_ns);
    let was_over = life
        .and_then(|life| life.ended_ns)
        .is_some_and(|ended| ended.saturating_add(slack_ns) < fault.from_ns && !hides_journals(book, fault));
    // What was given to a life that ended here may be committed later, when there is a leader again.
    let ended_it = life.and_then(|life| life.ended_ns).is_some_and(|ended| ended.abs_diff(fault.from_ns) <= slack_ns);
    had_begun && !was_over && (ended_it || grant.committed_ns.is_none_or(|committed| committed <= over_ns))
}

/// How a fault can leave a hand-off in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// A process dies or stands still behind its gate; its journal tells later what it did.
    Process,
    /// Answers are lost on their way.
    Network,
    /// The journal is lost with its node.
    Journals,
    /// Not at all.
    None,
}

fn effect_on_doubt(kind: FaultKind) -> Effect {
    match kind {
        FaultKind::Kill
        | FaultKind::Upgrade
        | FaultKind::Restart
        | FaultKind::Pause
        | FaultKind::CrashPoint
        | FaultKind::Damage
        | FaultKind::Disk => Effect::Process,
        FaultKind::Partition | FaultKind::Link => Effect::Network,
        FaultKind::PowerCut | FaultKind::NodeLost => Effect::Journals,
        FaultKind::Clock | FaultKind::Relay | FaultKind::Transfer | FaultKind::Operator => Effect::None,
    }
}

fn is_network(fault: &Fault) -> bool {
    effect_on_doubt(fault.kind) == Effect::Network
}

/// A network that is cut or bad for good.
fn never_ends(fault: &Fault) -> bool {
    is_network(fault) && fault.until_ns.is_none()
}

/// What the journals of the struck nodes say changes nothing: they are lost, or behind a cut for good, or come too
/// late. The policy `assume_sent` closes a doubt as soon as its run ends, which may be before the node that held it is
/// back.
fn hides_journals(book: &Book, fault: &Fault) -> bool {
    let with_its_node = effect_on_doubt(fault.kind) == Effect::Journals;
    let comes_late = book.header.in_doubt == InDoubt::AssumeSent && effect_on_doubt(fault.kind) != Effect::None;
    fault.journals_lost || with_its_node || never_ends(fault) || comes_late
}

fn doubted(book: &Book) -> impl Iterator<Item = Item> {
    let doubted = book.standings.iter().filter(|stands| matches!(stands.state, Fate::InDoubt | Fate::Assumed));
    doubted.map(|stands| stands.item)
}

/// From a dot that the sink has read and answered until its sender has written the answer down, on a busy machine.
const ANSWER_UNDER_WAY_NS: u64 = 250 * MS;

/// Dots of the struck nodes that the sink read shortly before they were struck, or after and before they went on or
/// lived again.
fn under_way(book: &Book, fault: &Fault) -> u64 {
    let of_node = |node: &String| {
        let lives_again = book.next_start(node, fault.from_ns);
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
    // The fence of a message that was cut off may not have been read.
    let is_last = |fence: Option<Fence>| fence.is_none() || fence == last;
    rows_of(&book.dots, item).iter().any(|dot| dot.answer.leaves_doubt() && is_last(dot.fence))
}

/// Messages that were cut off before their run was read.
fn nameless(book: &Book) -> u64 {
    let Some(none) = book.names.find("") else { return 0 };
    book.dots.iter().filter(|dot| dot.answer == Answered::Cut && dot.item.run == none).count() as u64
}

/// How many a fault allows; `cap` is how many a node can hold.
fn allowed_by(book: &Book, fault: &Fault, cap: u64) -> u64 {
    if !fault.may_have_struck() {
        return 0;
    }
    let nodes = fault.nodes.len() as u64;
    let sessions = nodes * u64::from(book.header.sessions);
    let length_ns = fault.until_ns.unwrap_or(book.ended_ns()).saturating_sub(fault.from_ns);
    let effect = effect_on_doubt(fault.kind);
    if hides_journals(book, fault) {
        let lease_ns = (book.header.lease_ms + book.header.margin_ms).max(1).saturating_mul(MS);
        return match effect {
            Effect::Network => nodes * cap * (length_ns / lease_ns + 1),
            // The leader counts what a node holds over all its processes (P12).
            _ => {
                let held = |node: &String| cap.saturating_mul(unsettled_lives(book, fault, node));
                fault.nodes.iter().map(|node| held(node).min(book.header.claim_cap.into())).sum()
            }
        };
    }
    match effect {
        Effect::Process => fault.past_gate.map_or(sessions, |past| (past + under_way(book, fault)).min(sessions)),
        Effect::Network => sessions * (length_ns / (60_000 * MS) + 1),
        // The journals of a lost node are hidden, above.
        Effect::Journals | Effect::None => 0,
    }
}
