//! I5: doubt is bounded and explained. Each recipient that is in doubt at the end, or was closed as assumed, must have
//! been claimed, and must be explained by a fault on the process that last owned its claim. Each fault explains a
//! limited number of recipients (`attribution.rs`), and a fault of one node explains no recipient of another node.
//! Under `resend` the doubts that the policy sent again are explained too, each by a fault on the owner of its claim.
//! The policy waits ten minutes for the journal of an owner, so the same limits apply.
//!
//! No fault explains more recipients than the affected processes had claimed and not settled with a known outcome when
//! the fault began. Below that bound, a fault explains for each affected node:
//!
//! - the end of a process whose journal remains (kill, crash point, restart, damage, failing disk), and a pause: at most
//!   the node's sessions, of the handoffs past the gate by the sink's record. Those whose final dots the sink read later,
//!   before the node continued, count too, and those whose dots it read shortly before, since their answers may be lost;
//! - the end of a process without its journal (a power cut, a node that never restarts), and each of the faults above
//!   if the policy `assume_sent` closes doubts before a journal is read: the node's claim cap as the sink measures it
//!   (`claim_cap.rs`), for each process whose claims may be open;
//! - a partition or bad link, which may cut SMTP sessions: the node's sessions in each started minute. If the partition
//!   never ends, so that no journal behind it is read, or if the policy is `assume_sent`: the claim cap for each lease
//!   that the fault may have cost;
//! - faults of clocks, relays and operators, and leadership transfers: no recipient. Faults of the relay are in the
//!   sink's record: they explain each recipient whose last handoff the sink left unanswered or cut off. (A message that
//!   was cut off before its run was read explains any one recipient.)

use std::collections::BTreeMap;

use super::attribution::{self, CandidateFaults};
use super::claim_cap::{CLAIM_CAP_MAX, claim_cap, unsettled_processes};
use crate::events::{
    Answered, Claim, Decider, Fault, FaultKind, Fence, InDoubt, Lifetime, Outcome, OutcomeKind, RecipientState,
};
use crate::history::{HasItem, History, Item, of_item};
use crate::names::Name;
use crate::time::{LEASE_MS, MS};
use crate::verdict::Findings;

/// Counts of recipients in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Recipients in doubt at the end, or closed as assumed.
    pub in_doubt: u64,
    /// Recipients in `in_doubt` whose email was accepted.
    pub arrived: u64,
    /// Maximum number of recipients that the faults may leave in doubt.
    pub allowed: u64,
}

/// I5: doubt is bounded and explained.
pub fn bounded(history: &History, findings: &mut Findings) {
    if history.is_whole() {
        for item in doubted(history).filter(|item| of_item(&history.claims, *item).is_empty()) {
            findings.violation(|| format!("{item} is in doubt and no claim ever held it"));
        }
        for claim in unexplained(history) {
            let (item, Claim { node, incarnation, fence, .. }) = (claim.item(), claim);
            findings.violation(|| {
                format!(
                    "{item} was in doubt under {fence} of {node}, incarnation {incarnation}; no fault is left for it"
                )
            });
        }
    }
}

/// Counts recipients in doubt.
pub fn doubt(history: &History) -> Doubt {
    let in_doubt = doubted(history).count() as u64;
    let arrived = doubted(history).filter(|item| history.arrived(*item)).count() as u64;
    let by_relay = doubted(history).filter(|item| left_unanswered_by_relay(history, *item, last_fence(history, *item)));
    let explanations = explanations(history);
    let capacities = explanations.iter().map(|explanation| explanation.capacity);
    let allowed = by_relay.count() as u64 + without_run(history) + capacities.sum::<u64>();
    Doubt { in_doubt, arrived, allowed }
}

/// Returns the claims whose doubts are judged: the last claim of each recipient in doubt, and each claim whose doubt
/// the policy `resend` decided. (An operator may decide before the owner's journal is read.)
fn doubted_claims(history: &History) -> BTreeMap<(Item, Fence), &Claim> {
    let is_decided = |outcome: &&Outcome| outcome.kind == OutcomeKind::Resent(Decider::Policy);
    let decided = history.outcomes.iter().filter(is_decided);
    let decided = decided.filter_map(|outcome| Some((outcome.item(), outcome.fence?)));
    let last = doubted(history).filter_map(|item| Some((item, last_fence(history, item)?)));
    let claims = decided.chain(last).filter_map(|(item, fence)| {
        let claim = of_item(&history.claims, item).iter().find(|claim| claim.fence == fence)?;
        Some(((item, fence), claim))
    });
    claims.collect()
}

