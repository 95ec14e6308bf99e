//! Output of `cluster …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::fields::{Shown, view};
use super::layout::{Cell, Tone, card, table};
use super::pool::PoolView;
use super::restore::RestoredView;
use super::{Row, View, some};
use crate::cli::clocks::{self, ClockComparison};
use crate::cli::instant::text;
use crate::cli::word::word;
use crate::format;

/// Role of a member that did not answer.
const UNREACHABLE: &str = "unreachable";

/// A data folder in which a cluster was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundedView {
    /// Id of the cluster.
    pub cluster: String,
    /// Name of its first node.
    pub node: String,
    /// Peer address of the node.
    pub address: String,
    /// Data folder of the node.
    pub folder: String,
    /// Context of this user by which the cluster is reached; null if clients need none.
    pub context: Option<String>,
}

impl View for FoundedView {
    fn name(&self) -> String {
        self.cluster.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let FoundedView { cluster, node, address, folder, context } = self;
        let context = context.as_ref().map(|name| format!("; context {name} reaches it")).unwrap_or_default();
        format!("cluster {cluster} of node {node} at {address}; keys and certificates are in {folder}/tls{context}")
    }
}

view! {
    /// A join token.
    pub struct InvitationView of v1::AddMemberResponse as invitation {
        /// The token: a secret.
        pub token: String,
        /// Id of the new node.
        pub id: String,
        /// When the token ends.
        pub expire_time: Option<String>,
    }
}

impl View for InvitationView {
    fn name(&self) -> String {
        self.token.clone()
    }

    fn text(&self, _paint: bool) -> String {
        self.token.clone()
    }
}

view! {
    /// A node's entry in the membership.
    pub struct MemberView of v1::Member as member {
        /// Random id, created once with the data folder.
        pub id: String,
        /// Name of the node.
        pub name: String,
        /// Address of the node's peer listener.
        pub address: String,
        /// True for a voter, false for a learner.
        pub votes: bool,
        /// True if it gets no more emails to send.
        pub drains: bool,
    }
}

view! {
    /// The state of the cluster.
    pub struct StatusView of v1::GetClusterStatusResponse as status {
        cluster: Option<String>,
        incarnation: u64,
        group: u32,
        leader: Option<String>,
        /// Time since the answering node last heard a leader; null while it hears one.
        leaderless_ms: Option<i64> = status.leaderless.shown(),
        epoch: Option<u64>,
        term: u64,
        commit_index: u64,
        clocks_agree: bool,
        /// Distance of the test clock from real time; null without a test clock.
        test_clock_offset_ms: Option<i64> = status.test_clock_offset.shown(),
        answered_by: String,
        members: Vec<MemberStatusView>,
        backlog: Vec<BacklogView> = status.backlogs.into_iter().map(BacklogView::from).collect(),
        /// The first blocked runs.
        blocked: Vec<BlockedView>,
        /// Number of all blocked runs.
        blocked_count: u32,
        /// Pools whose cap for today is used up while emails wait.
        pools_used_up: Vec<PoolView>,
        /// The last restore from a backup; null if there was none.
        restore: Option<RestoredView>,
        /// Hash of the last audit record, as the answering node has it.
        audit_head: String,
    }
}

view! {
    /// Late recipients of a pool that are not sent yet.
    pub struct BacklogView of v1::Backlog as backlog {
        pool: String,
        recipients: u64,
        oldest: Option<String>,
        /// Null without a limit.
        bound_per_second: Option<f64>,
        /// Null if the backlog does not shrink, or was not measured.
        shrinks_per_second: Option<f64>,
        eta_ms: Option<i64> = backlog.eta.shown(),
        /// True if the backlog was observed long enough to show if it shrinks.
        measured: bool,
        /// Instants that wait for other runs of their schedules.
        waiting: u64,
        /// True if the counting stopped early: `recipients` and `waiting` are lower bounds.
        lower_bound: bool,
    }
}

view! {
    /// A run with recipients that wait for a part of the audience that no live node has.
    pub struct BlockedView of v1::BlockedRun as blocked {
        run: String,
        tenant: String,
        schedule: String,
        why: String,
    }
}

/// Returns how many blocked runs a status does not list, or `None` if it lists all.
pub fn more_blocked(all: u32, shown: usize) -> Option<String> {
    let more = u64::from(all).saturating_sub(shown as u64);
    (more > 0).then(|| format!("{} blocked beside these", format::counted(more, "run")))
}

impl BlockedView {
    /// Returns in words which run is blocked, why, and what to do.
    pub fn sentence(&self) -> String {
        format!("run {} of {} is blocked: {}", self.run, self.schedule, self.why)
    }
}

