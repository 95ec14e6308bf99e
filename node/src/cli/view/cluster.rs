//! Output of `cluster …`.

use reveille_proto::admin::v1::{
    AddMemberResponse, Backlog, BlockedRun, GetClusterStatusResponse, LostFiles, Member, MemberRole, MemberStatus,
};

use super::{Cell, Tone, View, card, duration_ms, format, pool, table, text, word};
use crate::cli::clocks::{self, ClockComparison};
use crate::cli::wording::{missing_file, shortage};

impl View for AddMemberResponse {
    const NAME: &'static str = "token";

    fn text(&self, _paint: bool) -> String {
        self.token.clone()
    }
}

/// Returns how many blocked runs a status does not list, or `None` if it lists all.
pub fn more_blocked(all: u32, shown: usize) -> Option<String> {
    let more = u64::from(all).saturating_sub(shown as u64);
    (more > 0).then(|| format!("{} blocked beside these", format::counted(more, "run")))
}

/// Returns in words which run is blocked, why, and what to do.
pub fn blocked_sentence(blocked: &BlockedRun) -> String {
    let missing = blocked.missing.as_ref().map(missing_file).unwrap_or_default();
    format!("run {} of {} is blocked: {missing}", blocked.run, blocked.schedule)
}

/// Maximum number of names in a sentence about lost files.
const LOST_USERS_MAX: usize = 5;

/// Says how many files every voter lacks, and names what needs them.
pub fn lost_sentence(lost: &LostFiles) -> String {
    let LostFiles { files, audiences, schedules, runs, ended_runs } = lost;
    let kinds = [("audience", audiences), ("schedule", schedules), ("run", runs)].into_iter();
    let users = kinds.flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")));
    let ended = (*ended_runs > 0).then(|| format::counted((*ended_runs).into(), "ended run"));
    let mut users: Vec<String> = users.chain(ended).collect();
    let more = users.split_off(users.len().min(LOST_USERS_MAX)).len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("every voter lacks {} of {}{more}", format::counted((*files).into(), "file"), users.join(", "))
}

/// Says how much a node in crash back-off sends, by the part of its usual claims that it gets.
pub fn sent_in_backoff(eighths: u32) -> &'static str {
    if eighths == 0 { "nothing" } else { "an eighth of the usual" }
}

const CLOCKS_DISAGREE: &str = "the clocks disagree: nothing fires until two voters agree within 2s; set them";
const SOLE_CLOCK_MOVED: &str = "the clock of the only node was moved by more than an hour: nothing fires; set it right, \
    or, if it is right now, start the node once with --accept-clock";

/// Returns which voters cannot be reached, if those that can are no majority.
pub fn no_quorum(members: &[MemberStatus]) -> Option<String> {
    let voters = members.iter().filter(|member| votes(member));
    let (lost, well): (Vec<_>, Vec<_>) = voters.partition(|member| member.role() == MemberRole::Unreachable);
    let names: Vec<&str> = lost.iter().map(|member| name(member)).collect();
    let is_lost = !lost.is_empty() && well.len() <= lost.len();
    is_lost.then(|| format!("no quorum: {} cannot be reached", names.join(", ")))
}

/// Returns which clocks are wrong, each with what to do.
pub fn wrong_clocks(members: &[MemberStatus]) -> Vec<(String, &'static str)> {
    match clocks(members) {
        ClockComparison::Agree => Vec::new(),
        ClockComparison::Off(off) => {
            let said = |(name, offset)| {
                let way = if offset < 0 { "behind" } else { "ahead of" };
                (format!("the clock of {name} is {} {way} the others", format::duration(offset)), "set it")
            };
            off.into_iter().map(said).collect()
        }
        ClockComparison::Apart(behind, ahead, apart) => {
            let apart = format!("the clocks of {behind} and {ahead} are {} apart", format::duration(apart));
            vec![(apart, "find out which is wrong, and set it")]
        }
    }
}

