//! Changes the membership, one node at a time (P22). Only `peer/join.rs` of the Raft crate adds learners.
//!
//! A node joins as a learner. It votes only after it could replace any other voter for a while: it has the log, applies
//! it, holds the archive (P24) and every file that is not lost (P20), and its clock agrees with the leader's
//! (P18). A node that the ledger has removed leaves the membership; `removal` checks and proposes that. A change that a
//! former leader left half done is finished. A leader that drains or was removed hands over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::{ClaimOwner, Hash, NodeId};
use reveille_ledger::{AGREEMENT_MS, Ledger};
use reveille_raft::MemberStatus;

use super::clock_steering::clock_difference_ms;
use super::leadership::{Leadership, NodeReport};
use super::removal::{RunningVoters, check_majorities};
use super::transfer::{self, Unfit};
use crate::process::context::NodeContext;

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of entries that a learner may lack.
const LAG_MAX: u64 = 1_000;
/// Time for which a learner must be ready without interruption. A node knows which files it lacks only a second after
/// its start.
const READY_FOR: Duration = Duration::from_secs(3);
/// Limit of one change of the membership.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);

/// Checks until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut ready = ReadyLearners::default();
    let mut refused = BTreeSet::new();
    while !leadership.ended() {
        leadership.sleep(CHECK_EVERY).await;
        if context.replica.has_unfinished_change() {
            match context.replica.finish_change(Instant::now() + CHANGE_LIMIT).await {
                Ok(()) => tracing::info!("a change of the members that was half done is finished"),
                Err(error) => tracing::warn!(%error, "a change of the members is still half done"),
            }
            continue;
        }
        let members = context.replica.status().members;
        if hands_over(&context, &members).await {
            return;
        }
        if let Some(node) = removed_member(&context, &members) {
            leave_out(&context, &leadership, node).await;
            continue;
        }
        let (reports, lost) = (leadership.reports(), context.files.lost());
        let is_ready = |node: &NodeId, member: &MemberStatus| {
            !member.member.votes && is_ready(member, reports.get(node), &lost) && leadership.has_lease(*node)
        };
        let learners = members.iter().filter(|(node, member)| is_ready(node, member));
        let learners = learners.filter_map(|(node, _)| Some(reports.get(node)?.owner)).collect();
        promote_one(&context, ready.steady(learners, context.clock.monotonic()), &mut refused).await;
    }
}

/// Promotes the first of these learners whose clock agrees with this node's. A learner with another clock, or without
/// an answer, is skipped. After a failed promotion the next one is tried, unless a change of members is unfinished. A
/// refused clock is logged once for each process.
async fn promote_one(context: &NodeContext, learners: Vec<ClaimOwner>, refused: &mut BTreeSet<ClaimOwner>) {
    for learner @ ClaimOwner { node, .. } in learners {
        match clock_difference_ms(context, node).await {
            Some(ms) if ms.saturating_abs() <= AGREEMENT_MS => {
                match context.replica.promote(node, Instant::now() + CHANGE_LIMIT).await {
                    Ok(()) => return tracing::info!(%node, "a learner has caught up and votes now"),
                    Err(error) => tracing::warn!(%node, %error, "a learner was not promoted: it is tried again"),
                }
                if context.replica.has_unfinished_change() {
                    return;
                }
            }
            Some(ms) if refused.insert(learner) => {
                tracing::warn!(%node, ms, "a learner does not vote: its clock is off; put it right");
            }
            _ => {}
        }
    }
}

/// Hands over if this node drains or was removed, and another voter answers that does not. Returns true if the
/// leadership must end.
async fn hands_over(context: &NodeContext, members: &BTreeMap<NodeId, MemberStatus>) -> bool {
    let me = context.me.node;
    let leaves = |ledger: &Ledger, node: &NodeId| {
        ledger.removed_nodes().contains(node) || ledger.nodes().get(node).is_some_and(|known| known.drains)
    };
    if !context.replica.read(|ledger| leaves(ledger, &me)) {
        return false;
    }
    let others = members.iter().filter(|(node, member)| **node != me && member.member.votes).map(|(node, _)| *node);
    let mut successors: BTreeSet<NodeId> = others.filter(|node| context.replica.answers(*node)).collect();
    context.replica.read(|ledger| successors.retain(|node| !leaves(ledger, node)));
    !successors.is_empty() && transfer::step_down(context, Unfit::DRAINS, |node| successors.contains(&node)).await
}

/// Returns a member that the ledger has removed.
fn removed_member(context: &NodeContext, members: &BTreeMap<NodeId, MemberStatus>) -> Option<NodeId> {
    context.replica.read(|ledger| members.keys().copied().find(|node| ledger.removed_nodes().contains(node)))
}

/// Leaves a removed node out of the membership, when enough voters run.
async fn leave_out(context: &NodeContext, leadership: &Leadership, node: NodeId) {
    let voters = RunningVoters::of(context, leadership);
    let changed = match check_majorities(&voters, node) {
        Ok(()) if node == context.me.node => return,
        Ok(()) => context.replica.remove(node, Instant::now() + CHANGE_LIMIT).await.map_err(|error| error.to_string()),
        Err(refused) => Err(refused.to_string()),
    };
    match changed {
        Ok(()) => tracing::warn!(%node, "a node was removed from the cluster"),
        Err(error) => tracing::warn!(%node, error, "a removed node is still a member: it is tried again"),
    }
}

/// Returns true if the member has the log and the files that a voter needs. It reports lost files last, so nothing else
/// is missing if only those are named.
fn is_ready(member: &MemberStatus, report: Option<&NodeReport>, lost: &BTreeSet<Hash>) -> bool {
    let has_log = member.lag.is_some_and(|lag| lag <= LAG_MAX);
    let has_files = |report: &NodeReport| report.missing.is_subset(lost) && !report.lacks_archive;
    has_log && report.is_some_and(|report| !report.behind && !report.stopping && has_files(report))
}

/// Processes of learners that are ready, each with the time since when.
#[derive(Default)]
struct ReadyLearners(BTreeMap<ClaimOwner, Duration>);

impl ReadyLearners {
    /// Records which learners are ready at `now`; returns those that were ready for long enough.
    fn steady(&mut self, ready: Vec<ClaimOwner>, now: Duration) -> Vec<ClaimOwner> {
        self.0.retain(|learner, _| ready.contains(learner));
        for learner in ready {
            self.0.entry(learner).or_insert(now);
        }
        let steady = self.0.iter().filter(|(_, since)| now.saturating_sub(**since) >= READY_FOR);
        steady.map(|(learner, _)| *learner).collect()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::Incarnation;

    use super::*;

    #[test]
    fn learner_is_promoted_after_it_was_ready_without_interruption() {
        let process = |node| ClaimOwner { node: NodeId(node), incarnation: Incarnation(1) };
        let (one, two) = (process(1), process(2));
        let mut learners = ReadyLearners::default();
        let at = Duration::from_secs;
        assert_eq!(learners.steady(vec![one], at(100)), []);
        assert_eq!(learners.steady(vec![one, two], at(101)), []);
        assert_eq!(learners.steady(vec![two], at(102)), [], "the first one is not ready for a moment");
        assert_eq!(learners.steady(vec![one, two], at(103)), []);
        assert_eq!(learners.steady(vec![one, two], at(104)), [two]);
        assert_eq!(learners.steady(vec![one], at(105)), []);
        assert_eq!(learners.steady(vec![one], at(106)), [one]);
        assert_eq!(learners.steady(vec![one, two], at(107)), [one], "it was not promoted");
        assert_eq!(learners.steady(vec![one, two], at(110)), [one, two]);
    }
}