/// The state of a member; fields are null if it did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MemberStatusView {
    id: String,
    name: String,
    address: String,
    #[serde(skip)]
    votes: bool,
    /// True if it gets no more emails to send.
    drains: bool,
    role: String,
    incarnation: Option<u64>,
    applied_index: Option<u64>,
    state_hash: Option<String>,
    lag: Option<u64>,
    clock_offset_ms: Option<i64>,
    version: Option<String>,
    tzdb: Option<String>,
    /// Why the node accepts no parts of audiences; null if it does.
    no_room: Option<String>,
    /// The node crashed several times within ten minutes, and gets few or no claims before this time. Null otherwise.
    crash_backoff_until: Option<String>,
    /// With `crash_backoff_until`: the part of its usual claims that it gets until then, in eighths. Null otherwise.
    crash_backoff_eighths: Option<u32>,
    /// True if the node is giving back its claims and then ends.
    stopping: bool,
}

/// The present leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderView {
    /// Name of the leader.
    pub leader: String,
}

/// Says how much a node in crash back-off sends, by the part of its usual claims that it gets.
pub fn sent_in_backoff(eighths: u32) -> &'static str {
    if eighths == 0 { "nothing" } else { "an eighth of the usual" }
}

const CLOCKS_DISAGREE: &str = "the clocks disagree: nothing fires until two voters agree within 2s; set them";
const SOLE_CLOCK_MOVED: &str = "the clock of the only node was moved by more than an hour: nothing fires; set it right, \
    or, if it is right now, start the node once with --accept-clock";

impl StatusView {
    /// Returns the problems that need an operator, each with the next step.
    pub fn problems(&self) -> Vec<String> {
        let voters = self.members.iter().filter(|member| member.votes);
        let (lost, well): (Vec<_>, Vec<_>) = voters.partition(|member| member.role == UNREACHABLE);
        let mut problems = Vec::new();
        if !lost.is_empty() && well.len() <= lost.len() {
            let names: Vec<&str> = lost.iter().map(|member| member.name.as_str()).collect();
            problems.push(format!(
                "no quorum: {} cannot be reached; nothing is written or sent until a majority of the voters runs",
                names.join(", ")
            ));
        }
        if let (Some(silence), true) = (self.leaderless_ms, problems.is_empty()) {
            let silence = format::duration(silence);
            problems.push(format!("no leader was heard for {silence}, though a majority of the voters answers"));
        }
        if self.epoch.is_some() && !self.clocks_agree {
            let alone = self.members.iter().filter(|member| member.votes).count() == 1;
            problems.push(if alone { SOLE_CLOCK_MOVED } else { CLOCKS_DISAGREE }.to_owned());
        }
        match self.clocks() {
            ClockComparison::Agree => {}
            ClockComparison::Off(off) => problems.extend(off.into_iter().map(|(name, offset)| {
                let way = if offset < 0 { "behind" } else { "ahead of" };
                format!("the clock of {name} is {} {way} the others; set it", format::duration(offset))
            })),
            ClockComparison::Apart(behind, ahead, apart) => problems.push(format!(
                "the clocks of {behind} and {ahead} are {} apart; find out which is wrong, and set it",
                format::duration(apart)
            )),
        }
        problems.extend(self.members.iter().filter_map(|member| {
            let no_room = member.no_room.as_ref()?;
            Some(format!("{} is short of space: {no_room}; free space there", member.name))
        }));
        problems.extend(self.members.iter().filter_map(|member| {
            let until = member.crash_backoff_until.as_ref()?;
            let sent = sent_in_backoff(member.crash_backoff_eighths.unwrap_or_default());
            Some(format!("{} crashed three times within ten minutes and sends {sent} until {until}", member.name))
        }));
        problems
    }

    fn clocks(&self) -> ClockComparison<'_> {
        clocks::compare(self.members.iter().filter_map(|member| Some((member.name.as_str(), member.clock_offset_ms?))))
    }
}

impl BacklogView {
    /// Returns the backlog in words: number, age, speed, remaining time.
    pub fn sentence(&self) -> String {
        let least = if self.lower_bound { "at least " } else { "" };
        let recipients = format::counted(self.recipients, "recipient");
        let waiting = match self.waiting {
            0 => String::new(),
            1 => format!(" ({least}1 of its instants waits its turn)"),
            waiting => format!(" ({least}{} of its instants wait their turn)", format::count(waiting)),
        };
        let oldest = self.oldest.as_ref().map(|oldest| format!(", the oldest due {oldest}")).unwrap_or_default();
        let goes = match (self.shrinks_per_second, self.eta_ms) {
            (Some(rate), Some(eta)) => format!("; {rate:.1} a second, over in {}", format::duration(eta)),
            _ if self.measured => "; it does not shrink".to_owned(),
            _ => String::new(),
        };
        let bound = self.bound_per_second.map(|bound| format!(" (at most {bound} a second)")).unwrap_or_default();
        format!("{least}{recipients} late in pool {}{waiting}{oldest}{goes}{bound}", self.pool)
    }
}