/// Returns the claims whose doubts neither a fault nor a missing answer of the relay explains.
fn unexplained(history: &History) -> Vec<&Claim> {
    let explanations = explanations(history);
    let unnamed = explanations.len();
    let capacities = explanations.iter().map(|explanation| explanation.capacity);
    let capacities: Vec<u64> = capacities.chain([without_run(history)]).collect();
    let mut classes: BTreeMap<CandidateFaults, Vec<&Claim>> = BTreeMap::new();
    let doubted = doubted_claims(history).into_values();
    for claim in doubted.filter(|claim| !left_unanswered_by_relay(history, claim.item(), Some(claim.fence))) {
        let own = explanations.iter().enumerate().filter(|(_, explanation)| explanation.explains(history, claim));
        let candidates = own.map(|(place, _)| place).chain([unnamed]).filter(|place| capacities[*place] > 0);
        classes.entry(candidates.collect()).or_default().push(claim);
    }
    let counts: Vec<(CandidateFaults, u64)> =
        classes.iter().map(|(candidates, claims)| (candidates.clone(), claims.len() as u64)).collect();
    let left = attribution::unexplained(&counts, &capacities);
    let classes = classes.into_values().zip(left);
    classes.flat_map(|(mut claims, left)| claims.split_off(claims.len() - left as usize)).collect()
}

/// The recipients that a fault explains on one of its nodes or, if it affects any node, on all of them.
struct Explanation<'a> {
    fault: &'a Fault,
    node: Option<&'a str>,
    /// Maximum number of these recipients.
    capacity: u64,
}

impl Explanation<'_> {
    /// Returns true if the fault can have left a handoff under this claim in doubt: it affected the process that owned
    /// the claim or, if a journal was lost, a later process of that node, which would have read the journal. A
    /// partition or bad link may affect any node. A partition that never ends also hides the journals of the nodes that
    /// it cuts off.
    fn explains(&self, history: &History, claim: &Claim) -> bool {
        let until_ns = affects_claims_until(history, self.fault, (claim.node, claim.incarnation));
        self.concerns(claim.node) && until_ns.is_some_and(|until_ns| claimed_ns(claim) <= until_ns)
    }

    fn concerns(&self, owner: Name) -> bool {
        self.node.is_none_or(|node| owner == node)
    }
}

/// Returns the tolerance of times: ledger time, which separates incarnations, may be wrong by the clock error, and an
/// ended process may get claims until its lease expires.
fn slack_ns(history: &History) -> u64 {
    (LEASE_MS + history.header.clock_error_ms).saturating_mul(MS)
}

/// Returns the time until which claims of this process were committed that the fault can have affected. `None`: it
/// affected no claim.
fn affects_claims_until(history: &History, fault: &Fault, process: Process) -> Option<u64> {
    let (owner, incarnation) = (process.0, process.1);
    if (!is_network(fault) || never_ends(fault)) && !fault.nodes.iter().any(|node| owner == *node) {
        return None;
    }
    let slack_ns = slack_ns(history);
    let next_start_ns = history.next_start(&owner, fault.from_ns);
    let over_ns = match fault.kind {
        FaultKind::Kill | FaultKind::Upgrade | FaultKind::PowerCut | FaultKind::CrashPoint => next_start_ns,
        FaultKind::NodeLost => None,
        _ if never_ends(fault) => None,
        _ => fault.until_ns.or(next_start_ns),
    };
    let over_ns = over_ns.unwrap_or(u64::MAX).saturating_add(slack_ns);
    let is_own = |lifetime: &&Lifetime| owner == lifetime.node && lifetime.incarnation == Some(incarnation);
    let lifetime = history.lifetimes.iter().find(is_own);
    let had_begun = lifetime.is_none_or(|lifetime| lifetime.started_ns <= over_ns);
    let ended_ns = lifetime.and_then(|lifetime| lifetime.ended_ns);
    let was_over =
        ended_ns.is_some_and(|ended| ended.saturating_add(slack_ns) < fault.from_ns && !hides_journals(history, fault));
    // A claim of a process that ended here may be committed later, when there is a leader again.
    let ended_it = ended_ns.is_some_and(|ended| ended.abs_diff(fault.from_ns) <= slack_ns);
    (had_begun && !was_over).then_some(if ended_it { u64::MAX } else { over_ns })
}

