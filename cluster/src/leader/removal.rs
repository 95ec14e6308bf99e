//! Drains and removes members, one at a time (P22).
//!
//! A node that runs is drained first: it gets no claims, what it has is settled, and a majority of the voters that are
//! left holds the files of runs (P20) and the archive (P24). A dead node is waited out: its lease ends, and the
//! auditor revokes its claims. Then `NodeRemove` is proposed, which the ledger refuses while anything is claimed for the
//! node; so no claim can come between the last check and the removal. After that `membership` leaves the node out.
//! [`change`] is the leader's part; repeated, it goes on where it was. A drain that it began for a removal ends if the
//! removal is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::{ClaimOwner, Hash, NodeId};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;

use super::leadership::Leadership;
use crate::process::context::NodeContext;
use crate::process::limits::NAMED_MAX;
use crate::process::peer_messages::{self, ChangeMember, ChangedMember, MemberChange, MemberRefusal, MemberWait};

/// Interval of the checks, and pause before the leader is asked again.
const CHECK_EVERY: Duration = Duration::from_millis(200);
/// Time for which a majority must run without interruption before a voter is drained to be removed, and before it is
/// removed. Longer than one that has just crashed seems to answer.
const RUNS_FOR: Duration = Duration::from_secs(1);
/// As [`RUNS_FOR`], if the majority must also have files: a node knows which ones it lacks only a second after its
/// start.
const HAS_FILES_FOR: Duration = Duration::from_secs(3);
/// Time in which the voters of a new leader ask for their leases, busy ones answer, and a node that just crashed counts
/// as running.
const LEASES_WITHIN: Duration = Duration::from_secs(3);
/// The answer is sent this long before the caller stops waiting.
const ANSWER_BEFORE: Duration = Duration::from_millis(300);

/// Asks the leader to change a member, from any node, until `deadline`. A member that drains only for a removal that was
/// refused no longer drains.
///
/// # Errors
/// [`MemberRefusal`].
pub async fn through_leader(
    context: &Arc<NodeContext>,
    request: ChangeMember,
    deadline: Instant,
) -> Result<ChangedMember, MemberRefusal> {
    let member = request.member;
    let drains = || context.replica.read(|ledger| ledger.nodes().get(&member).is_some_and(|node| node.drains));
    let drained_before = drains();
    let answer = ask_leader(context, request.clone(), deadline).await;
    let is_refused = answer.as_ref().is_err_and(is_final);
    if is_refused && request.change == MemberChange::Remove && !drained_before {
        let undrain = ChangeMember { change: MemberChange::Undrain, ..request };
        if let Err(error) = ask_leader(context, undrain, deadline).await {
            tracing::warn!(node = %member, %error, "a node may still drain after its refused removal");
        } else {
            // This node may not have applied it yet.
            while drains() && Instant::now() < deadline {
                tokio::time::sleep(CHECK_EVERY).await;
            }
        }
    }
    answer
}

/// Returns true if the leader refused it: a change that is still under way, or perhaps done, is not.
fn is_final(refusal: &MemberRefusal) -> bool {
    use MemberRefusal::{NoLeader, NotLeader, Unknown, Waits};
    !matches!(refusal, NotLeader | NoLeader | Unknown(_) | Waits(_))
}

async fn ask_leader(
    context: &Arc<NodeContext>,
    request: ChangeMember,
    deadline: Instant,
) -> Result<ChangedMember, MemberRefusal> {
    let mut last = MemberRefusal::NoLeader;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(last);
        }
        if let Some(peer) = context.leader().and_then(|leader| context.replica.peer(leader)) {
            match peer_messages::ask(&peer, request.clone(), remaining).await {
                // The leader hands over before its own removal.
                Ok(Err(MemberRefusal::NotLeader)) => last = MemberRefusal::NotLeader,
                Ok(answer) => return answer,
                Err(error) => last = MemberRefusal::Unknown(error.to_string()),
            }
        }
        tokio::time::sleep(CHECK_EVERY.min(remaining)).await;
    }
}

