//! What `cluster …` prints.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::sheet::{Cell, Tone, card, table};
use super::{Row, View, some};
use crate::cli::human;
use crate::cli::word::word;

/// A cluster that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MadeView {
    /// Its id; none when it was only checked.
    pub cluster: Option<String>,
    /// Its founders.
    pub members: Vec<MemberView>,
}

/// What the membership says of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// Drawn once with its data folder.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its peer listener.
    pub address: String,
    /// Does it vote, or does it learn?
    pub votes: bool,
}

/// How the cluster stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusView {
    cluster: Option<String>,
    incarnation: u64,
    group: u32,
    leader: Option<String>,
    epoch: Option<u64>,
    term: u64,
    commit_index: u64,
    clocks_agree: bool,
    answered_by: String,
    members: Vec<MemberStatusView>,
}

/// How a member stands; null where it did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MemberStatusView {
    id: String,
    name: String,
    address: String,
    role: String,
    incarnation: Option<u64>,
    applied_index: Option<u64>,
    state_hash: Option<String>,
    lag: Option<u64>,
    clock_offset_ms: Option<i64>,
    version: Option<String>,
    tzdb: Option<String>,
}

/// Who leads now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderView {
    /// Its name.
    pub leader: String,
}

impl From<v1::InitClusterResponse> for MadeView {
    fn from(made: v1::InitClusterResponse) -> MadeView {
        MadeView { cluster: some(made.cluster), members: made.members.into_iter().map(MemberView::from).collect() }
    }
}

impl From<v1::Member> for MemberView {
    fn from(member: v1::Member) -> MemberView {
        MemberView { id: member.id, name: member.name, address: member.address, votes: member.votes }
    }
}

impl From<v1::GetClusterStatusResponse> for StatusView {
    fn from(status: v1::GetClusterStatusResponse) -> StatusView {
        StatusView {
            cluster: some(status.cluster),
            incarnation: status.incarnation,
            group: status.group,
            leader: some(status.leader),
            epoch: (status.epoch > 0).then_some(status.epoch),
            term: status.term,
            commit_index: status.commit_index,
            clocks_agree: status.clocks_agree,
            answered_by: status.answered_by,
            members: status.members.into_iter().map(MemberStatusView::from).collect(),
        }
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
            role,
            incarnation: status.incarnation,
            applied_index: status.applied_index,
            state_hash: status.state_hash,
            lag: status.lag,
            clock_offset_ms: status.clock_offset_ms,
            version: status.version,
            tzdb: status.tzdb,
        }
    }
}

impl View for MadeView {
    fn name(&self) -> String {
        self.cluster.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let members = table(MemberView::COLUMNS, self.members.iter().map(Row::cells).collect(), paint);
        match &self.cluster {
            Some(cluster) => format!("{}\n\n{members}", card(vec![("cluster", cluster.as_str().into())], paint)),
            None => members,
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
        let votes = if self.votes { "yes".into() } else { Cell::toned("learns", Tone::Dim) };
        vec![self.name.as_str().into(), self.id.as_str().into(), self.address.as_str().into(), votes]
    }
}

impl View for StatusView {
    fn name(&self) -> String {
        self.cluster.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let leader = self.leader.as_deref().map_or_else(|| Cell::toned("none known", Tone::Bad), Cell::from);
        let clocks = match (self.epoch, self.clocks_agree) {
            // Nobody has compared them yet.
            (None, _) => Cell::or_dash(None),
            (_, true) => Cell::toned("agree", Tone::Good),
            (_, false) => Cell::toned("disagree: nothing fires", Tone::Bad),
        };
        let epoch = self.epoch.map(|epoch| epoch.to_string());
        let pairs = vec![
            ("cluster", Cell::or_dash(self.cluster.as_deref())),
            ("leader", leader),
            ("epoch", Cell::or_dash(epoch.as_deref())),
            ("term", self.term.to_string().into()),
            ("committed", self.commit_index.to_string().into()),
            ("clocks", clocks),
        ];
        let columns = ["NAME", "ROLE", "ADDRESS", "LIFE", "APPLIED", "LAG", "CLOCK", "STATE", "VERSION", "TZDB"];
        let members = table(&columns, self.members.iter().map(MemberStatusView::cells).collect(), paint);
        format!("{}\n\n{members}", card(pairs, paint))
    }
}

impl MemberStatusView {
    fn cells(&self) -> Vec<Cell> {
        let tone = match self.role.as_str() {
            "leader" => Tone::Good,
            "unreachable" => Tone::Bad,
            "candidate" => Tone::Notable,
            _ => Tone::Plain,
        };
        let number = |number: Option<u64>| Cell::or_dash(number.map(|number| number.to_string()).as_deref());
        let clock = self
            .clock_offset_ms
            .map(|offset| format!("{}{}", if offset < 0 { "-" } else { "+" }, human::duration(offset)));
        let hash = self.state_hash.as_deref().map(|hash| hash.chars().take(8).collect::<String>());
        vec![
            self.name.as_str().into(),
            Cell::toned(self.role.as_str(), tone),
            self.address.as_str().into(),
            number(self.incarnation),
            number(self.applied_index),
            number(self.lag),
            Cell::or_dash(clock.as_deref()),
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
