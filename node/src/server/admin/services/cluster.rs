//! The cluster: status, members and leadership. Status and members need no quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reveille_cluster::backup::BackupPlan;
use reveille_cluster::leader::transfer;
use reveille_cluster::monitoring::backlog::Backlog;
use reveille_cluster::monitoring::disk_reserve::Shortage;
use reveille_cluster::process::descriptions::{Described, descriptions};
use reveille_ledger::command::Command;
use reveille_ledger::crash_backoff::{Allowance, allowances};
use reveille_ledger::ids::{Hash, NodeId, RunId, Time};
use reveille_ledger::{BackupHistory, Head, Ledger, Node, Run};
use reveille_proto::admin::v1::{
    self, AbortRotationRequest, AbortRotationResponse, AcceptArchiveLossRequest, AcceptArchiveLossResponse,
    AcceptRestoreRequest, AcceptRestoreResponse, AddMemberRequest, AddMemberResponse, Checkpoint, DrainMemberRequest,
    DrainMemberResponse, ErrorReason, FinishUpgradeRequest, FinishUpgradeResponse, Freshness, GetArchiveLossRequest,
    GetArchiveLossResponse, GetAuthorityRequest, GetAuthorityResponse, GetClusterStatusRequest,
    GetClusterStatusResponse, GetRestoreRequest, GetRestoreResponse, GetUpgradeRequest, GetUpgradeResponse,
    ListMembersRequest, ListMembersResponse, MemberRole, MemberStatus, RemoveMemberRequest, RemoveMemberResponse,
    RotateAuthorityRequest, RotateAuthorityResponse, ScrubRequest, ScrubResponse, TransferLeaderRequest,
    TransferLeaderResponse,
};
use reveille_raft::{Member, Role, Status as RaftStatus};

use super::{archive_loss, authority, lost_files, member, pool, restore, scrub};
use crate::server::admin::deadline::DESCRIBED_WITHIN;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, views};

/// Maximum number of blocked runs in a status. Thousands of them would be too large for clients, just when they need
/// it.
const BLOCKED_MAX: usize = 100;

/// Returns what is known of the backups. Before the first one, none is overdue unless it failed.
fn backups(head: &Head, plan: &BackupPlan) -> v1::BackupStatus {
    let BackupHistory { last, failed_at } = head.backups;
    v1::BackupStatus {
        last_time: last.map(|last| views::timestamp(last.at)),
        last_index: last.map_or(0, |last| last.index),
        failed_time: failed_at.map(views::timestamp),
        interval: prost_types::Duration::try_from(plan.every).ok(),
        overdue: last.is_some_and(|last| head.now.since_ms(last.at) > whole_ms(plan.every).saturating_mul(2)),
    }
}

impl Admin {
    /// Asks all given members for their descriptions.
    pub(crate) async fn descriptions(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        within: Duration,
    ) -> BTreeMap<NodeId, Described> {
        descriptions(&self.context, nodes, within.min(DESCRIBED_WITHIN)).await
    }

    /// Returns the members. Without a cluster it returns this node alone.
    fn all_members(&self) -> BTreeMap<NodeId, Member> {
        let members = self.context.replica.members();
        if !members.is_empty() {
            return members;
        }
        let own = &self.context.introduction;
        BTreeMap::from([(
            self.context.me.node,
            Member { name: own.name.clone(), address: own.address.clone(), votes: false, key: None },
        )])
    }

