//! The JSON of `-o json`: the API's own. A read prints the resource, a list an array of them, a change the whole
//! answer.

use reveille_proto::admin::v1;
use serde_json::{Value, json};

use crate::fake::{Fake, one, unknown};
use crate::terminal::keys;

fn at(text: &str) -> Option<prost_types::Timestamp> {
    let instant: jiff::Timestamp = text.parse().expect("an instant");
    Some(prost_types::Timestamp { seconds: instant.as_second(), nanos: instant.subsec_nanosecond() })
}

fn schedule() -> v1::Schedule {
    let when =
        v1::When { pattern: Some(v1::when::Pattern::Daily(v1::Daily { hour: 9, minute: 5, days: "mon,fri".into() })) };
    let next = v1::Instant {
        time: at("2026-03-08T07:00:00Z"),
        local: "2026-03-08T03:00:00-04:00".into(),
        ..v1::Instant::default()
    };
    let mut policies = v1::Policies {
        start_within: Some(prost_types::Duration { seconds: 43_200, nanos: 0 }),
        finish_by: Some(prost_types::Duration { seconds: 86_400, nanos: 0 }),
        max_attempts: 5,
        retention: Some(prost_types::Duration { seconds: 90 * 86_400, nanos: 0 }),
        ..v1::Policies::default()
    };
    policies.set_dst_gap(v1::DstGap::After);
    policies.set_dst_overlap(v1::DstOverlap::First);
    policies.set_catch_up(v1::CatchUp::One);
    policies.set_overlap(v1::Overlap::BufferOne);
    policies.set_in_doubt(v1::InDoubt::AssumeSent);
    let mut schedule = v1::Schedule {
        tenant: "default".into(),
        name: "morning".into(),
        number: 12,
        timing: Some(when),
        zone: "America/New_York".into(),
        next_instants: vec![next],
        recipients: 3,
        content_hash: "c0".into(),
        audience_hash: "a0".into(),
        policies: Some(policies),
        pool: "default".into(),
        etag: "v1".into(),
        index: 12,
        sender: "News <news@example.com>".into(),
        subject: "Good morning, {{ name }}".into(),
        ..v1::Schedule::default()
    };
    schedule.set_state(v1::ScheduleState::Active);
    schedule
}

fn run() -> v1::Run {
    let counts = v1::RunCounts { pending: 1, sent: 2, ..v1::RunCounts::default() };
    let mut run = v1::Run {
        run: "r1042.3".into(),
        tenant: "default".into(),
        schedule: "morning".into(),
        occurrence: "2026-03-08T09:05:00".into(),
        audience: 3,
        counts: Some(counts),
        opened_index: 1042,
        due_time: at("2026-03-08T13:05:00Z"),
        ..v1::Run::default()
    };
    run.set_cause(v1::RunCause::CatchUp);
    run.set_state(v1::RunState::Open);
    run
}

/// Checks that the object has at least these fields with these values.
fn holds(object: &Value, expected: Value) {
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&object[key], value, "{key} of {object}");
    }
}

#[tokio::test]
async fn shape_of_schedule() {
    let fake =
        Fake::answering("GetSchedule", v1::GetScheduleResponse { schedule: Some(schedule()), ..Default::default() })
            .await;
    let json = fake.reveille("schedule show morning -o json").await.json();
    holds(
        &json,
        json!({
            "tenant": "default", "name": "morning", "number": "12", "state": "SCHEDULE_STATE_ACTIVE",
            "timing": {"daily": {"hour": 9, "minute": 5, "days": "mon,fri"}},
            "zone": "America/New_York", "recipients": 3, "contentHash": "c0", "etag": "v1", "index": "12",
            "nextInstants": [{"time": "2026-03-08T07:00:00Z", "local": "2026-03-08T03:00:00-04:00", "remarks": []}],
            "policies": {
                "dstGap": "DST_GAP_AFTER", "dstOverlap": "DST_OVERLAP_FIRST", "catchUp": "CATCH_UP_ONE",
                "startWithin": "43200s", "finishBy": "86400s", "inDoubt": "IN_DOUBT_ASSUME_SENT", "maxAttempts": 5,
                "retention": "7776000s", "overlap": "OVERLAP_BUFFER_ONE",
            },
            "labels": {}, "ofCampaign": false,
        }),
    );
    let card = fake.reveille("schedule show morning").await.stdout;
    assert!(card.contains("News <news@example.com>") && card.contains("Good morning, {{ name }}"), "{card}");
    assert!(json.get("startTime").is_none() && json.get("maxRuns").is_none(), "what is not set is left out: {json}");
}