/// Changes a member, as leader. Returns when it is done, or `limit` is over.
pub(crate) async fn change(
    context: &NodeContext,
    leadership: &Leadership,
    request: ChangeMember,
    limit: Duration,
) -> Result<ChangedMember, MemberRefusal> {
    let ChangeMember { member, change, actor } = request;
    let deadline = Instant::now() + limit.saturating_sub(ANSWER_BEFORE);
    let (mut ready_since, mut refused_since) = (None, None);
    loop {
        if !leadership.is_in_force() {
            return Err(MemberRefusal::NotLeader);
        }
        let step = next_step(context, leadership, member, change);
        let waits = match step {
            Ok(Step::Done) => return Ok(changed(context, member)),
            Ok(Step::Propose { steady_for, .. }) => {
                let since = *ready_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= steady_for {
                    propose(context, leadership, member, change, &actor).await?;
                    ready_since = None;
                    continue;
                }
                MemberRefusal::Waits(MemberWait::Steady)
            }
            Err(refusal) => {
                ready_since = None;
                let waits = match refusal {
                    MemberRefusal::Waits(_) => {
                        refused_since = None;
                        true
                    }
                    MemberRefusal::TooFewRun { .. } | MemberRefusal::StillRuns => {
                        refused_since.get_or_insert_with(Instant::now).elapsed() < LEASES_WITHIN
                    }
                    _ => false,
                };
                if !waits {
                    return Err(refusal);
                }
                refusal
            }
        };
        if Instant::now() + CHECK_EVERY >= deadline {
            return Err(waits);
        }
        leadership.sleep(CHECK_EVERY).await;
    }
}

/// Proposes the next step, if it is still that when no other change is proposed.
async fn propose(
    context: &NodeContext,
    leadership: &Leadership,
    member: NodeId,
    change: MemberChange,
    actor: &Actor,
) -> Result<(), MemberRefusal> {
    let _one = leadership.removing.lock().await;
    let Ok(Step::Propose { command, .. }) = next_step(context, leadership, member, change) else { return Ok(()) };
    match leadership.propose_for(actor, command(member)).await {
        // Claimed since the check: it is waited for.
        Some(CommandOutcome::Refused(CommandRefusal::NotPossible(Impossible::NodeHasClaims { .. }))) => Ok(()),
        Some(CommandOutcome::Refused(refusal)) => Err(MemberRefusal::Ledger(refusal)),
        // After an unknown outcome the state is read again.
        _ => Ok(()),
    }
}

/// What to do next about a member.
enum Step {
    Done,
    /// Propose this about the member, after the checks have held for this time.
    Propose {
        command: fn(NodeId) -> Command,
        steady_for: Duration,
    },
}

impl Step {
    fn propose(command: fn(NodeId) -> Command, steady_for: Duration) -> Step {
        Step::Propose { command, steady_for }
    }
}