/// Returns the earliest time at which the recipient may have been claimed. 0: unknown.
fn claimed_ns(claim: &Claim) -> u64 {
    claim.committed_ns.or(claim.proposed_ns).unwrap_or(0)
}

/// A node and its incarnation.
type Process = (Name, u64);

/// Times of the claimed recipients of one process, sorted: the times of the claims, and those of the settles with a
/// known outcome.
#[derive(Default)]
struct ClaimTimes {
    claimed_ns: Vec<u64>,
    settled_ns: Vec<u64>,
}

fn claim_times(history: &History) -> BTreeMap<Process, ClaimTimes> {
    let mut processes: BTreeMap<Process, ClaimTimes> = BTreeMap::new();
    let committed_by = CommitTimes::new(history);
    for claim in &history.claims {
        let times = processes.entry((claim.node, claim.incarnation)).or_default();
        times.claimed_ns.push(claimed_ns(claim));
        let next = history.outcome_of(claim.item(), claim.fence);
        let known =
            next.filter(|next| matches!(next.kind, OutcomeKind::Sent | OutcomeKind::Refused | OutcomeKind::Released));
        times.settled_ns.extend(known.map(|next| committed_by.ns(next.index)));
    }
    for times in processes.values_mut() {
        times.claimed_ns.sort_unstable();
        times.settled_ns.sort_unstable();
    }
    processes
}

/// Latest times at which entries were committed, by the sink's clock. A claim was committed before its first handoff,
/// and so were all entries before that claim.
struct CommitTimes(BTreeMap<u64, u64>);

impl CommitTimes {
    fn new(history: &History) -> CommitTimes {
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        for (fence, at_ns) in history.handoffs.iter().filter_map(|handoff| Some((handoff.fence?, handoff.data_ns))) {
            let known = times.entry(fence.index).or_insert(at_ns);
            *known = at_ns.min(*known);
        }
        let mut earliest_ns = u64::MAX;
        for at_ns in times.values_mut().rev() {
            earliest_ns = earliest_ns.min(*at_ns);
            *at_ns = earliest_ns;
        }
        CommitTimes(times)
    }

    fn ns(&self, index: u64) -> u64 {
        self.0.range(index..).next().map_or(u64::MAX, |(_, at_ns)| *at_ns)
    }
}

impl Explanation<'_> {
    /// Returns the number of claimed recipients that the fault can have affected: they had no known outcome when it
    /// began.
    fn unsettled(&self, history: &History, processes: &BTreeMap<Process, ClaimTimes>) -> u64 {
        let mut unsettled = 0;
        for (process, times) in processes.iter().filter(|(process, _)| self.concerns(process.0)) {
            if let Some(until_ns) = affects_claims_until(history, self.fault, *process) {
                let claimed = times.claimed_ns.partition_point(|at_ns| *at_ns <= until_ns);
                let settled = times.settled_ns.partition_point(|at_ns| *at_ns < self.fault.from_ns);
                unsettled += claimed.saturating_sub(settled) as u64;
            }
        }
        unsettled
    }
}

/// How a fault can leave a handoff in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// A process ends or pauses past its gate. Its journal can be read later.
    Process,
    /// Replies are lost in the network.
    Network,
    /// The journal is lost.
    Journals,
    /// No effect on doubt.
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
        FaultKind::Clock
        | FaultKind::Relay
        | FaultKind::Transfer
        | FaultKind::Operator
        | FaultKind::Rotation
        | FaultKind::Backup
        | FaultKind::Join
        | FaultKind::Grow
        | FaultKind::Shrink => Effect::None,
    }
}

fn is_network(fault: &Fault) -> bool {
    effect_on_doubt(fault.kind) == Effect::Network
}