impl From<v1::MemberStatus> for MemberStatusView {
    fn from(status: v1::MemberStatus) -> MemberStatusView {
        let role = word("MEMBER_ROLE_", status.role().as_str_name());
        let member = status.member.unwrap_or_default();
        MemberStatusView {
            id: member.id,
            name: member.name,
            address: member.address,
            votes: member.votes,
            drains: member.drains,
            role,
            incarnation: status.incarnation,
            applied_index: status.applied_index,
            state_hash: status.state_hash,
            lag: status.lag,
            clock_offset_ms: status.clock_offset_ms,
            version: status.version,
            tzdb: status.tzdb,
            no_room: some(status.no_room),
            crash_backoff_eighths: status.crash_backoff_until.as_ref().map(|_| status.crash_backoff_eighths),
            crash_backoff_until: text(status.crash_backoff_until.as_ref()),
            stopping: status.stopping,
        }
    }
}

impl View for MemberView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        table(MemberView::COLUMNS, vec![self.cells()], paint)
    }
}

impl Row for MemberView {
    const NOUN: &'static str = "members";
    const COLUMNS: &'static [&'static str] = &["NAME", "ID", "ADDRESS", "VOTES"];

    fn cells(&self) -> Vec<Cell> {
        let votes = match (self.votes, self.drains) {
            (true, false) => "yes".into(),
            (true, true) => Cell::toned("yes, drains", Tone::Notable),
            (false, _) => Cell::toned("learns", Tone::Dim),
        };
        vec![self.name.as_str().into(), self.id.as_str().into(), self.address.as_str().into(), votes]
    }
}

impl View for StatusView {
    fn name(&self) -> String {
        self.cluster.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let no_leader = self
            .leaderless_ms
            .map_or_else(|| "none known".to_owned(), |silence| format!("none heard for {}", format::duration(silence)));
        let leader = self.leader.as_deref().map_or_else(|| Cell::toned(no_leader, Tone::Bad), Cell::from);
        let clocks = match (self.epoch, self.clocks_agree) {
            // The clocks have not been compared yet.
            (None, _) => Cell::or_dash(None),
            (_, true) => Cell::toned("agree", Tone::Good),
            (_, false) => Cell::toned("disagree: nothing fires", Tone::Bad),
        };
        let epoch = self.epoch.map(|epoch| epoch.to_string());
        let mut pairs = vec![
            ("cluster", Cell::or_dash(self.cluster.as_deref())),
            ("leader", leader),
            ("epoch", Cell::or_dash(epoch.as_deref())),
            ("term", self.term.to_string().into()),
            ("committed", self.commit_index.to_string().into()),
            ("clocks", clocks),
        ];
        if let Some(offset) = self.test_clock_offset_ms {
            pairs.push(("test clock", Cell::toned(format!("{} ahead", format::duration(offset)), Tone::Notable)));
        }
        let columns = ["NAME", "ROLE", "ADDRESS", "LIFE", "APPLIED", "LAG", "CLOCK", "STATE", "VERSION", "TZDB"];
        let off = match self.clocks() {
            ClockComparison::Agree => Vec::new(),
            ClockComparison::Off(off) => off.into_iter().map(|(name, _)| name).collect(),
            ClockComparison::Apart(behind, ahead, _) => vec![behind, ahead],
        };
        let cells = self.members.iter().map(|member| member.cells(off.contains(&member.name.as_str())));
        let members = table(&columns, cells.collect(), paint);
        let late: String = self.backlog.iter().map(|late| format!("\n\n{}", late.sentence())).collect();
        let mut blocked: String = self.blocked.iter().map(|run| format!("\n\n{}", run.sentence())).collect();
        blocked.extend(more_blocked(self.blocked_count, self.blocked.len()).map(|more| format!("\n\n{more}")));
        let used_up: String = self.pools_used_up.iter().map(|pool| format!("\n\n{}", pool.sentence())).collect();
        format!("{}\n\n{members}{late}{used_up}{blocked}", card(pairs, paint))
    }
}