    async fn get_cluster_status(&self, _: GetClusterStatusRequest, _: &Call) -> ApiResult<GetClusterStatusResponse> {
        let members = self.all_members();
        let mut described = self.descriptions(members.keys().copied(), DESCRIBED_WITHIN).await;
        let raft = self.context.replica.status();
        let name = |node: NodeId| members.get(&node).map_or_else(|| node.to_string(), |member| member.name.clone());
        let leader = raft.leader.map(name).unwrap_or_default();
        let head = self.context.replica.read(|ledger| ledger.head().clone());
        let epoch = head.epoch;
        let (blocked, blocked_count) = self.context.replica.read(blocked);
        let answering: BTreeSet<NodeId> = described.keys().copied().collect();
        let several = members.values().filter(|member| member.votes).count() > 1;
        let backoffs = self.context.replica.read(|ledger| crash_backoffs(ledger, &answering, several));
        let draining = self.draining();
        let shown = members.iter().map(|(node, member)| MemberStatus {
            crash_backoff_end_time: backoffs.get(node).map(|(until, _)| views::timestamp(*until)),
            crash_backoff_eighths: backoffs.get(node).map_or(0, |(_, allowance)| allowance.eighths().into()),
            member: Some(views::member(*node, member, &draining)),
            ..status_of(*node, member, described.remove(node), &raft)
        });
        Ok(GetClusterStatusResponse {
            backups: self.context.backups.as_ref().map(|plan| backups(&head, plan)),
            cluster: self.context.replica.cluster().map(|cluster| cluster.to_string()).unwrap_or_default(),
            incarnation: head.cluster_incarnation,
            group: head.group,
            leader,
            epoch: epoch.map_or(0, |epoch| epoch.epoch.0),
            term: raft.term,
            commit_index: raft.committed_index,
            clocks_agree: epoch.is_some_and(|epoch| epoch.clocks_agree),
            answered_by: self.context.introduction.name.clone(),
            members: shown.collect(),
            leaderless: raft.leaderless_for.map(|silence| views::duration(whole_ms(silence))),
            backlogs: self.context.backlogs.read().iter().cloned().map(backlog).collect(),
            blocked,
            blocked_count,
            pools_used_up: self.context.replica.read(pool::used_up),
            audit_head: head.audit.to_string(),
            test_clock_offset: head.test_clock.map(|clock| views::duration(clock.offset_ms)),
            restore: head.restored.map(restore::message),
            lost_files: lost_files::message(&self.context),
        })
    }

    /// Returns the member with this name or id.
    pub(super) fn member_named(&self, name: &str) -> ApiResult<NodeId> {
        let members = self.context.replica.members();
        let mut named = members.iter().filter(|(node, member)| member.name == name || node.to_string() == name);
        named.next().map(|(node, _)| *node).ok_or_else(|| error_texts::no_member(name))
    }

    /// Returns the member with this name or id. If `to` is empty, returns the voter with the highest applied index.
    async fn successor(&self, to: &str) -> ApiResult<NodeId> {
        if !to.is_empty() {
            return self.member_named(to);
        }
        let members = self.context.replica.members();
        let leader = self.context.replica.status().leader;
        let voters = members.iter().filter(|(node, member)| member.votes && Some(**node) != leader);
        let described = self.descriptions(voters.map(|(node, _)| *node), DESCRIBED_WITHIN).await;
        let closest = described.into_iter().max_by_key(|(_, described)| described.description.applied);
        let message = "no other voter answers; leadership stays where it is";
        let no_voter = || error_texts::precondition(ErrorReason::TooFewMembers, message);
        closest.map(|(node, _)| node).ok_or_else(no_voter)
    }
}