fn next_step(
    context: &NodeContext,
    leadership: &Leadership,
    member: NodeId,
    change: MemberChange,
) -> Result<Step, MemberRefusal> {
    let (members, voters) = (context.replica.members(), RunningVoters::of(context, leadership));
    let known = context.replica.read(|ledger| MemberFacts::of(ledger, member, members.keys()));
    let wait = |wait| Err(MemberRefusal::Waits(wait));
    if known.is_removed {
        let is_out = !context.replica.is_member(member) && !context.replica.has_unfinished_change();
        return if is_out { Ok(Step::Done) } else { wait(MemberWait::Membership) };
    }
    if !members.contains_key(&member) {
        return Err(MemberRefusal::NotAMember);
    }
    if change == MemberChange::Undrain {
        let undrain = Step::propose(Command::NodeUndrain, Duration::ZERO);
        return Ok(if known.drains { undrain } else { Step::Done });
    }
    let is_me = member == context.me.node;
    let others: BTreeSet<NodeId> = voters.running.iter().copied().filter(|node| *node != member).collect();
    if others.is_empty() && voters.all == BTreeSet::from([member]) {
        return Err(MemberRefusal::LastVoter);
    }
    if change == MemberChange::RemoveDead {
        if is_me || context.replica.answers(member) {
            return Err(MemberRefusal::StillRuns);
        }
        check_majorities(&voters, member)?;
    } else {
        if !is_me && !leadership.has_lease(member) && !context.replica.answers(member) {
            return Err(MemberRefusal::DoesNotAnswer);
        }
        if change == MemberChange::Remove {
            check_majorities(&voters, member)?;
        }
        if known.is_up && !known.drains {
            let removes_voter = change == MemberChange::Remove && voters.all.contains(&member);
            let steady_for = if removes_voter { RUNS_FOR } else { Duration::ZERO };
            let drain = Step::propose(Command::NodeDrain, steady_for);
            return if known.any_stays(&others) { Ok(drain) } else { Err(MemberRefusal::NoOtherSends) };
        }
        if is_me {
            return wait(MemberWait::Leadership);
        }
    }
    let is_over = known.owner.is_none_or(|owner| leadership.lease_is_over(owner));
    if change == MemberChange::RemoveDead && !is_over {
        return wait(MemberWait::Lease);
    }
    if known.claimed > 0 {
        return wait(MemberWait::Claimed(known.claimed));
    }
    if change == MemberChange::Drain {
        return Ok(Step::Done);
    }
    if known.another_leaves || context.replica.has_unfinished_change() {
        return wait(MemberWait::Another);
    }
    if !voters.all.contains(&member) {
        return Ok(Step::propose(Command::NodeRemove, Duration::ZERO));
    }
    if !known.has_files {
        return Ok(Step::propose(Command::NodeRemove, RUNS_FOR));
    }
    let (reports, is_dead) = (leadership.reports(), change == MemberChange::RemoveDead);
    let has_archive = reports.iter().filter(|(_, report)| !report.lacks_archive).map(|(node, _)| *node).collect();
    if lacks_archive(&voters, member, &has_archive, is_dead) {
        return wait(MemberWait::Archive);
    }
    // No copy of a lost file would come. Lost ones are reported last, so a list with some of them names all others.
    let lost = context.files.lost();
    let missing = reports.into_iter().map(|(node, report)| (node, &report.missing - &lost)).collect();
    match files_with_too_few_copies(&voters, member, &missing, is_dead) {
        0 => Ok(Step::propose(Command::NodeRemove, HAS_FILES_FOR)),
        missing => wait(MemberWait::Files(missing)),
    }
}

/// What the ledger knows of a member.
struct MemberFacts {
    is_removed: bool,
    /// True if a process of it came up.
    is_up: bool,
    drains: bool,
    owner: Option<ClaimOwner>,
    claimed: u32,
    /// True if another removed node has not left the membership yet.
    another_leaves: bool,
    /// True if there are audience parts, attachments, or blocks of the archive.
    has_files: bool,
    /// Nodes that came up and do not drain.
    undrained: BTreeSet<NodeId>,
}

impl MemberFacts {
    fn of<'a>(ledger: &Ledger, member: NodeId, mut members: impl Iterator<Item = &'a NodeId>) -> MemberFacts {
        let node = ledger.nodes().get(&member);
        MemberFacts {
            is_removed: ledger.removed_nodes().contains(&member),
            is_up: node.is_some(),
            drains: node.is_some_and(|node| node.drains),
            owner: node.map(|node| node.owner(member)),
            claimed: ledger.claimed_by(member),
            another_leaves: members.any(|node| ledger.removed_nodes().contains(node)),
            has_files: ledger.needed_files().next().is_some() || !ledger.parts().is_empty(),
            undrained: ledger.nodes().iter().filter(|(_, node)| !node.drains).map(|(node, _)| *node).collect(),
        }
    }

    fn any_stays(&self, nodes: &BTreeSet<NodeId>) -> bool {
        nodes.iter().any(|node| self.undrained.contains(node))
    }
}

