//! The test clock (P19): whole years and outages of any length, checked by the emails that arrive.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::{Date, date};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan, Zoned};
use reveille_proto::admin::v1::advance_clock_request::Target;
use reveille_proto::admin::v1::{
    AddRelayRequest, AdvanceClockRequest, AdvanceClockResponse, BackfillScheduleRequest, CatchUp, ExplainRequest,
    GetClockRequest, GetRunRequest, GetScheduleRequest, HistoryOutcome, ListScheduleHistoryRequest, Policies, Relay,
    RunState, ScheduleBody, TriggerScheduleRequest, When, when,
};
use tonic::{Code, Status};

use super::harness::{
    Node, STEP_TIMEOUT, creation, node, node_in_crash_back_off, node_with_test_clock, reason, yearly,
};

pub const MINUTE: i64 = 60;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

pub fn at(seconds: i64) -> Target {
    Target::TargetTime(prost_types::Timestamp { seconds, nanos: 0 })
}

pub fn by(seconds: i64) -> Target {
    Target::By(prost_types::Duration { seconds, nanos: 0 })
}

/// Advances the clock, and returns the last message of the stream.
async fn advance(node: &Node, target: Target, jump: bool) -> Result<AdvanceClockResponse, Status> {
    let request = AdvanceClockRequest { target: Some(target), jump };
    let mut words = node.clocks().advance_clock(request).await?.into_inner();
    let mut last = None;
    while let Some(word) = words.message().await? {
        last = Some(word);
    }
    Ok(last.filter(|word| word.done).expect("a last word"))
}

pub async fn advance_clock(node: &Node, target: Target) -> AdvanceClockResponse {
    advance(node, target, false).await.expect("it goes forward")
}

pub async fn jump(node: &Node, target: Target) -> AdvanceClockResponse {
    advance(node, target, true).await.expect("it leaps")
}

/// Returns ledger time in whole seconds.
pub async fn now(node: &Node) -> i64 {
    let clock = node.clocks().get_clock(GetClockRequest::default()).await.expect("a clock").into_inner();
    clock.current_time.expect("an instant").seconds
}

/// Returns the first second of a future day.
pub async fn coming_day(node: &Node) -> i64 {
    (now(node).await / DAY + 2) * DAY
}

async fn create(node: &Node, name: &str, pattern: when::Pattern, zone: &str, policies: Policies) {
    let body = ScheduleBody {
        timing: Some(When { pattern: Some(pattern) }),
        zone: zone.to_owned(),
        policies: Some(policies),
        ..yearly(name, &[address(name).as_str()])
    };
    node.schedules().create_schedule(creation(body)).await.expect("created");
}

/// Returns the address of a schedule's only recipient. Each schedule has its own.
fn address(schedule: &str) -> String {
    format!("{schedule}@example.net")
}

/// Returns the `Date` fields of the emails to a schedule's recipient, in the order of their arrival.
fn dates(node: &Node, schedule: &str) -> Vec<Timestamp> {
    let (address, emails) = (address(schedule), node.sink.emails());
    let own = emails.iter().filter(|(_, mail)| mail.recipient == address);
    own.map(|(number, _)| {
        let text = node.sink.text(number).expect("its text is kept");
        let text = String::from_utf8_lossy(&text).into_owned();
        let date = text.lines().find_map(|line| line.strip_prefix("Date: ")).expect("a Date");
        jiff::fmt::rfc2822::parse(date).expect("a date").timestamp()
    })
    .collect()
}