/// Returns the problems that need an operator, each with the next step.
pub fn problems(status: &GetClusterStatusResponse) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(what) = no_quorum(&status.members) {
        problems.push(format!("{what}; nothing is written or sent until a majority of the voters runs"));
    }
    if let (Some(silence), true) = (&status.leaderless, problems.is_empty()) {
        let silence = format::duration(duration_ms(silence));
        problems.push(format!("no leader was heard for {silence}, though a majority of the voters answers"));
    }
    if status.epoch > 0 && !status.clocks_agree {
        let alone = status.members.iter().filter(|member| votes(member)).count() == 1;
        problems.push(if alone { SOLE_CLOCK_MOVED } else { CLOCKS_DISAGREE }.to_owned());
    }
    problems.extend(wrong_clocks(&status.members).into_iter().map(|(what, next)| format!("{what}; {next}")));
    let short = status.members.iter().filter_map(|member| Some((member, member.no_room.as_ref()?)));
    problems.extend(short.map(|(member, no_room)| {
        format!("{} is short of space: {}; free space there", name(member), shortage(no_room))
    }));
    problems.extend(status.members.iter().filter_map(|member| {
        let until = text(member.crash_backoff_end_time.as_ref())?;
        let sent = sent_in_backoff(member.crash_backoff_eighths);
        Some(format!("{} crashed three times within ten minutes and sends {sent} until {until}", name(member)))
    }));
    problems
}

fn clocks(members: &[MemberStatus]) -> ClockComparison<'_> {
    clocks::compare(members.iter().filter_map(|member| Some((name(member), member.clock_offset_ms?))))
}

/// Returns the name of a member.
pub fn name(member: &MemberStatus) -> &str {
    member.member.as_ref().map_or("", |member| member.name.as_str())
}

/// True if the member votes.
pub fn votes(member: &MemberStatus) -> bool {
    member.member.as_ref().is_some_and(|member| member.votes)
}

/// Returns a backlog in words: number, age, speed, remaining time.
pub fn backlog_sentence(late: &Backlog) -> String {
    let least = if late.lower_bound { "at least " } else { "" };
    let recipients = format::counted(late.recipients, "recipient");
    let waiting = match late.waiting {
        0 => String::new(),
        1 => format!(" ({least}1 of its instants waits its turn)"),
        waiting => format!(" ({least}{} of its instants wait their turn)", format::count(waiting)),
    };
    let oldest = text(late.oldest_time.as_ref()).map(|oldest| format!(", the oldest due {oldest}")).unwrap_or_default();
    let goes = match &late.eta {
        Some(eta) if late.shrinks_per_second > 0.0 => {
            format!("; {:.1} a second, over in {}", late.shrinks_per_second, format::duration(duration_ms(eta)))
        }
        _ if late.measured => "; it does not shrink".to_owned(),
        _ => String::new(),
    };
    let bound = match late.bound_per_second {
        0.0 => String::new(),
        bound => format!(" (at most {bound} a second)"),
    };
    format!("{least}{recipients} late in pool {}{waiting}{oldest}{goes}{bound}", late.pool)
}

impl View for Member {
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

    fn text(&self, paint: bool) -> String {
        table(Member::COLUMNS, vec![self.cells()], paint)
    }
}

impl View for GetClusterStatusResponse {
    const NAME: &'static str = "cluster";

    fn text(&self, paint: bool) -> String {
        let no_leader = self.leaderless.as_ref().map_or_else(
            || "none known".to_owned(),
            |silence| format!("none heard for {}", format::duration(duration_ms(silence))),
        );
        let leader =
            if self.leader.is_empty() { Cell::toned(no_leader, Tone::Bad) } else { self.leader.as_str().into() };
        let clocks_cell = match (self.epoch, self.clocks_agree) {
            // The clocks have not been compared yet.
            (0, _) => Cell::or_dash(None),
            (_, true) => Cell::toned("agree", Tone::Good),
            (_, false) => Cell::toned("disagree: nothing fires", Tone::Bad),
        };
        let mut pairs = vec![
            ("cluster", Cell::or_dash(self.cluster.as_str())),
            ("leader", leader),
            ("epoch", Cell::number((self.epoch > 0).then_some(self.epoch))),
            ("term", self.term.to_string().into()),
            ("committed", self.commit_index.to_string().into()),
            ("clocks", clocks_cell),
        ];
        if let Some(offset) = &self.test_clock_offset {
            let ahead = format!("{} ahead", format::duration(duration_ms(offset)));
            pairs.push(("test clock", Cell::toned(ahead, Tone::Notable)));
        }
        let columns = ["NAME", "ROLE", "ADDRESS", "INCARNATION", "APPLIED", "LAG", "CLOCK", "STATE", "VERSION", "TZDB"];
        let off = match clocks(&self.members) {
            ClockComparison::Agree => Vec::new(),
            ClockComparison::Off(off) => off.into_iter().map(|(name, _)| name).collect(),
            ClockComparison::Apart(behind, ahead, _) => vec![behind, ahead],
        };
        let rows = self.members.iter().map(|member| cells(member, off.contains(&name(member)))).collect();
        let more = more_blocked(self.blocked_count, self.blocked.len());
        let below = self.backlogs.iter().map(backlog_sentence);
        let below = below.chain(self.pools_used_up.iter().map(pool::sentence));
        let below: String = below
            .chain(self.blocked.iter().map(blocked_sentence))
            .chain(more)
            .chain(self.lost_files.as_ref().map(lost_sentence))
            .map(|sentence| format!("\n\n{sentence}"))
            .collect();
        format!("{}\n\n{}{below}", card(pairs, paint), table(&columns, rows, paint))
    }
}