impl MemberStatusView {
    fn cells(&self, clock_is_off: bool) -> Vec<Cell> {
        let tone = match self.role.as_str() {
            "leader" => Tone::Good,
            UNREACHABLE => Tone::Bad,
            "candidate" | "isolated_leader" => Tone::Notable,
            _ => Tone::Plain,
        };
        let role = self.role.replace('_', " ");
        let role = if self.drains { format!("{role}, drains") } else { role };
        let role = if self.stopping { format!("{role}, stopping") } else { role };
        let number = |number: Option<u64>| Cell::or_dash(number.map(|number| number.to_string()).as_deref());
        let clock = self.clock_offset_ms.map_or_else(
            || Cell::or_dash(None),
            |offset| {
                let tone = if clock_is_off { Tone::Bad } else { Tone::Plain };
                Cell::toned(format!("{}{}", if offset < 0 { "-" } else { "+" }, format::duration(offset)), tone)
            },
        );
        let hash = self.state_hash.as_deref().map(|hash| hash.chars().take(8).collect::<String>());
        vec![
            self.name.as_str().into(),
            Cell::toned(role, tone),
            self.address.as_str().into(),
            number(self.incarnation),
            number(self.applied_index),
            number(self.lag),
            clock,
            Cell::or_dash(hash.as_deref()),
            Cell::or_dash(self.version.as_deref()),
            Cell::or_dash(self.tzdb.as_deref()),
        ]
    }
}

impl View for LeaderView {
    fn name(&self) -> String {
        self.leader.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(vec![("leader", self.leader.as_str().into())], paint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, role: v1::MemberRole, clock_offset_ms: i64) -> v1::MemberStatus {
        let member = v1::Member { name: name.to_owned(), votes: true, ..v1::Member::default() };
        v1::MemberStatus {
            member: Some(member),
            role: role.into(),
            clock_offset_ms: Some(clock_offset_ms),
            ..v1::MemberStatus::default()
        }
    }

    #[test]
    fn status_names_problems_that_need_an_operator() {
        let (leads, lost) = (v1::MemberRole::Leader, v1::MemberRole::Unreachable);
        let problems = |members| {
            let (answered_by, epoch) = ("a".to_owned(), 2);
            let status = v1::GetClusterStatusResponse {
                members,
                answered_by,
                epoch,
                clocks_agree: true,
                ..v1::GetClusterStatusResponse::default()
            };
            StatusView::from(status).problems()
        };
        let follows = v1::MemberRole::Follower;
        assert!(problems(vec![member("a", leads, 0), member("b", follows, 9), member("c", lost, 0)]).is_empty());
        let two = problems(vec![member("a", leads, 0), member("b", lost, 0), member("c", lost, 0)]);
        assert!(matches!(two.as_slice(), [one] if one.starts_with("no quorum: b, c cannot")), "{two:?}");
        let (b, c) = (member("b", follows, 90_000_000), member("c", follows, 90_000_200));
        let off = problems(vec![member("a", leads, 0), b.clone(), c]);
        assert_eq!(off, ["the clock of a is 1d 1h behind the others; set it"], "it answered, and is the odd one");
        let off = problems(vec![member("a", leads, 0), b, member("c", follows, -300)]);
        assert_eq!(off, ["the clock of b is 1d 1h ahead of the others; set it"]);
        let leaderless = v1::GetClusterStatusResponse {
            members: vec![member("a", follows, 0), member("b", follows, 0), member("c", lost, 0)],
            leaderless: Some(prost_types::Duration { seconds: 12, nanos: 0 }),
            ..v1::GetClusterStatusResponse::default()
        };
        let leaderless = StatusView::from(leaderless);
        assert_eq!(leaderless.problems(), ["no leader was heard for 12s, though a majority of the voters answers"]);
        assert!(leaderless.text(false).contains("none heard for 12s"));
        let until = Some(prost_types::Timestamp::default());
        let rests = v1::MemberStatus { crash_backoff_until: until, ..member("b", follows, 0) };
        let slow = v1::MemberStatus { crash_backoff_eighths: 1, ..rests.clone() };
        for (node, sent) in [(rests, "nothing"), (slow, "an eighth of the usual")] {
            let expected =
                format!("b crashed three times within ten minutes and sends {sent} until 1970-01-01T00:00:00Z");
            assert_eq!(problems(vec![member("a", leads, 0), node]), [expected]);
        }
        let apart = problems(vec![member("a", leads, 0), member("b", follows, 5_000)]);
        assert_eq!(apart, ["the clocks of a and b are 5s apart; find out which is wrong, and set it"]);
    }
}