/// Returns how many instants of a schedule fired and how many were explained, according to its history.
async fn accounts(node: &Node, schedule: &str) -> (i64, i64) {
    let (mut fired, mut explained, mut page_token) = (0, 0, String::new());
    loop {
        let request = ListScheduleHistoryRequest {
            name: schedule.to_owned(),
            page_size: 1_000,
            page_token,
            ..ListScheduleHistoryRequest::default()
        };
        let page = node.schedules().list_schedule_history(request).await.expect("a history").into_inner();
        for entry in &page.entries {
            match entry.outcome() {
                HistoryOutcome::Fired => fired += 1,
                _ => explained += i64::from(entry.count),
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return (fired, explained);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_in_use_keeps_real_time() {
    let node = node("").await;
    let shown = node.clocks().get_clock(GetClockRequest::default()).await.expect_err("real time");
    assert_eq!(reason(&shown), (Code::FailedPrecondition, "NO_TEST_CLOCK".to_owned()));
    for leap in [false, true] {
        let moved = advance(&node, by(HOUR), leap).await.expect_err("real time");
        assert!(moved.message().contains("keeps real time"), "{moved:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_clock_goes_forward_only_and_no_email_leaves_the_machine() {
    let node = node_with_test_clock("").await;
    let far = Relay { name: "far".to_owned(), host: "192.0.2.1".to_owned(), port: 25, ..node.relay() };
    let far = AddRelayRequest { relay: Some(far), ..AddRelayRequest::default() };
    let far = node.relays().add_relay(far).await.expect_err("another machine");
    assert!(far.message().contains("no email leaves this machine"), "{far:?}");

    let before = now(&node).await;
    let advanced = advance_clock(&node, by(20 * HOUR)).await;
    assert_eq!((advanced.steps, advanced.fired), (1, 0), "nothing is due");
    assert!((20 * HOUR..21 * HOUR).contains(&(now(&node).await - before)));
    for back in [by(0), by(-HOUR), at(before)] {
        let back = advance(&node, back, true).await.expect_err("no way back");
        assert_eq!(back.code(), Code::InvalidArgument, "{back:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn year_sends_one_email_a_local_date_in_unusual_zones() {
    let node = node_with_test_clock("").await;
    let year = Timestamp::from_second(now(&node).await).expect("an instant").to_zoned(TimeZone::UTC).year() + 1;
    let noon = |year| date(year, 1, 1).at(12, 0, 0, 0).to_zoned(TimeZone::UTC).expect("an instant").timestamp();
    advance_clock(&node, at(noon(year).as_second())).await;
    // Each fires at a local time that a change of its clocks skips or repeats.
    let zones = [
        ("lord-howe", "Australia/Lord_Howe", "15 2 * * *", "02:15", Some("02:30")),
        ("casablanca", "Africa/Casablanca", "30 2 * * *", "02:30", Some("03:00")),
        ("st-johns", "America/St_Johns", "30 1 * * *", "01:30", None),
    ];
    for (name, zone, cron, _, _) in zones {
        create(&node, name, when::Pattern::Cron(cron.to_owned()), zone, Policies::default()).await;
    }
    let advanced = advance_clock(&node, at(noon(year + 1).as_second())).await;
    let last = date(year + 1, 1, 1);
    let dates_of_year: Vec<Date> = date(year, 1, 2).series(1.day()).take_while(|date| *date <= last).collect();
    let emails = 3 * dates_of_year.len() as u64;
    assert_eq!((advanced.fired, node.sink.accepted_count()), (emails, emails), "{advanced:?}");
    for (name, zone, _, usual, moved) in zones {
        let rules = TimeZoneDatabase::bundled().get(zone).expect("a zone");
        let local: Vec<Zoned> = dates(&node, name).into_iter().map(|at| at.to_zoned(rules.clone())).collect();
        assert_eq!(local.iter().map(Zoned::date).collect::<Vec<_>>(), dates_of_year, "{zone}: one email a date");
        let times: BTreeSet<String> = local.iter().map(|at| at.strftime("%H:%M").to_string()).collect();
        let allowed: BTreeSet<String> = std::iter::once(usual).chain(moved).map(str::to_owned).collect();
        assert!(times.is_subset(&allowed), "{zone}: at the usual time, or at the end of a gap: {times:?}");
        // Morocco often changes its rules, so only Lord Howe, which shifts by half an hour, is checked exactly.
        assert!(name != "lord-howe" || times == allowed, "{zone}: {times:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn day_is_sent_once_whatever_is_repeated_and_next_day_again() {
    let node = node_with_test_clock("").await;
    let day = coming_day(&node).await;
    advance_clock(&node, at(day + 8 * HOUR)).await;
    let recipients = ["ada@example.net", "bob@example.net", "cyd@example.net"];
    let nine = when::Pattern::Cron("0 9 * * *".to_owned());
    let body = ScheduleBody { timing: Some(When { pattern: Some(nine) }), ..yearly("morning", &recipients) };
    node.schedules().create_schedule(creation(body.clone())).await.expect("created");
    let emails = |count: u64| assert_eq!(node.sink.accepted_count(), count);
    advance_clock(&node, at(day + 10 * HOUR)).await;
    emails(3);
    // The same body is created again, and time passes: no more emails on that day.
    for _ in 0..3 {
        let again = node.schedules().create_schedule(creation(body.clone())).await.expect("the same").into_inner();
        assert!(!again.created);
        advance_clock(&node, by(HOUR)).await;
    }
    emails(3);
    // A trigger is one occurrence, however often its request is repeated.
    let (name, request_id) = ("morning".to_owned(), "by-hand".to_owned());
    let trigger = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    for _ in 0..3 {
        node.schedules().trigger_schedule(trigger.clone()).await.expect("triggered");
        advance_clock(&node, by(MINUTE)).await;
    }
    emails(6);
    advance_clock(&node, by(20 * HOUR)).await;
    emails(9);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_any_length_leaves_each_instant_fired_or_explained() {
    const EVERY: i64 = 10 * MINUTE;
    let node = node_with_test_clock("").await;
    let day = coming_day(&node).await;
    advance_clock(&node, at(day + 5 * MINUTE)).await;
    let policies = [("one", CatchUp::One), ("all", CatchUp::All), ("none", CatchUp::None)];
    for (name, catch_up) in policies {
        let every = reveille_proto::admin::v1::Every {
            period: Some(prost_types::Duration { seconds: EVERY, nanos: 0 }),
            ..Default::default()
        };
        let policies = Policies { catch_up: catch_up.into(), ..Policies::default() };
        create(&node, name, when::Pattern::Every(every), "UTC", policies).await;
    }
    let begun = now(&node).await;
    // Each outage ends five minutes after an instant.
    for outage in [MINUTE, 11 * MINUTE, 23 * HOUR, 4 * DAY] {
        let end = (now(&node).await + outage).div_euclid(EVERY) * EVERY + EVERY + 5 * MINUTE;
        // The outage of a minute is moved so that it contains an instant.
        let begin = if outage == MINUTE { end - 5 * MINUTE - MINUTE / 2 } else { end - outage };
        advance_clock(&node, at(begin)).await;
        let mut before = BTreeMap::new();
        for (name, _) in policies {
            before.insert(name, accounts(&node, name).await.0);
        }
        let leapt = jump(&node, by(outage)).await;
        assert_eq!(leapt.steps, 1);
        let now = now(&node).await;
        for (name, catch_up) in policies {
            let (fired, explained) = accounts(&node, name).await;
            let expected = now.div_euclid(EVERY) - begun.div_euclid(EVERY);
            assert_eq!(fired + explained, expected, "{name} after {outage} s");
            assert_eq!(dates(&node, name).len() as i64, fired, "{name} after {outage} s: each came once");
            let caught_up = fired - before[name];
            match catch_up {
                _ if outage == MINUTE => assert_eq!(caught_up, 1, "{name}: half a minute late is on time"),
                CatchUp::One => assert_eq!(caught_up, 1, "after {outage} s"),
                CatchUp::None => assert_eq!(caught_up, 0, "after {outage} s"),
                _ => assert!(caught_up >= 1, "after {outage} s"),
            }
        }
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advance_stops_at_retries_and_deadlines() {
    let node = node_with_test_clock("rcpt:450=4.2.1 mailbox busy#2").await;
    let busy = node.triggered("busy", &["ada@example.net"], "").await.run;
    let stuck = node.triggered("stuck", &["bob@example.net"], "no-relay-here").await.run;
    let advanced = advance_clock(&node, by(2 * DAY)).await;
    assert!(advanced.steps >= 4, "two retries, a deadline, the end: {advanced:?}");
    for (run, state) in [(busy, RunState::Finished), (stuck, RunState::Expired)] {
        let request = GetRunRequest { run, ..GetRunRequest::default() };
        let run = node.runs().get_run(request).await.expect("a run").into_inner().run.expect("a run");
        assert_eq!(run.state(), state, "{run:?}");
    }
    assert_eq!(node.sink.accepted_count(), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_older_than_retention_keeps_its_summary() {
    let node = node_with_test_clock("").await;
    let day = coming_day(&node).await;
    advance_clock(&node, at(day)).await;
    let policies =
        Policies { retention: Some(prost_types::Duration { seconds: DAY, nanos: 0 }), ..Policies::default() };
    create(&node, "daily", when::Pattern::Cron("0 9 * * *".to_owned()), "UTC", policies).await;
    advance_clock(&node, at(day + 8 * HOUR)).await;
    let (name, request_id) = ("daily".to_owned(), "by-hand".to_owned());
    let trigger = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    let by_hand = node.schedules().trigger_schedule(trigger.clone()).await.expect("triggered").into_inner();
    let by_hand = by_hand.run.expect("a run").run;
    advance_clock(&node, at(day + 10 * HOUR)).await;
    assert_eq!(accounts(&node, "daily").await, (2, 0));
    let explain = || ExplainRequest { run: by_hand.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    node.runs().explain(explain()).await.expect("a story");

    // The clock advances day by day, until the first day's runs are older than their retention of a day.
    advance_clock(&node, at(day + 3 * DAY)).await;
    let run = node.until(&by_hand, |run| run.archived_index.is_some()).await;
    assert_eq!((run.state(), run.counts.map(|counts| counts.sent)), (RunState::Finished, Some(1)), "{run:?}");
    let gone = node.runs().explain(explain()).await.expect_err("its details are removed");
    assert!(gone.message().contains("is older than its retention"), "{gone:?}");

    // A repeated request gets the same run, and no instant opens again.
    let emails = node.sink.accepted_count();
    assert_eq!(emails, 4, "by hand, and at nine on three days");
    let again = node.schedules().trigger_schedule(trigger).await.expect("the same").into_inner();
    assert_eq!(again.run.map(|run| run.run), Some(by_hand));
    let from = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let backfill = BackfillScheduleRequest {
        name: "daily".to_owned(),
        start_time: from(day),
        end_time: from(day + DAY),
        ..BackfillScheduleRequest::default()
    };
    let backfilled = node.schedules().backfill_schedule(backfill).await.expect("nothing").into_inner();
    assert_eq!((backfilled.opened, backfilled.opened_before), (0, 1));
    assert_eq!(accounts(&node, "daily").await, (4, 0), "the history names archived runs");
    advance_clock(&node, by(HOUR)).await;
    assert_eq!(node.sink.accepted_count(), emails);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advance_passes_crash_back_off_in_ledger_time() {
    let recipients = ["ada@example.net", "bob@example.net", "cyd@example.net", "dan@example.net"];
    let (node, run) = node_in_crash_back_off(&recipients).await;
    let before = now(&node).await;
    // The backoff is ten minutes of ledger time; in real time that would exceed the test's time limit.
    let advanced = tokio::time::timeout(STEP_TIMEOUT, advance_clock(&node, by(HOUR)))
        .await
        .expect("the backoff passes in ledger time");
    assert!((HOUR..HOUR + 2 * MINUTE).contains(&(now(&node).await - before)), "{advanced:?}");
    let request = GetRunRequest { run, ..GetRunRequest::default() };
    let run = node.runs().get_run(request).await.expect("a run").into_inner().run.expect("a run");
    let counts = run.counts.expect("counts");
    assert_eq!((counts.in_doubt, counts.sent), (3, 1), "after the rest the work went on: {run:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_is_shown_with_the_clock_of_the_cluster() {
    let node = node_with_test_clock("").await;
    jump(&node, by(400 * DAY)).await;
    create(&node, "daily", when::Pattern::Cron("@daily".to_owned()), "UTC", Policies::default()).await;
    let get = GetScheduleRequest { name: "daily".to_owned(), ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(get).await.expect("shown").into_inner().schedule.expect("a schedule");
    let (shown_now, next) =
        (shown.read_time.expect("a clock").seconds, shown.next_instants[0].time.expect("an instant").seconds);
    assert!(next > shown_now && next - shown_now <= DAY, "the next midnight is within a day of {shown_now}: {next}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_that_waited_is_dated_by_its_claim() {
    let node = node_with_test_clock("").await;
    let opened = now(&node).await;
    let run = node.triggered("late", &[address("late").as_str()], "elsewhere").await;
    jump(&node, by(5 * HOUR)).await;
    let relay = Relay { name: "late".to_owned(), pool: "elsewhere".to_owned(), ..node.relay() };
    node.relays().add_relay(AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() }).await.expect("added");
    // Recipients that found no relay are tried again after half a minute.
    jump(&node, by(MINUTE)).await;
    node.until(&run.run, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    let date = dates(&node, "late")[0].as_second();
    assert!(date - opened >= 5 * HOUR, "{date} is the instant of the opening, {opened}");
    node.stop().await;
}