/// Returns the row of a member in the table of a status.
fn cells(status: &MemberStatus, clock_is_off: bool) -> Vec<Cell> {
    let tone = match status.role() {
        MemberRole::Leader => Tone::Good,
        MemberRole::Unreachable => Tone::Bad,
        MemberRole::Candidate | MemberRole::IsolatedLeader => Tone::Notable,
        MemberRole::Follower | MemberRole::Learner | MemberRole::Unspecified => Tone::Plain,
    };
    let member = status.member.clone().unwrap_or_default();
    let mut role = word(status.role().as_str_name()).replace('_', " ");
    role.push_str(if member.drains { ", drains" } else { "" });
    role.push_str(if status.stopping { ", stopping" } else { "" });
    let clock = status.clock_offset_ms.map_or_else(
        || Cell::or_dash(None),
        |offset| {
            let tone = if clock_is_off { Tone::Bad } else { Tone::Plain };
            Cell::toned(format!("{}{}", if offset < 0 { "-" } else { "+" }, format::duration(offset)), tone)
        },
    );
    let hash = status.state_hash.as_deref().map(|hash| hash.chars().take(8).collect::<String>());
    vec![
        member.name.into(),
        Cell::toned(role, tone),
        member.address.into(),
        Cell::number(status.incarnation),
        Cell::number(status.applied_index),
        Cell::number(status.lag),
        clock,
        Cell::or_dash(hash.as_deref()),
        Cell::or_dash(status.version.as_deref()),
        Cell::or_dash(status.tzdb.as_deref()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_proto::admin::v1;

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
        let found = |members| {
            let (answered_by, epoch) = ("a".to_owned(), 2);
            let status = v1::GetClusterStatusResponse {
                members,
                answered_by,
                epoch,
                clocks_agree: true,
                ..v1::GetClusterStatusResponse::default()
            };
            problems(&status)
        };
        let follows = v1::MemberRole::Follower;
        assert!(found(vec![member("a", leads, 0), member("b", follows, 9), member("c", lost, 0)]).is_empty());
        let two = found(vec![member("a", leads, 0), member("b", lost, 0), member("c", lost, 0)]);
        assert!(matches!(two.as_slice(), [one] if one.starts_with("no quorum: b, c cannot")), "{two:?}");
        let (b, c) = (member("b", follows, 90_000_000), member("c", follows, 90_000_200));
        let off = found(vec![member("a", leads, 0), b.clone(), c]);
        assert_eq!(off, ["the clock of a is 1d 1h behind the others; set it"], "it answered, and is the odd one");
        let off = found(vec![member("a", leads, 0), b, member("c", follows, -300)]);
        assert_eq!(off, ["the clock of b is 1d 1h ahead of the others; set it"]);
        let leaderless = v1::GetClusterStatusResponse {
            members: vec![member("a", follows, 0), member("b", follows, 0), member("c", lost, 0)],
            leaderless: Some(prost_types::Duration { seconds: 12, nanos: 0 }),
            ..v1::GetClusterStatusResponse::default()
        };
        assert_eq!(problems(&leaderless), ["no leader was heard for 12s, though a majority of the voters answers"]);
        assert!(leaderless.text(false).contains("none heard for 12s"));
        let until = Some(prost_types::Timestamp::default());
        let rests = v1::MemberStatus { crash_backoff_end_time: until, ..member("b", follows, 0) };
        let slow = v1::MemberStatus { crash_backoff_eighths: 1, ..rests.clone() };
        for (node, sent) in [(rests, "nothing"), (slow, "an eighth of the usual")] {
            let expected =
                format!("b crashed three times within ten minutes and sends {sent} until 1970-01-01T00:00:00Z");
            assert_eq!(found(vec![member("a", leads, 0), node]), [expected]);
        }
        let apart = found(vec![member("a", leads, 0), member("b", follows, 5_000)]);
        assert_eq!(apart, ["the clocks of a and b are 5s apart; find out which is wrong, and set it"]);
    }
}