pub(super) fn whole_ms(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn backlog(backlog: Backlog) -> v1::Backlog {
    v1::Backlog {
        pool: backlog.pool,
        recipients: backlog.recipients,
        oldest_time: Some(views::timestamp(backlog.oldest)),
        bound_per_second: backlog.bound_per_second.unwrap_or_default(),
        shrinks_per_second: backlog.shrinks_per_second.unwrap_or_default(),
        eta: backlog.eta.map(|eta| views::duration(whole_ms(eta))),
        measured: backlog.measured,
        waiting: backlog.waiting,
        lower_bound: backlog.is_lower_bound,
    }
}

/// Returns the nodes in crash back-off (P12): when it ends, and the part of its cap that the node may hold until then.
/// The part is the dispatcher's. The dispatcher asks for nodes with a lease, and this for nodes that answer.
fn crash_backoffs(ledger: &Ledger, answering: &BTreeSet<NodeId>, several: bool) -> BTreeMap<NodeId, (Time, Allowance)> {
    let (limits, now) = (ledger.limits(), ledger.head().now);
    let live = ledger.nodes().iter().filter(|(id, _)| answering.contains(*id)).map(|(id, node)| (*id, node));
    let allowances = allowances(live, limits, several, now);
    let until = |node: &Node| node.crashes.backoff_until(limits).filter(|until| *until > now);
    let part = |id: &NodeId| allowances.get(id).copied().unwrap_or(Allowance::NONE);
    ledger.nodes().iter().filter_map(|(id, node)| Some((*id, (until(node)?, part(id))))).collect()
}

/// Returns the first runs that wait for audience parts which no live node has, and the number of all such runs (P20).
fn blocked(ledger: &Ledger) -> (Vec<v1::BlockedRun>, u32) {
    let blocked_run = |id: RunId, tenant: &str, run: &Run| v1::BlockedRun {
        run: id.to_string(),
        tenant: tenant.to_owned(),
        schedule: run.name.to_string(),
        missing: run.blocked.map(views::missing_file),
    };
    let runs = ledger
        .open_pages()
        .flat_map(|(id, page)| page.runs.iter().map(move |run| (id.run_id(run), &*page.tenant, run)));
    let mut runs = runs.filter(|(.., run)| run.blocked.is_some());
    let first: Vec<_> = runs.by_ref().take(BLOCKED_MAX).map(|(id, tenant, run)| blocked_run(id, tenant, run)).collect();
    let count = first.len() + runs.count();
    (first, u32::try_from(count).unwrap_or(u32::MAX))
}

/// Builds the status of one member, without its entry in the membership.
fn status_of(node: NodeId, member: &Member, described: Option<Described>, raft: &RaftStatus) -> MemberStatus {
    let Some(Described { description, clock_offset_ms }) = described else {
        let role = MemberRole::Unreachable.into();
        return MemberStatus { role, ..MemberStatus::default() };
    };
    let own_role = Some(&raft.role).filter(|_| node == raft.node);
    let role = match own_role {
        _ if raft.leader == Some(node) => MemberRole::Leader,
        Some(Role::Leader { .. }) => MemberRole::IsolatedLeader,
        Some(Role::Candidate) => MemberRole::Candidate,
        _ if member.votes => MemberRole::Follower,
        _ => MemberRole::Learner,
    };
    let state_hash = description.checkpoints.get(&description.applied).map(ToString::to_string);
    let checkpoint = |(index, hash): (u64, Hash)| Checkpoint { index, state_hash: hash.to_string() };
    MemberStatus {
        role: role.into(),
        incarnation: Some(description.incarnation.0),
        applied_index: Some(description.applied),
        state_hash,
        lag: Some(raft.committed_index.saturating_sub(description.applied)),
        clock_offset_ms: Some(clock_offset_ms),
        version: Some(description.version),
        tzdb: Some(description.tzdb),
        no_room: description.no_room.map(shortage),
        stopping: description.stopping,
        checkpoints: description.checkpoints.into_iter().map(checkpoint).collect(),
        damaged: description.scrub.damaged.into_iter().map(scrub::damaged_file).collect(),
        ..MemberStatus::default()
    }
}

fn shortage(Shortage { folder, free, needed }: Shortage) -> v1::Shortage {
    v1::Shortage { folder, free_bytes: free, needed_bytes: needed }
}

serve! {
    cluster_service_server::ClusterService {
        cluster get_cluster_status(GetClusterStatusRequest) -> GetClusterStatusResponse;
        cluster list_members(ListMembersRequest) -> ListMembersResponse;
        cluster add_member(AddMemberRequest) -> AddMemberResponse = member::add;
        cluster drain_member(DrainMemberRequest) -> DrainMemberResponse = member::drain;
        cluster remove_member(RemoveMemberRequest) -> RemoveMemberResponse = member::remove;
        cluster transfer_leader(TransferLeaderRequest) -> TransferLeaderResponse;
        cluster get_upgrade(GetUpgradeRequest) -> GetUpgradeResponse;
        cluster finish_upgrade(FinishUpgradeRequest, request_id) -> FinishUpgradeResponse;
        cluster get_restore(GetRestoreRequest) -> GetRestoreResponse = restore::get;
        cluster accept_restore(AcceptRestoreRequest) -> AcceptRestoreResponse = restore::accept;
        cluster get_authority(GetAuthorityRequest) -> GetAuthorityResponse = authority::get;
        cluster rotate_authority(RotateAuthorityRequest, request_id) -> RotateAuthorityResponse = authority::rotate;
        cluster abort_rotation(AbortRotationRequest, request_id) -> AbortRotationResponse = authority::abort;
        cluster scrub(ScrubRequest) -> ScrubResponse = scrub::scrub;
        cluster get_archive_loss(GetArchiveLossRequest) -> GetArchiveLossResponse = archive_loss::get;
        cluster accept_archive_loss(AcceptArchiveLossRequest) -> AcceptArchiveLossResponse = archive_loss::accept;
    }
}

impl Admin {
    async fn list_members(&self, _: ListMembersRequest, _: &Call) -> ApiResult<ListMembersResponse> {
        let members = self.listed_members();
        let index = self.context.replica.read(|ledger| ledger.head().applied);
        let freshness = Some(Freshness { index, stale: true, age: None });
        Ok(ListMembersResponse { members, freshness })
    }

    async fn transfer_leader(&self, request: TransferLeaderRequest, call: &Call) -> ApiResult<TransferLeaderResponse> {
        self.led(call).await?;
        let to = self.successor(&request.to).await?;
        self.write(Command::LeaderTransfer(to), call).await?;
        transfer::request_transfer(&self.context, to, call.deadline)
            .await
            .map_err(|error| error_texts::not_handed_over(&error))?;
        let leader = self.context.replica.members().get(&to).map(|member| member.name.clone()).unwrap_or_default();
        Ok(TransferLeaderResponse { leader })
    }
}

#[cfg(test)]
mod tests {
    use reveille_cluster::process::zones::Zones;
    use reveille_ledger::RunFile;
    use reveille_ledger::command::{
        Actor, ClaimRequest, Command, Entry, EpochStart, NodeUp, RunBlock, Trigger, VoterClock,
    };
    use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, PageId, ScheduleId, Time};
    use reveille_ledger::reply::CommandOutcome;

    use super::*;
    use crate::server::admin::lookup::tests::create;

    /// The status must stay small when many runs are blocked, because operators need it then.
    #[test]
    fn first_blocked_runs_are_listed_and_all_are_counted() {
        let (mut ledger, now) = (Ledger::new(), Time(1_772_409_600_000));
        let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let mut play = |command| {
            let index = ledger.head().applied + 1;
            ledger.apply(index, &Entry { epoch: Epoch(1), now, actor: Actor::System, command }).reply.outcome
        };
        let readings = vec![VoterClock { node: leader.node, wall: now }];
        play(Command::EpochStart(EpochStart::new(leader, 1, readings)));
        let body = create("0 9 * * *", &Zones::bundled("x"), now);
        assert_eq!(play(Command::ScheduleCreate(Box::new(body))), CommandOutcome::Schedule(ScheduleId::new(2, 0)));
        let mut runs = Vec::new();
        for number in 0..BLOCKED_MAX + 7 {
            let trigger = Trigger::new(ScheduleId::new(2, 0), format!("id-{number}"));
            match play(Command::Trigger(trigger)) {
                CommandOutcome::Run { run, .. } => runs.push(run),
                other => panic!("{other:?}"),
            }
        }
        play(Command::RunBlock(
            runs[2..].iter().map(|run| RunBlock { run: *run, file: Some(RunFile::Part(0)) }).collect(),
        ));
        let (blocked_runs, count) = blocked(&ledger);
        assert_eq!((blocked_runs.len(), count as usize), (BLOCKED_MAX, BLOCKED_MAX + 5));
        assert_eq!(blocked_runs[0].run, runs[2].to_string());
    }

    /// Each of these nodes crashes once, in this order, a second apart and with a claim.
    fn after_crashes(of: &[u64]) -> (Ledger, Time) {
        let (mut ledger, mut now) = (Ledger::new(), Time(1_772_409_600_000));
        let mut play = |now: Time, command| {
            let index = ledger.head().applied + 1;
            ledger.apply(index, &Entry { epoch: Epoch(1), now, actor: Actor::System, command }).reply.outcome
        };
        let owner = |node, incarnation| ClaimOwner { node: NodeId(node), incarnation: Incarnation(incarnation) };
        let up = |owner: ClaimOwner| {
            let (name, process_nonce) = (format!("n{}", owner.node.0), owner.incarnation.0);
            Command::NodeUp(NodeUp { owner, name, level: 1, process_nonce })
        };
        let readings = vec![VoterClock { node: NodeId(1), wall: now }];
        play(now, Command::EpochStart(EpochStart::new(owner(1, 1), 1, readings)));
        let mut incarnations = BTreeMap::from([(1, 1), (2, 1), (3, 1)]);
        for node in [1, 2, 3] {
            assert_eq!(play(now, up(owner(node, 1))), CommandOutcome::Done);
        }
        let body = create("0 9 * * *", &Zones::bundled("x"), now);
        let created = play(now, Command::ScheduleCreate(Box::new(body)));
        let CommandOutcome::Schedule(schedule) = created else { panic!("{created:?}") };
        for (number, node) in of.iter().enumerate() {
            now = now.plus_ms(1_000);
            let triggered = play(now, Command::Trigger(Trigger::new(schedule, format!("id-{number}"))));
            let CommandOutcome::Run { run, .. } = triggered else { panic!("{triggered:?}") };
            let incarnation = incarnations.get_mut(node).expect("a node");
            let (former, next) = (owner(*node, *incarnation), owner(*node, *incarnation + 1));
            let slice = [0].into_iter().collect();
            play(now, Command::Claim(vec![ClaimRequest { chunk: PageId(run).chunk(0), slice, owner: former }]));
            assert_eq!(play(now, up(next)), CommandOutcome::Done);
            *incarnation += 1;
        }
        (ledger, now)
    }

    /// The dispatcher lets the node that crashed least recently send an eighth while all are in back-off.
    #[test]
    fn least_recent_crash_keeps_an_eighth_while_all_are_in_back_off() {
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        let eighths = |ledger: &Ledger, answering: &[u64], several| {
            let backoffs = crash_backoffs(ledger, &nodes(answering), several);
            backoffs.into_iter().map(|(id, (_, part))| (id.0, part.eighths())).collect::<Vec<_>>()
        };
        let (ledger, _) = after_crashes(&[2, 2, 2, 3, 3, 3]);
        assert_eq!(eighths(&ledger, &[1, 2, 3], true), [(2, 0), (3, 0)], "node 1 sends");
        let (ledger, now) = after_crashes(&[2, 2, 2, 3, 3, 3, 1, 1, 1]);
        assert_eq!(eighths(&ledger, &[1, 2, 3], true), [(1, 0), (2, 1), (3, 0)]);
        assert_eq!(eighths(&ledger, &[1, 3], true), [(1, 0), (2, 0), (3, 1)], "node 2 does not answer");
        assert_eq!(eighths(&ledger, &[1], false), [(1, 0), (2, 0), (3, 0)], "a node alone has no other one");
        let (until, _) = crash_backoffs(&ledger, &nodes(&[1, 2, 3]), true)[&NodeId(2)];
        assert_eq!(until, now.plus_ms(600_000 - 6_000), "ten minutes after its last crash");
    }
}