/// Returns true if the fault is a network fault without an end.
fn never_ends(fault: &Fault) -> bool {
    is_network(fault) && fault.until_ns.is_none()
}

/// Returns true if the journals of the affected nodes are not read in time. They are lost, behind a permanent cut, or
/// too late: the policy decides a doubt possibly before the node is back.
fn hides_journals(history: &History, fault: &Fault) -> bool {
    let with_its_node = effect_on_doubt(fault.kind) == Effect::Journals;
    let decides_early = match history.header.in_doubt {
        InDoubt::Hold => false,
        // A move of the clock may end the ten minutes for which the policy waits.
        InDoubt::Resend => !history.clock_moves.is_empty(),
        InDoubt::AssumeSent => true,
    };
    let comes_late = decides_early && effect_on_doubt(fault.kind) != Effect::None;
    fault.journals_lost || with_its_node || never_ends(fault) || comes_late
}

fn doubted(history: &History) -> impl Iterator<Item = Item> {
    let doubted = history
        .final_states
        .iter()
        .filter(|item_state| matches!(item_state.state, RecipientState::InDoubt | RecipientState::Assumed));
    doubted.map(|item_state| item_state.item())
}

/// Time between the sink's answer and the sender's journal entry, on a busy machine.
const ANSWER_UNDER_WAY_NS: u64 = 250 * MS;

/// Returns the number of handoffs of a node that the sink read shortly before the fault, or after it and before the
/// node continued or restarted.
fn under_way(history: &History, fault: &Fault, node: &str) -> u64 {
    let from_ns = fault.from_ns.saturating_sub(ANSWER_UNDER_WAY_NS);
    let next_start_ns = history.next_start(node, fault.from_ns);
    let continues_ns = (fault.kind == FaultKind::Pause).then(|| fault.until_ns.unwrap_or(fault.from_ns));
    let until_ns = next_start_ns.into_iter().chain(continues_ns).min().unwrap_or(u64::MAX);
    let own = history.handoffs.iter().filter(|handoff| handoff.node == node);
    let uncut = own.filter(|handoff| handoff.answer != Answered::Cut);
    uncut.filter(|handoff| (from_ns..until_ns).contains(&handoff.at_ns)).count() as u64
}

/// Returns the fence of the recipient's last claim.
fn last_fence(history: &History, item: Item) -> Option<Fence> {
    of_item(&history.claims, item).last().map(|claim| claim.fence)
}

/// Returns true if an injected fault of the relay left the handoff under this fence without an answer.
fn left_unanswered_by_relay(history: &History, item: Item, fence: Option<Fence>) -> bool {
    // The fence of a message that was cut off may not have been read.
    let is_own = |other: Option<Fence>| other.is_none() || other == fence;
    of_item(&history.handoffs, item).iter().any(|handoff| handoff.answer.leaves_doubt() && is_own(handoff.fence))
}

/// Returns the number of messages that were cut off before their run was read.
fn without_run(history: &History) -> u64 {
    let cut = history.handoffs.iter().filter(|handoff| handoff.answer == Answered::Cut);
    cut.filter(|handoff| handoff.run.is_empty()).count() as u64
}

/// Returns the numbers of recipients that the faults explain, each on its nodes.
fn explanations(history: &History) -> Vec<Explanation<'_>> {
    let (cap, processes) = (claim_cap(history), claim_times(history));
    let mut explanations = Vec::new();
    for fault in history.possible_faults() {
        // A network fault that ends may affect any node, as often as it has nodes.
        let nodes: Vec<Option<&str>> = match is_network(fault) && !never_ends(fault) {
            true => vec![None],
            false => fault.nodes.iter().map(|node| Some(node.as_str())).collect(),
        };
        for node in nodes {
            let mut explanation = Explanation { fault, node, capacity: 0 };
            let unsettled = explanation.unsettled(history, &processes);
            explanation.capacity = allowed_by(history, fault, node, cap).min(unsettled);
            explanations.push(explanation);
        }
    }
    explanations
}