#[tokio::test]
async fn shape_of_run() {
    let fake = Fake::answering("GetRun", v1::GetRunResponse { run: Some(run()), freshness: None }).await;
    let json = fake.reveille("run show r1042.3 -o json").await.json();
    holds(
        &json,
        json!({
            "run": "r1042.3", "tenant": "default", "schedule": "morning", "occurrence": "2026-03-08T09:05:00",
            "cause": "RUN_CAUSE_CATCH_UP", "state": "RUN_STATE_OPEN", "audience": 3, "openedIndex": "1042",
            "counts": {
                "pending": 1, "claimed": 0, "sent": 2, "assumed": 0, "dead": 0, "suppressed": 0, "expired": 0,
                "cancelled": 0, "inDoubt": 0,
            },
            "dueTime": "2026-03-08T13:05:00Z",
        }),
    );
    assert!(json.get("finishedIndex").is_none(), "{json}");
}

fn no_connection() -> v1::RelayCause {
    let (trouble, stage) = (v1::RelayTrouble::NoConnection.into(), v1::RelayStage::Connect.into());
    v1::RelayCause { trouble, stage, text: "refused".into(), ..v1::RelayCause::default() }
}

#[tokio::test]
async fn run_that_waits_says_for_which_relay() {
    let relay = |name: &str, pool: &str, condition: v1::RelayCondition| v1::Relay {
        name: name.into(),
        pool: pool.into(),
        health: Some(v1::RelayHealth {
            node: "n1".into(),
            condition: condition.into(),
            cause: Some(no_connection()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let (down, up) = (v1::RelayCondition::Failing, v1::RelayCondition::Ready);
    let said = async |relays: Vec<v1::Relay>, line: &str| {
        let fake = Fake::start(move |method, _| match method {
            "GetRun" => one(v1::GetRunResponse { run: Some(run()), freshness: None }),
            "GetSchedule" => one(v1::GetScheduleResponse { schedule: Some(schedule()), ..Default::default() }),
            "ListRelays" => one(v1::ListRelaysResponse { relays: relays.clone(), ..Default::default() }),
            _ => Err(unknown(method)),
        });
        fake.await.reveille(line).await.stderr
    };
    let words = "waiting: n1 leaves relay main alone: connect: no connection: refused; reveille relay show main\n";
    let alone = vec![relay("main", "default", down), relay("other", "elsewhere", up)];
    assert_eq!(said(alone.clone(), "run show r1042.3").await, words);
    assert_eq!(said(alone, "run show r1042.3 -o json").await, "");
    let served = vec![relay("main", "default", down), relay("second", "", up)];
    assert_eq!(said(served, "run show r1042.3").await, "");
}

#[tokio::test]
async fn shape_of_history() {
    let mut fired = v1::HistoryEntry {
        occurrence: "n2".into(),
        last: "n2".into(),
        count: 1,
        run: "r9.0".into(),
        index: 9,
        ..Default::default()
    };
    fired.set_outcome(v1::HistoryOutcome::Fired);
    let mut merged =
        v1::HistoryEntry { occurrence: "n0".into(), last: "n1".into(), count: 2, index: 8, ..Default::default() };
    merged.set_reason(v1::UnopenedReason::Coalesced);
    merged.set_outcome(v1::HistoryOutcome::Coalesced);
    let answer = v1::ListScheduleHistoryResponse { entries: vec![fired, merged], ..Default::default() };
    let fake = Fake::answering("ListScheduleHistory", answer).await;
    let json = fake.reveille("schedule history morning -o json").await.json();
    assert_eq!(
        keys(&json[0]),
        "cancelledBy cause count index insideGap last missed occurrence outcome reason run runLost waitedFor"
    );
    holds(
        &json[0],
        json!({"occurrence": "n2", "last": "n2", "outcome": "HISTORY_OUTCOME_FIRED", "count": 1, "run": "r9.0"}),
    );
    let merged = json!({
        "occurrence": "n0", "last": "n1", "outcome": "HISTORY_OUTCOME_COALESCED", "reason": "UNOPENED_REASON_COALESCED",
        "count": 2, "run": "", "index": "8",
    });
    holds(&json[1], merged);
}

#[tokio::test]
async fn shape_of_explanation() {
    let event = v1::ExplainedEvent {
        index: 7,
        time: at("2026-03-08T13:05:00Z"),
        kind: v1::ExplainedEventKind::Sent.into(),
        node: "a".into(),
        fence: "1.2.7.0".into(),
        ..v1::ExplainedEvent::default()
    };
    let mut answer = v1::ExplainResponse {
        run: "r5.0".into(),
        recipient: "ann@example.com".into(),
        number: 3,
        events: vec![event],
        ..Default::default()
    };
    answer.set_state(v1::RecipientState::InDoubt);
    let fake = Fake::answering("Explain", answer).await;
    let event = json!({
        "index": "7", "time": "2026-03-08T13:05:00Z", "kind": "EXPLAINED_EVENT_KIND_SENT", "node": "a",
        "fence": "1.2.7.0", "entries": 0, "relay": "", "code": 0, "enhanced": "", "text": "", "incarnation": "0",
        "doubtCause": "DOUBT_CAUSE_UNSPECIFIED", "effect": "REFUSAL_EFFECT_UNSPECIFIED",
        "releaseReason": "RELEASE_REASON_UNSPECIFIED", "decider": "DECIDER_UNSPECIFIED",
        "suppressionReason": "SUPPRESSION_REASON_UNSPECIFIED", "otherRun": "",
        "deathReason": "DEATH_REASON_UNSPECIFIED", "attempts": 0, "maxAttempts": 0, "cancelledBy": "", "pool": "",
    });
    assert_eq!(
        fake.reveille("explain r5.0 ann@example.com -o json").await.json(),
        json!({"run": "r5.0", "recipient": "ann@example.com", "number": 3, "state": "RECIPIENT_STATE_IN_DOUBT", "events": [event]})
    );
}

#[tokio::test]
async fn opt_out_names_crossed_handoffs_and_silent_nodes() {
    let crossed = v1::Crossing { run: "r5.0".into(), number: 3, fence: "1.2.7.0".into() };
    let barrier = v1::Barrier { index: 11, crossed: vec![crossed], unconfirmed: vec!["c".into()] };
    let fake = Fake::answering(
        "AddOptOut",
        v1::AddOptOutResponse { recipient: "ann@example.com".into(), barrier: Some(barrier) },
    )
    .await;
    assert_eq!(
        fake.reveille("optout add Ann@example.com -o json").await.json(),
        json!({
            "recipient": "ann@example.com",
            "barrier": {
                "index": "11", "crossed": [{"run": "r5.0", "number": 3, "fence": "1.2.7.0"}], "unconfirmed": ["c"],
            },
        })
    );
    let fake = Fake::answering(
        "CheckOptOut",
        v1::CheckOptOutResponse { recipient: "bob@example.com".into(), ..Default::default() },
    )
    .await;
    assert_eq!(
        fake.reveille("optout check bob@example.com -o json").await.json(),
        json!({"recipient": "bob@example.com", "etag": "", "optedOut": false})
    );
}

#[tokio::test]
async fn doubts_and_dead_letters() {
    let doubt = v1::Doubt {
        run: "r5.0".into(),
        recipient: "ann@example.com".into(),
        number: 3,
        fence: "1.2.7.0".into(),
        node: "a".into(),
        cause: v1::DoubtCause::OwnerLost.into(),
        doubt_time: at("2026-03-08T13:05:00Z"),
        incarnation: 2,
        node_returned: false,
        claim_time: at("2026-03-08T13:04:00Z"),
        message_id: "m@example.com".into(),
        leave_time: at("2026-06-06T13:05:00Z"),
    };
    let fake =
        Fake::answering("ListDoubts", v1::ListDoubtsResponse { doubts: vec![doubt], ..Default::default() }).await;
    let json = fake.reveille("in-doubt list -o json").await.json();
    assert_eq!(
        keys(&json[0]),
        "cause claimTime doubtTime fence incarnation leaveTime messageId node nodeReturned number recipient run"
    );
    let letter = v1::DeadLetter {
        run: "r5.0".into(),
        recipient: "bob@example.com".into(),
        code: 550,
        text: "no such user".into(),
        attempts: 1,
        ..Default::default()
    };
    let fake = Fake::answering(
        "ListDeadLetters",
        v1::ListDeadLettersResponse { dead_letters: vec![letter], ..Default::default() },
    )
    .await;
    let json = fake.reveille("dead-letter list -o json").await.json();
    assert_eq!(
        json,
        json!([{
            "run": "r5.0", "recipient": "bob@example.com", "number": 0, "code": 550, "enhanced": "",
            "text": "no such user", "attempts": 1, "deathReason": "DEATH_REASON_UNSPECIFIED",
        }])
    );
}

#[tokio::test]
async fn shape_of_cluster() {
    let address = "127.0.0.1:7601".into();
    let member = v1::Member { id: "1f".into(), name: "a".into(), address, votes: true, drains: false };
    let mut up = v1::MemberStatus {
        member: Some(member.clone()),
        incarnation: Some(2),
        clock_offset_ms: Some(-3),
        ..Default::default()
    };
    up.set_role(v1::MemberRole::Leader);
    let mut down = v1::MemberStatus { member: Some(v1::Member { name: "b".into(), ..member }), ..Default::default() };
    down.set_role(v1::MemberRole::Unreachable);
    let answer = v1::GetClusterStatusResponse {
        cluster: "c1".into(),
        incarnation: 1,
        group: 1,
        leader: "a".into(),
        epoch: 4,
        term: 2,
        commit_index: 99,
        clocks_agree: true,
        answered_by: "a".into(),
        members: vec![up, down],
        test_clock_offset: None,
        leaderless: None,
        backlogs: vec![v1::Backlog {
            pool: "default".into(),
            recipients: 1_200,
            oldest_time: at("2026-03-08T13:05:00Z"),
            bound_per_second: 25.0,
            shrinks_per_second: 20.0,
            eta: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            measured: true,
            waiting: 3,
            lower_bound: false,
        }],
        blocked: vec![v1::BlockedRun {
            run: "r9.0".into(),
            tenant: "default".into(),
            schedule: "spring".into(),
            missing: Some(v1::MissingFile { kind: v1::MissingFileKind::AudiencePart.into(), ..Default::default() }),
        }],
        pools_used_up: Vec::new(),
        restore: None,
        blocked_count: 20_000,
        backups: None,
        audit_head: "a0".into(),
        lost_files: Some(v1::LostFiles {
            files: 2,
            audiences: vec!["default/all".into()],
            schedules: vec!["default/spring".into()],
            runs: (1..5).map(|run| format!("r{run}.0")).collect(),
            ended_runs: 7,
        }),
    };
    let fake = Fake::answering("GetClusterStatus", answer).await;
    let json = fake.reveille("cluster status -o json").await.json();
    assert_eq!(json["blockedCount"], 20_000);
    holds(
        &json,
        json!({"cluster": "c1", "incarnation": "1", "group": 1, "leader": "a", "epoch": "4", "term": "2", "commitIndex": "99", "auditHead": "a0"}),
    );
    assert_eq!(
        json["backlogs"],
        json!([{
            "pool": "default", "recipients": "1200", "oldestTime": "2026-03-08T13:05:00Z", "boundPerSecond": 25.0,
            "shrinksPerSecond": 20.0, "eta": "60s", "measured": true, "waiting": "3", "lowerBound": false,
        }])
    );
    assert_eq!(
        json["blocked"],
        json!([{
            "run": "r9.0", "tenant": "default", "schedule": "spring",
            "missing": {"kind": "MISSING_FILE_KIND_AUDIENCE_PART", "part": 0},
        }])
    );
    let table = fake.reveille("cluster status").await.stdout;
    let reported = "1,200 recipients late in pool default (3 of its instants wait their turn), the oldest due \
                2026-03-08T13:05:00Z; 20.0 a second, over in 1m (at most 25 a second)\n\nrun r9.0 of spring is \
                blocked: no live node has part 0 of its audience: start one that has it, or import the same list \
                again\n\n19,999 runs blocked beside these\n\nevery voter lacks 2 files of audience default/all, schedule \
                default/spring, run r1.0, run r2.0, run r3.0 and 2 more\n";
    assert!(table.ends_with(reported), "{table}");
    let (up, down) = (&json["members"][0], &json["members"][1]);
    assert_eq!((&up["role"], &up["clockOffsetMs"]), (&json!("MEMBER_ROLE_LEADER"), &json!("-3")));
    assert_eq!((&down["role"], down.get("appliedIndex")), (&json!("MEMBER_ROLE_UNREACHABLE"), None));
}

/// A default of none would send emails to another host unencrypted.
#[tokio::test]
async fn relay_add_without_tls_is_refused_unless_host_is_loopback() {
    let relay = v1::Relay { name: "zz".into(), ..Default::default() };
    let fake = Fake::answering("AddRelay", v1::AddRelayResponse { relay: Some(relay), index: 3 }).await;
    let refused = fake.reveille("relay add zz --host mx.example.com --port 587 -o json").await;
    assert_eq!((refused.code, refused.error()["field"].as_str()), (Some(2), Some("--tls")), "{refused:?}");
    let message = refused.error()["message"].as_str().expect("a message").to_owned();
    for value in ["starttls encrypts", "implicit encrypts", "none sends"] {
        assert!(message.contains(value), "{value}: {message}");
    }
    assert!(fake.requests::<v1::AddRelayRequest>("AddRelay").is_empty(), "nothing was sent");
    for host in ["127.0.0.1", "127.8.9.9", "::1", "localhost"] {
        let added = fake.reveille(&format!("relay add zz --host {host} --port 25")).await;
        assert_eq!(added.code, Some(0), "{added:?}");
    }
    let requested: Vec<v1::AddRelayRequest> = fake.requests("AddRelay");
    let tls: Vec<v1::RelayTls> =
        requested.iter().filter_map(|requested| Some(requested.relay.as_ref()?.tls())).collect();
    assert_eq!(tls, [v1::RelayTls::None; 4]);
}

#[tokio::test]
async fn shape_of_relay() {
    let mut relay = v1::Relay {
        name: "main".into(),
        pool: "default".into(),
        host: "h".into(),
        port: 25,
        max_sessions: 10,
        weight: 2,
        ..Default::default()
    };
    relay.set_tls(v1::RelayTls::Starttls);
    relay.ca = "/ca.pem".into();
    relay.credentials = "login".into();
    let until = Some(prost_types::Timestamp { seconds: 0, nanos: 0 });
    let cause = v1::RelayCause { code: 454, text: "Daily message quota exceeded".into(), ..Default::default() };
    let mut health = v1::RelayHealth {
        node: "a".into(),
        cause: Some(v1::RelayCause { trouble: v1::RelayTrouble::Answer.into(), ..cause }),
        retry_time: until,
        rate_per_second: 2.5,
        sessions_open: 1,
        ..Default::default()
    };
    health.set_condition(v1::RelayCondition::Parked);
    relay.health = Some(health);
    let fake = Fake::answering("AddRelay", v1::AddRelayResponse { relay: Some(relay), index: 3 }).await;
    let json = fake
        .reveille(
            "relay add main --host h --port 25 --tls implicit --ca /ca --tls-name n --credentials x --rate-per-second 0.5 --late-rate-per-second 0.25 --weight 5 -o json",
        )
        .await
        .json();
    let cause = json!({
        "trouble": "RELAY_TROUBLE_ANSWER", "stage": "RELAY_STAGE_UNSPECIFIED", "code": 454,
        "text": "Daily message quota exceeded", "fix": "RELAY_FIX_UNSPECIFIED",
    });
    assert_eq!(
        json,
        json!({
            "index": "3",
            "relay": {
                "name": "main", "pool": "default", "host": "h", "port": 25, "tls": "RELAY_TLS_STARTTLS", "ca": "/ca.pem",
                "tlsName": "", "credentials": "login", "ratePerSecond": 0.0, "maxSessions": 10,
                "lateRatePerSecond": 0.0, "weight": 2, "etag": "",
                "health": {
                    "node": "a", "condition": "RELAY_CONDITION_PARKED", "cause": cause,
                    "retryTime": "1970-01-01T00:00:00Z", "sessionsOpen": 1, "ratePerSecond": 2.5,
                },
            },
        })
    );
    let requested: Vec<v1::AddRelayRequest> = fake.requests("AddRelay");
    let relay = requested.first().and_then(|requested| requested.relay.clone()).expect("a relay");
    assert_eq!(relay.weight, 5);
    let rates = (relay.rate_per_second, relay.late_rate_per_second);
    assert_eq!((rates, relay.tls()), ((0.5, 0.25), v1::RelayTls::Implicit));
    assert_eq!((relay.ca.as_str(), relay.tls_name.as_str(), relay.credentials.as_str()), ("/ca", "n", "x"));
}