/// Result of a change: what the member left in doubt, and who votes.
fn changed(context: &NodeContext, member: NodeId) -> ChangedMember {
    let in_doubt = context.replica.read(|ledger| {
        let own = ledger.claims().iter().filter(|(_, claim)| claim.owner.node == member);
        own.map(|(_, claim)| u64::from(claim.in_doubt.len())).sum()
    });
    ChangedMember { in_doubt, voters: context.voters().len() as u32 }
}

/// The voters, and those of them that have a lease of this leadership and answer: the lease of one that has just crashed
/// still runs.
pub(crate) struct RunningVoters {
    all: BTreeSet<NodeId>,
    running: BTreeSet<NodeId>,
}

impl RunningVoters {
    /// Returns the voters as this leadership knows them.
    pub fn of(context: &NodeContext, leadership: &Leadership) -> RunningVoters {
        let all: BTreeSet<NodeId> = context.voters().into_iter().collect();
        let answers = |node: NodeId| node == context.me.node || context.replica.answers_now(node);
        let runs = |node: &NodeId| leadership.has_lease(*node) && answers(*node);
        let running = all.iter().copied().filter(runs).collect();
        RunningVoters { all, running }
    }
}

/// Checks that a majority runs, of the voters and of those that are left without `leaves`. Voters that do not run do
/// not hinder each other's removal: two dead ones of five are removed one after the other.
pub(crate) fn check_majorities(voters: &RunningVoters, leaves: NodeId) -> Result<(), MemberRefusal> {
    let rest: BTreeSet<NodeId> = voters.all.iter().copied().filter(|node| *node != leaves).collect();
    for set in [&voters.all, &rest] {
        let (running, needed) = (set.intersection(&voters.running).count(), set.len() / 2 + 1);
        if running < needed {
            let (running, of, needed) = (running as u32, set.len() as u32, needed as u32);
            return Err(MemberRefusal::TooFewRun { running, of, needed });
        }
    }
    Ok(())
}

/// Returns how many files (audience parts, attachments) would have too few copies after `leaves` is removed: fewer than
/// a majority of the other voters run and have the file (P20). A file that no running voter has is not counted if the
/// node is dead: no copy of it would come.
fn files_with_too_few_copies(
    voters: &RunningVoters,
    leaves: NodeId,
    missing: &BTreeMap<NodeId, BTreeSet<Hash>>,
    is_dead: bool,
) -> usize {
    let rest = voters.all.iter().filter(|node| **node != leaves);
    let needed = rest.clone().count() / 2 + 1;
    let reports: Vec<Option<&BTreeSet<Hash>>> =
        rest.filter(|node| voters.running.contains(node)).map(|node| missing.get(node)).collect();
    // A full list may be cut off, so that node counts as one without files.
    let has = |report: &Option<&BTreeSet<Hash>>, file: &Hash| {
        report.is_some_and(|report| report.len() + 1 < NAMED_MAX && !report.contains(file))
    };
    let files: BTreeSet<&Hash> = missing.values().flatten().collect();
    let is_missing = |file: &&&Hash| {
        let have = reports.iter().filter(|report| has(report, file)).count();
        have < needed && !(is_dead && have == 0)
    };
    files.iter().filter(is_missing).count()
}