/// Returns the maximum number of recipients that a fault explains, on this node or in all. `cap` is the measured claim
/// cap of a node.
fn allowed_by(history: &History, fault: &Fault, node: Option<&str>, cap: u64) -> u64 {
    let sessions = u64::from(history.header.sessions);
    let length_ns = fault.until_ns.unwrap_or(history.ended_ns()).saturating_sub(fault.from_ns);
    let hides_journals = hides_journals(history, fault);
    match (effect_on_doubt(fault.kind), node) {
        (Effect::Network, _) => {
            let nodes = node.map_or(fault.nodes.len() as u64, |_| 1);
            let lease_ns = LEASE_MS * MS;
            let (each, interval_ns) = if hides_journals { (cap, lease_ns) } else { (sessions, 60_000 * MS) };
            nodes * each * (length_ns / interval_ns + 1)
        }
        // The leader counts a node's claims over all its processes (P12).
        (_, Some(node)) if hides_journals => {
            cap.saturating_mul(unsettled_processes(history, fault, node)).min(CLAIM_CAP_MAX)
        }
        (Effect::Process, Some(node)) => {
            let past_gate = fault.past_gate.get(node);
            past_gate.map_or(sessions, |past_gate| (past_gate + under_way(history, fault, node)).min(sessions))
        }
        (Effect::Process | Effect::Journals | Effect::None, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Event, Handoff, Header};

    /// Returns a history of ten recipients. Each is claimed in an entry of its own, ten seconds after the recipient
    /// before, handed off half a second later, and settled in the entry after the claim.
    fn history() -> History {
        let mut history = History::new(Header::default());
        for number in 0..10_u64 {
            let fence = Fence { group: 1, epoch: 1, index: 10 * (number + 1), place: 0 };
            let (run, recipient) = (Name::from("r1.0"), Name::from(format!("m{number}")));
            let (node, claimed_ns) = (Name::from("n1"), number * 10_000 * MS);
            history.record(Event::Claim(Claim {
                fence,
                node,
                incarnation: 1,
                run,
                recipient,
                committed_ns: None,
                proposed_ns: Some(claimed_ns),
                ledger_unix_ms: None,
            }));
            history.record(Event::Handoff(Handoff {
                data_ns: claimed_ns + 500 * MS,
                at_ns: claimed_ns + 500 * MS,
                run,
                recipient,
                fence: Some(fence),
                node,
                answer: Answered::Accepted,
                message_id: None,
                body: None,
                content: None,
                repeated_headers: Vec::new(),
            }));
            let (index, detail, kind) = (fence.index + 1, String::new(), OutcomeKind::Sent);
            history.record(Event::Outcome(Outcome {
                index,
                fence: None,
                run,
                recipient,
                kind,
                code: None,
                proposed_ns: None,
                detail,
            }));
        }
        history.close()
    }

    fn unsettled(history: &History, fault: &Fault, node: &str) -> u64 {
        Explanation { fault, node: Some(node), capacity: 0 }.unsettled(history, &claim_times(history))
    }

    #[test]
    fn fault_explains_no_recipient_that_was_settled_before_or_claimed_after() {
        let history = history();
        let mut fault = Fault::installed(FaultKind::Pause, String::new(), vec!["n1".to_owned()], 40_700 * MS);
        fault.until_ns = Some(63_000 * MS);
        // m0 to m3 were settled before m4 was handed off at 40.5 s. m7 was claimed at 70 s, more than a lease after the
        // end.
        assert_eq!(unsettled(&history, &fault, "n1"), 3);
        fault.nodes = vec!["n2".to_owned()];
        assert_eq!(unsettled(&history, &fault, "n2"), 0);
    }

    /// Seed 259106958 of the simulation: the ledger reports two releases of one claim as one, at the index of the
    /// later.
    #[test]
    fn release_that_is_reported_late_settles_its_own_claim_only() {
        let mut history = history();
        let second = Fence { group: 1, epoch: 1, index: 95, place: 0 };
        let item = *history.claims.first().expect("a claim");
        history.record(Event::Claim(Claim { fence: second, proposed_ns: Some(95_000 * MS), ..item }));
        let late = history.outcomes.first_mut().expect("an outcome");
        (late.index, late.fence) = (96, Some(item.fence));
        let history = history.close();
        let fault = Fault::installed(FaultKind::PowerCut, String::new(), vec!["n1".to_owned()], 99_000 * MS);
        assert_eq!(unsettled(&history, &fault, "n1"), 2, "the second claim of m0, and the one of m9");
    }
}
