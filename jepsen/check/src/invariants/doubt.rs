//! I5: doubt is bounded and honest. Each recipient who is in doubt at the end, or was closed as assumed, must have been
//! claimed, and must be explained by a fault on the process that held it last; each fault explains at most as many
//! recipients as it allows. The account is by item (`attribution.rs`): a fault of one node explains no doubt of another.
//!
//! What a fault allows, for each node that it struck:
//!
//! - the end of a process with its journal (kill, crash point, restart, damage, a disk that fails), and a pause: the
//!   hand-offs past the gate as the sink saw them, those whose dots it read later and before the node went on (they were
//!   under way), and those whose dots it read shortly before (their answers may have been under way). Never more than the
//!   node's sessions; also these where the hand-offs were not counted;
//! - the end of a process without its journal (a power cut, a node that never comes back), and each of the faults above
//!   where the policy `assume_sent` closes doubts before a journal is read: the node's claim cap as the sink measures it
//!   (`claim_cap.rs`), for each process whose claims may be open then;
//! - a partition or a bad link, which may cut SMTP sessions as long as it lasts: the node's sessions in each begun
//!   minute. One that never ends, so that no journal behind it is read, and each where the policy is `assume_sent`: the
//!   claim cap for each lease that it may have cost;
//! - the clock, the relay, operators, transfers, memberships, overload: nothing. Faults of the relay show in the sink's
//!   own record instead: a recipient whose last hand-off the sink left without an answer, or cut off within the message,
//!   is in doubt by that, and such a dot explains no other recipient. (A message that was cut off before its run was read
//!   explains any one recipient.)

use std::collections::BTreeMap;

use super::attribution::{self, CandidateFaults};
use super::claim_cap::{claim_cap, unsettled_processes};
use crate::history::{Answered, Fault, FaultKind, Fence, InDoubt, Part, RecipientState};
use crate::history_index::{Grant, HistoryIndex, Item, entries_of_item};
use crate::time::MS;
use crate::verdict::Findings;

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
pub fn bounded(history: &HistoryIndex, findings: &mut Findings) {
    let mut whole =
        findings.requires(history, &[Part::FinalStates, Part::Faults, Part::Accepts, Part::Claims, Part::Lifetimes]);
    // A relay that was left in peace answers every dot.
    let relay_failed = |fault: &Fault| fault.kind == FaultKind::Relay && fault.may_have_struck();
    if history.faults.iter().any(relay_failed) {
        whole &= findings.requires(history, &[Part::Handoffs]);
    }
    if whole {
        for item in doubted(history).filter(|item| entries_of_item(&history.grants, *item).is_empty()) {
            findings.violation(|| format!("{} is in doubt and no claim ever held it", history.describe(item)));
        }
        for grant in unexplained(history) {
            let (item, node) = (history.describe(grant.item), history.names.text(grant.node));
            let incarnation = grant.incarnation.map_or("unknown".to_owned(), |number| number.to_string());
            findings.violation(|| format!("{item} is in doubt; incarnation {incarnation} of {node} owned its claim last, and no remaining fault explains it"));
        }
    }
}

/// Counts.
pub fn doubt(history: &HistoryIndex) -> Doubt {
    let in_doubt = doubted(history).count() as u64;
    let arrived = doubted(history).filter(|item| history.arrived(*item)).count() as u64;
    let by_relay =
        doubted(history).filter(|item| left_unanswered_by_relay(history, *item)).count() as u64 + without_run(history);
    let cap = claim_cap(history);
    let by_faults: u64 = history.faults.iter().map(|fault| allowed_by(history, fault, cap)).sum();
    Doubt { in_doubt, arrived, allowed: by_relay + by_faults }
}

/// The last grants of recipients in doubt that no remaining fault explains, and that the relay did not
/// leave without an answer.
fn unexplained(history: &HistoryIndex) -> Vec<&Grant> {
    let cap = claim_cap(history);
    let mut capacities: Vec<u64> = history.faults.iter().map(|fault| allowed_by(history, fault, cap)).collect();
    let unnamed = capacities.len();
    capacities.push(without_run(history));
    let mut classes: BTreeMap<CandidateFaults, Vec<&Grant>> = BTreeMap::new();
    let held = doubted(history).filter(|item| !left_unanswered_by_relay(history, *item));
    for grant in held.filter_map(|item| entries_of_item(&history.grants, item).last()) {
        let candidates = history.faults.iter().enumerate().filter(|(_, fault)| may_have_struck(history, fault, grant));
        let candidates = candidates.map(|(place, _)| place).chain([unnamed]).filter(|place| capacities[*place] > 0);
        classes.entry(candidates.collect()).or_default().push(grant);
    }
    let counts: Vec<(CandidateFaults, u64)> =
        classes.iter().map(|(candidates, grants)| (candidates.clone(), grants.len() as u64)).collect();
    let left = attribution::unexplained(&counts, &capacities);
    let told = classes.into_values().zip(left).map(|(mut grants, left)| grants.split_off(grants.len() - left as usize));
    told.flatten().collect()
}