/// Returns true if the archive would have too few whole copies after `leaves` is removed: fewer than a majority of the
/// other voters run and have all of it (P24). If none has, and the node is dead, no copy would come from it.
fn lacks_archive(voters: &RunningVoters, leaves: NodeId, has_archive: &BTreeSet<NodeId>, is_dead: bool) -> bool {
    let rest = voters.all.iter().filter(|node| **node != leaves);
    let needed = rest.clone().count() / 2 + 1;
    let have = rest.filter(|node| voters.running.contains(node) && has_archive.contains(node)).count();
    have < needed && !(is_dead && have == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(all: &[u64], running: &[u64]) -> RunningVoters {
        let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
        RunningVoters { all: nodes(all), running: nodes(running) }
    }

    #[test]
    fn majority_of_both_sets_of_voters_must_run() {
        let few = |running, of, needed| Err(MemberRefusal::TooFewRun { running, of, needed });
        let check = |all: &[u64], running: &[u64], leaves| check_majorities(&voters(all, running), NodeId(leaves));
        assert_eq!(check(&[1, 2, 3], &[1, 2], 3), Ok(()));
        assert_eq!(check(&[1, 2, 3], &[1, 2], 2), few(1, 2, 2), "a dead one would be half of what is left");
        assert_eq!(check(&[1, 2, 3], &[1], 3), few(1, 3, 2));
        // Two dead ones of five, one after the other.
        assert_eq!(check(&[1, 2, 3, 4, 5], &[1, 2, 3], 5), Ok(()));
        assert_eq!(check(&[1, 2, 3, 4], &[1, 2, 3], 4), Ok(()));
        // A learner leaves: the voters stay.
        assert_eq!(check(&[1, 2, 3], &[1, 2], 9), Ok(()));
        assert_eq!(check(&[1], &[1], 1), few(0, 0, 1), "the last voter");
    }

    #[test]
    fn files_must_be_on_a_majority_of_voters_that_are_left_and_run() {
        let (one, two) = (Hash([1; 32]), Hash([2; 32]));
        let missing = |lists: &[(u64, &[Hash])]| -> BTreeMap<NodeId, BTreeSet<Hash>> {
            lists.iter().map(|(node, parts)| (NodeId(*node), parts.iter().copied().collect())).collect()
        };
        let five = voters(&[1, 2, 3, 4, 5], &[1, 2, 3]);
        let all = missing(&[(1, &[]), (2, &[]), (3, &[])]);
        assert_eq!(files_with_too_few_copies(&five, NodeId(5), &all, true), 0, "the other dead one is not asked");
        let fetching = missing(&[(1, &[]), (2, &[]), (3, &[one])]);
        assert_eq!(
            files_with_too_few_copies(&five, NodeId(5), &fetching, true),
            1,
            "two of the four that are left have it"
        );
        let three = voters(&[1, 2, 3], &[1, 2, 3]);
        let only_on_third = missing(&[(1, &[one, two]), (2, &[one, two]), (3, &[])]);
        assert_eq!(
            files_with_too_few_copies(&three, NodeId(3), &only_on_third, false),
            2,
            "it drains until they have it"
        );
        let lost = voters(&[1, 2, 3], &[1, 2]);
        assert_eq!(files_with_too_few_copies(&lost, NodeId(3), &only_on_third, true), 0, "they never come");
        let half = missing(&[(1, &[]), (2, &[one])]);
        assert_eq!(files_with_too_few_copies(&lost, NodeId(3), &half, true), 1);
    }

    #[test]
    fn archive_must_be_whole_on_a_majority_of_voters_that_are_left_and_run() {
        let lacks = |running: &[u64], leaves: u64, whole: &[u64], is_dead: bool| {
            let whole = whole.iter().copied().map(NodeId).collect();
            lacks_archive(&voters(&[1, 2, 3], running), NodeId(leaves), &whole, is_dead)
        };
        assert!(!lacks(&[1, 2, 3], 3, &[1, 2], false), "what the removed one lacks is not asked");
        assert!(lacks(&[1, 2, 3], 3, &[1, 3], false), "one of the two that are left");
        assert!(lacks(&[1, 2, 3], 3, &[3], false), "it has the last copy");
        assert!(lacks(&[1, 2], 3, &[1], true), "the second one fetches it from the first one");
        assert!(!lacks(&[1, 2], 3, &[], true), "no copy comes from a dead node");
    }
}