/// Can this fault have left a hand-off under this claim in doubt? It struck the process that held the claim or, where a
/// journal was lost, a later process of that node, which would have read the journal. A partition or a bad link may
/// strike any node; a partition that never ends also hides the journals of the nodes that it cuts off.
fn may_have_struck(history: &HistoryIndex, fault: &Fault, grant: &Grant) -> bool {
    let owner = history.names.text(grant.node);
    if (!is_network(fault) || never_ends(fault)) && !fault.nodes.iter().any(|node| node == owner) {
        return false;
    }
    // Ledger time, which separates one incarnation from the next, may be off by that, and a node that is gone may be
    // granted something until its lease is over.
    let slack_ns =
        (history.header.lease_ms + history.header.margin_ms + history.header.clock_error_ms).saturating_mul(MS);
    let next_start_ns = history.next_start(owner, fault.from_ns);
    let over_ns = match fault.kind {
        FaultKind::Kill | FaultKind::Upgrade | FaultKind::PowerCut | FaultKind::CrashPoint => next_start_ns,
        FaultKind::NodeLost => None,
        _ if never_ends(fault) => None,
        _ => fault.until_ns.or(next_start_ns),
    };
    let over_ns = over_ns.unwrap_or(u64::MAX).saturating_add(slack_ns);
    let own = |node: &str, incarnation| node == owner && incarnation == grant.incarnation;
    let lifetime = history
        .lifetimes
        .iter()
        .find(|lifetime| lifetime.incarnation.is_some() && own(&lifetime.node, lifetime.incarnation));
    let had_begun = lifetime.is_none_or(|lifetime| lifetime.started_ns <= over_ns);
    let was_over = lifetime
        .and_then(|lifetime| lifetime.ended_ns)
        .is_some_and(|ended| ended.saturating_add(slack_ns) < fault.from_ns && !hides_journals(history, fault));
    // What was given to a life that ended here may be committed later, when there is a leader again.
    let ended_it =
        lifetime.and_then(|lifetime| lifetime.ended_ns).is_some_and(|ended| ended.abs_diff(fault.from_ns) <= slack_ns);
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
fn hides_journals(history: &HistoryIndex, fault: &Fault) -> bool {
    let with_its_node = effect_on_doubt(fault.kind) == Effect::Journals;
    let comes_late = history.header.in_doubt == InDoubt::AssumeSent && effect_on_doubt(fault.kind) != Effect::None;
    fault.journals_lost || with_its_node || never_ends(fault) || comes_late
}

fn doubted(history: &HistoryIndex) -> impl Iterator<Item = Item> {
    let doubted = history
        .final_states
        .iter()
        .filter(|item_state| matches!(item_state.state, RecipientState::InDoubt | RecipientState::Assumed));
    doubted.map(|item_state| item_state.item)
}

/// From a dot that the sink has read and answered until its sender has written the answer down, on a busy machine.
const ANSWER_UNDER_WAY_NS: u64 = 250 * MS;

/// Dots of the struck nodes that the sink read shortly before they were struck, or after and before they went on or
/// lived again.
fn under_way(history: &HistoryIndex, fault: &Fault) -> u64 {
    let of_node = |node: &String| {
        let next_start_ns = history.next_start(node, fault.from_ns);
        let goes_on = (fault.kind == FaultKind::Pause).then(|| fault.until_ns.unwrap_or(fault.from_ns));
        let until_ns = next_start_ns.into_iter().chain(goes_on).min().unwrap_or(u64::MAX);
        let node = history.names.find(node);
        let handoffs =
            history.handoffs.iter().filter(|handoff| Some(handoff.node) == node && handoff.answer != Answered::Cut);
        let from_ns = fault.from_ns.saturating_sub(ANSWER_UNDER_WAY_NS);
        handoffs.filter(|handoff| (from_ns..until_ns).contains(&handoff.at_ns)).count() as u64
    };
    fault.nodes.iter().map(of_node).sum()
}

/// Did the relay, on purpose, leave the sender of its last hand-off without an answer?
fn left_unanswered_by_relay(history: &HistoryIndex, item: Item) -> bool {
    let last = entries_of_item(&history.grants, item).last().map(|grant| grant.fence);
    // The fence of a message that was cut off may not have been read.
    let is_last = |fence: Option<Fence>| fence.is_none() || fence == last;
    entries_of_item(&history.handoffs, item)
        .iter()
        .any(|handoff| handoff.answer.leaves_doubt() && is_last(handoff.fence))
}

/// Messages that were cut off before their run was read.
fn without_run(history: &HistoryIndex) -> u64 {
    let Some(none) = history.names.find("") else { return 0 };
    history.handoffs.iter().filter(|handoff| handoff.answer == Answered::Cut && handoff.item.run == none).count() as u64
}

/// How many a fault allows; `cap` is how many a node can hold.
fn allowed_by(history: &HistoryIndex, fault: &Fault, cap: u64) -> u64 {
    if !fault.may_have_struck() {
        return 0;
    }
    let nodes = fault.nodes.len() as u64;
    let sessions = nodes * u64::from(history.header.sessions);
    let length_ns = fault.until_ns.unwrap_or(history.ended_ns()).saturating_sub(fault.from_ns);
    let effect = effect_on_doubt(fault.kind);
    if hides_journals(history, fault) {
        let lease_ns = (history.header.lease_ms + history.header.margin_ms).max(1).saturating_mul(MS);
        return match effect {
            Effect::Network => nodes * cap * (length_ns / lease_ns + 1),
            // The leader counts what a node holds over all its processes (P12).
            _ => {
                let held = |node: &String| cap.saturating_mul(unsettled_processes(history, fault, node));
                fault.nodes.iter().map(|node| held(node).min(history.header.claim_cap.into())).sum()
            }
        };
    }
    match effect {
        Effect::Process => fault.past_gate.map_or(sessions, |past| (past + under_way(history, fault)).min(sessions)),
        Effect::Network => sessions * (length_ns / (60_000 * MS) + 1),
        // The journals of a lost node are hidden, above.
        Effect::Journals | Effect::None => 0,
    }
}
