//! Schedules over the API, from creation to deletion.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use prost_types::FieldMask;
use reveille_ledger::Ledger;
use reveille_ledger::command::{Command, NextInstant, Replan};
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::{
    self, BackfillScheduleRequest, BatchCreateResult, BatchCreateSchedulesRequest, BatchCreateSchedulesResponse,
    CreateScheduleRequest, DeleteScheduleRequest, ErrorReason, GetScheduleRequest, HistoryOutcome, ListRunsRequest,
    ListScheduleHistoryRequest, ListSchedulesRequest, PauseScheduleRequest, ResumeScheduleRequest, RunCause,
    ScheduleBody, ScheduleState, TriggerScheduleRequest, UpdateScheduleRequest, When, when,
};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

use super::harness::{STEP_TIMEOUT, creation, node, reason, yearly};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_is_created_once_however_often_it_is_asked_for() {
    let node = node("").await;
    let body = || ScheduleBody {
        timing: Some(When { pattern: Some(when::Pattern::Cron("0 9 * * *".to_owned())) }),
        zone: "Europe/Berlin".to_owned(),
        ..yearly("daily", &["ada@example.net"])
    };
    let request = |body, validate_only| CreateScheduleRequest {
        schedule: Some(body),
        request_id: "018f-1".to_owned(),
        validate_only,
    };
    let shown = node.schedules().create_schedule(request(body(), true)).await.expect("valid").into_inner();
    let shown = shown.schedule.expect("a schedule");
    assert_eq!((shown.number, shown.next_instants.len(), shown.etag.as_str()), (0, 10, ""));
    assert!(
        shown.next_instants.iter().all(|instant| instant.local.contains("T09:00:00+0")),
        "{:?}",
        shown.next_instants
    );
    let get = || GetScheduleRequest { name: "daily".to_owned(), ..GetScheduleRequest::default() };
    let none = node.schedules().get_schedule(get()).await.expect_err("only validated");
    assert_eq!(reason(&none), (Code::NotFound, "SCHEDULE_NOT_FOUND".to_owned()));

    let first = node.schedules().create_schedule(request(body(), false)).await.expect("created").into_inner();
    let again = node.schedules().create_schedule(request(body(), false)).await.expect("the same").into_inner();
    assert!(first.created && !again.created);
    let shown = node.schedules().get_schedule(get()).await.expect("it is there").into_inner().schedule;
    let (shown, content) = (shown.expect("a schedule"), body().content.expect("a content"));
    assert_eq!((shown.sender, shown.subject), (content.sender, content.subject));
    let but_for_now = |schedule| v1::Schedule { read_time: None, ..Option::unwrap_or_default(schedule) };
    assert_eq!(but_for_now(first.schedule), but_for_now(again.schedule));
    let other = ScheduleBody { priority: 9, ..body() };
    let requested =
        |request_id: &str| CreateScheduleRequest { request_id: request_id.to_owned(), ..request(other.clone(), false) };
    let taken = node.schedules().create_schedule(requested("another")).await.expect_err("another body");
    assert_eq!(reason(&taken), (Code::AlreadyExists, "NAME_TAKEN".to_owned()));
    let reused = node.schedules().create_schedule(request(other.clone(), false)).await.expect_err("another body");
    assert_eq!(reason(&reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    let update = UpdateScheduleRequest {
        schedule: Some(other),
        update_mask: Some(FieldMask { paths: vec!["priority".to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    node.schedules().update_schedule(update).await.expect("updated");
    for validate_only in [true, false] {
        let repeat = node.schedules().create_schedule(request(body(), validate_only)).await;
        let repeat = repeat.expect("a repeat has the first answer, whatever was edited since").into_inner();
        assert_eq!((repeat.created, repeat.schedule.expect("a schedule").priority), (false, 9));
    }
    let renamed = ScheduleBody { name: "weekly".to_owned(), ..body() };
    let reused = node.schedules().create_schedule(request(renamed, false)).await.expect_err("another body");
    assert_eq!(reason(&reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_an_etag_all_update_one_schedule_at_once() {
    const CALLERS: u32 = 12;
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("one", &["ada@example.net"]))).await.expect("created");
    let mut updating = JoinSet::new();
    for priority in 1..=CALLERS {
        let mut schedules = node.schedules();
        let update = UpdateScheduleRequest {
            schedule: Some(ScheduleBody { priority, ..yearly("one", &[]) }),
            update_mask: Some(FieldMask { paths: vec!["priority".to_owned()] }),
            ..UpdateScheduleRequest::default()
        };
        updating.spawn(async move { schedules.update_schedule(update).await });
    }
    for updated in updating.join_all().await {
        updated.expect("no condition was given");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_creates_each_schedule_by_itself_and_can_be_repeated() {
    let node = node("").await;
    let batch = |schedules| BatchCreateSchedulesRequest { schedules };
    // Large contents, so that one entry does not hold all of them.
    let text = "x".repeat(100_000);
    let large = |name: &str| {
        let mut body = yearly(name, &["ada@example.net"]);
        body.content.get_or_insert_default().text = Some(text.clone());
        body
    };
    let mut bodies: Vec<ScheduleBody> = (0..12).map(|number| large(&format!("user-{number}"))).collect();
    bodies[3].zone = "Europe/Atlantis".to_owned();
    bodies[7].name = "user-6".to_owned();
    bodies[7].priority = 9;
    bodies[8].name = "user-0".to_owned();
    let started = node.schedules().batch_create_schedules(batch(bodies.clone())).await.expect("a result").into_inner();
    let outcome = |one: &BatchCreateResult| (one.created, one.refusal.as_ref().map(v1::Refusal::reason));
    let outcomes: Vec<(bool, Option<ErrorReason>)> = started.results.iter().map(outcome).collect();
    let mut expected = vec![(true, None); 12];
    expected[3] = (false, Some(ErrorReason::UnknownZone));
    expected[7] = (false, Some(ErrorReason::NameTaken));
    expected[8] = (false, None);
    assert_eq!(outcomes, expected);
    let refused = started.results[3].refusal.as_ref().expect("a refusal");
    assert!(refused.message.starts_with("schedules[3].zone: "), "{refused:?}");
    assert_eq!(started.results[8].number, started.results[0].number);
    assert!(started.warnings.is_empty(), "{:?}", started.warnings);
    let mut numbers: Vec<u64> = started.results.iter().map(|one| one.number).filter(|number| *number > 0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 9);

    let again = node.schedules().batch_create_schedules(batch(bodies)).await.expect("a result").into_inner();
    assert!(again.results.iter().all(|one| !one.created));
    let same = |of: &BatchCreateSchedulesResponse| of.results.iter().map(|one| one.number).collect::<Vec<_>>();
    assert_eq!(same(&again), same(&started));
    let get = GetScheduleRequest { name: "user-11".to_owned(), ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(get).await.expect("created").into_inner().schedule.expect("a schedule");
    assert_eq!(shown.number, started.results[11].number);

    for count in [0, 1_001] {
        let many = vec![ScheduleBody::default(); count];
        let refused = node.schedules().batch_create_schedules(batch(many)).await.expect_err("a bound");
        assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_list_hold_each_schedule_once() {
    let node = node("").await;
    for name in ["a", "b", "c", "d", "e"] {
        node.schedules().create_schedule(creation(yearly(name, &["ada@example.net"]))).await.expect("created");
    }
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListSchedulesRequest { page_size: 2, page_token, ..ListSchedulesRequest::default() };
        let page = node.schedules().list_schedules(request).await.expect("a page").into_inner();
        assert!(page.schedules.iter().all(|schedule| schedule.next_instants.len() == 1));
        names.extend(page.schedules.into_iter().map(|schedule| schedule.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    let request = ListSchedulesRequest { page_token: "zz".to_owned(), ..ListSchedulesRequest::default() };
    assert_eq!(node.schedules().list_schedules(request).await.expect_err("no token").code(), Code::InvalidArgument);
    let paused = ListSchedulesRequest {
        states: vec![ScheduleState::Paused.into()],
        stale: true,
        ..ListSchedulesRequest::default()
    };
    let paused = node.schedules().list_schedules(paused).await.expect("a page").into_inner();
    assert!(paused.schedules.is_empty());
    let freshness = paused.freshness.expect("freshness");
    assert!(freshness.stale && freshness.age.is_some());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_and_runs_are_listed_by_labels_page_by_page() {
    let node = node("").await;
    let labelled = |name: &str, labels: &[(&str, &str)]| ScheduleBody {
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..yearly(name, &["ada@example.net"])
    };
    for (name, labels) in [
        ("a", &[("team", "ops"), ("env", "prod")][..]),
        ("b", &[("team", "books")]),
        ("c", &[("team", "ops"), ("env", "dev")]),
        ("d", &[]),
        ("e", &[("team", "ops")]),
    ] {
        node.schedules().create_schedule(creation(labelled(name, labels))).await.expect("created");
        let trigger = TriggerScheduleRequest {
            name: name.to_owned(),
            request_id: format!("run of {name}").replace(' ', "-"),
            ..TriggerScheduleRequest::default()
        };
        node.schedules().trigger_schedule(trigger).await.expect("triggered");
    }
    let runs = |selector: &str| {
        let request = ListRunsRequest { selector: selector.to_owned(), ..ListRunsRequest::default() };
        let mut runs = node.runs();
        async move {
            let answer = runs.list_runs(request).await.expect("runs").into_inner();
            answer.runs.into_iter().map(|run| run.schedule).collect::<Vec<_>>()
        }
    };
    for (selector, expected) in [
        ("team=ops", &["a", "c", "e"][..]),
        ("team=ops,env!=dev", &["a", "e"]),
        ("!team", &["d"]),
        ("team,!env", &["b", "e"]),
        ("", &["a", "b", "c", "d", "e"]),
    ] {
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListSchedulesRequest {
                page_size: 2,
                page_token,
                selector: selector.to_owned(),
                ..ListSchedulesRequest::default()
            };
            let page = node.schedules().list_schedules(request).await.expect("a page").into_inner();
            names.extend(page.schedules.into_iter().map(|schedule| schedule.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(names, expected, "{selector}");
        let mut latest_first = expected.to_vec();
        latest_first.reverse();
        assert_eq!(runs(selector).await, latest_first, "runs of {selector}");
    }
    let wrong = ListSchedulesRequest { selector: "team=o p".to_owned(), ..ListSchedulesRequest::default() };
    let wrong = node.schedules().list_schedules(wrong).await.expect_err("no value of a label");
    assert_eq!(reason(&wrong), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));

    // A deleted schedule has no labels. A change of labels also applies to earlier runs.
    let delete = DeleteScheduleRequest { name: "e".to_owned(), ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(delete).await.expect("deleted");
    assert_eq!(runs("!team").await, ["e", "d"]);
    let change = UpdateScheduleRequest {
        schedule: Some(ScheduleBody {
            name: "b".to_owned(),
            labels: labelled("b", &[("env", "dev")]).labels,
            ..ScheduleBody::default()
        }),
        update_mask: Some(FieldMask { paths: vec!["labels.env".to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    let changed = node.schedules().update_schedule(change).await.expect("changed").into_inner();
    let (former, now) = (changed.former.expect("former"), changed.schedule.expect("now"));
    assert_eq!((former.labels.len(), now.labels.len()), (1, 2));
    assert_ne!(former.etag, now.etag);
    assert_eq!(former.next_instants, now.next_instants, "no instant moves");
    assert_eq!(runs("env=dev").await, ["c", "b"]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_is_paused_resumed_triggered_and_deleted() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let (tenant, name) = (String::new, || "report".to_owned());
    let pause = |validate_only| PauseScheduleRequest {
        tenant: tenant(),
        name: name(),
        reason: "holiday".to_owned(),
        validate_only,
    };
    let shown =
        node.schedules().pause_schedule(pause(true)).await.expect("checked").into_inner().schedule.expect("one");
    assert_eq!(shown.state(), ScheduleState::Active, "only checked");
    let paused =
        node.schedules().pause_schedule(pause(false)).await.expect("paused").into_inner().schedule.expect("one");
    let words = |paused: &v1::Schedule| paused.pause.as_ref().map(|pause| pause.text.clone()).unwrap_or_default();
    assert_eq!((paused.state(), words(&paused).as_str()), (ScheduleState::Paused, "holiday"));
    let again = PauseScheduleRequest { reason: String::new(), ..pause(false) };
    let paused = node.schedules().pause_schedule(again).await.expect("paused").into_inner().schedule.expect("one");
    assert_eq!((paused.state(), words(&paused).as_str()), (ScheduleState::Paused, "holiday"), "the reason stays");

    let resume = |etag: &str, validate_only| ResumeScheduleRequest {
        tenant: tenant(),
        name: name(),
        etag: etag.to_owned(),
        validate_only,
    };
    let stale = node.schedules().resume_schedule(resume("1.1", false)).await.expect_err("an old etag");
    assert_eq!(reason(&stale), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    let named = stale.get_details_error_info().and_then(|info| info.metadata.get("schedule").cloned());
    assert_eq!(named.as_deref(), Some("report"));
    let shown = node.schedules().resume_schedule(resume(&paused.etag, true)).await.expect("shown").into_inner();
    assert_eq!((shown.opens_count, shown.explained_count), (0, 0));
    assert_eq!(shown.schedule.map(|schedule| schedule.state()), Some(ScheduleState::Paused));
    let resumed = node.schedules().resume_schedule(resume("*", false)).await.expect("resumed").into_inner();
    assert_eq!(resumed.schedule.map(|schedule| schedule.state()), Some(ScheduleState::Active));
    let again = node.schedules().resume_schedule(resume("", false)).await.expect_err("not paused");
    assert_eq!(reason(&again), (Code::FailedPrecondition, "NOTHING_TO_DO".to_owned()));

    let trigger = |id: &str| TriggerScheduleRequest {
        tenant: tenant(),
        name: name(),
        request_id: id.to_owned(),
        ..TriggerScheduleRequest::default()
    };
    let dry_run = TriggerScheduleRequest { validate_only: true, ..trigger("one") };
    let would_be = node.schedules().trigger_schedule(dry_run).await.expect("checked").into_inner().run.expect("a run");
    assert_eq!((would_be.run.as_str(), would_be.audience, would_be.occurrence.as_str()), ("", 1, "trigger one"));
    assert_eq!(node.runs().list_runs(ListRunsRequest::default()).await.expect("runs").into_inner().runs.len(), 0);
    let nameless = node.schedules().trigger_schedule(trigger("")).await.expect_err("no request id");
    assert_eq!(
        nameless.message(),
        "request_id: is missing; it names the run, so that asking again opens no second one"
    );
    let mut runs = Vec::new();
    for id in ["one", "one", "two"] {
        let run =
            node.schedules().trigger_schedule(trigger(id)).await.expect("triggered").into_inner().run.expect("a run");
        assert_eq!((run.cause(), run.occurrence), (RunCause::Trigger, format!("trigger {id}")));
        // A second run while the first is not finished would be refused.
        node.until(&run.run, |run| run.finished_index.is_some()).await;
        runs.push(run.run);
    }
    let [one, again, two] = runs.as_slice() else { panic!("{runs:?}") };
    assert!(one == again && one != two);
    let request_id = "created".to_owned();
    let other = CreateScheduleRequest { request_id, ..creation(yearly("other", &["ada@example.net"])) };
    node.schedules().create_schedule(other).await.expect("created");
    // The same id for another schedule or another method is another request.
    for (id, validate_only) in [("one", true), ("one", false), ("created", true), ("created", false)] {
        let elsewhere = TriggerScheduleRequest { name: "other".to_owned(), validate_only, ..trigger(id) };
        let answer = node.schedules().trigger_schedule(elsewhere).await.expect("triggered").into_inner();
        if !validate_only {
            let run = answer.run.expect("a run");
            assert!(run.schedule == "other" && ![one, two].contains(&&run.run), "{id}: {run:?}");
            node.until(&run.run, |run| run.finished_index.is_some()).await;
        }
    }
    assert_eq!(node.sink.accepted_count(), 4, "P7: the same request never opens a second run");

    let (mut entries, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListScheduleHistoryRequest {
            name: name(),
            page_size: 1,
            page_token,
            ..ListScheduleHistoryRequest::default()
        };
        let page = node.schedules().list_schedule_history(request).await.expect("a page").into_inner();
        entries.extend(page.entries.into_iter().map(|entry| (entry.occurrence.clone(), entry.outcome())));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let fired = HistoryOutcome::Fired;
    assert_eq!(entries, [("trigger two".to_owned(), fired), ("trigger one".to_owned(), fired)], "latest first");

    let etag = "9.9".to_owned();
    let delete = DeleteScheduleRequest { tenant: tenant(), name: name(), etag, validate_only: false };
    for validate_only in [true, false] {
        let request = DeleteScheduleRequest { validate_only, ..delete.clone() };
        let refused = node.schedules().delete_schedule(request).await.expect_err("it has another etag");
        assert_eq!(reason(&refused), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    }
    let get = GetScheduleRequest { name: name(), ..GetScheduleRequest::default() };
    let known = node.schedules().get_schedule(get).await.expect("a schedule").into_inner().schedule;
    let delete = DeleteScheduleRequest { etag: known.expect("a schedule").etag, ..delete };
    let dry_run = DeleteScheduleRequest { validate_only: true, ..delete.clone() };
    assert_eq!(node.schedules().delete_schedule(dry_run).await.expect("checked").into_inner().index, 0);
    let deleted = node.schedules().delete_schedule(delete.clone()).await.expect("deleted").into_inner();
    assert!(deleted.index > 0 && deleted.open_runs.is_empty());
    assert_eq!(node.schedules().delete_schedule(delete).await.expect_err("gone").code(), Code::NotFound);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_opens_what_never_opened_and_nothing_twice() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let at = |text: &str| {
        let instant: jiff::Timestamp = text.parse().expect("an instant");
        Some(prost_types::Timestamp { seconds: instant.as_second(), nanos: 0 })
    };
    let request = |max, request_id: &str, validate_only| BackfillScheduleRequest {
        name: "report".to_owned(),
        start_time: at("2020-01-01T00:00:00Z"),
        end_time: at("2023-06-01T00:00:00Z"),
        max,
        request_id: request_id.to_owned(),
        validate_only,
        ..BackfillScheduleRequest::default()
    };
    let checked = node.schedules().backfill_schedule(request(0, "", true)).await.expect("checked").into_inner();
    assert_eq!((checked.opened, checked.opened_before, checked.first_run.as_str()), (4, 0, ""));
    assert_eq!(checked.last.map(|last| last.local), Some("2023-01-01T00:00:00+00:00".to_owned()));

    let first = node.schedules().backfill_schedule(request(3, "mine", false)).await.expect("opened").into_inner();
    assert_eq!((first.opened, first.rest_time), (3, at("2023-01-01T00:00:00Z")));
    let again = node.schedules().backfill_schedule(request(3, "mine", false)).await.expect("stored").into_inner();
    assert_eq!((again.opened, &again.first_run), (3, &first.first_run));
    let reused = node.schedules().backfill_schedule(request(4, "mine", false)).await.expect_err("another range");
    assert_eq!(reason(&reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    let rest = node.schedules().backfill_schedule(request(0, "", false)).await.expect("opened").into_inner();
    assert_eq!((rest.opened, rest.opened_before, rest.rest_time), (1, 3, None));
    let nothing = node.schedules().backfill_schedule(request(0, "", false)).await.expect("nothing").into_inner();
    assert_eq!((nothing.opened, nothing.opened_before), (0, 4));

    // A repeated request gets the whole first answer. So a client that lost it still learns where the rest begins.
    let again = node.schedules().backfill_schedule(request(3, "mine", false)).await.expect("stored").into_inner();
    assert_eq!(again, first);
    let more = || BackfillScheduleRequest { start_time: at("2019-01-01T00:00:00Z"), ..request(0, "more", false) };
    let more_of_it = node.schedules().backfill_schedule(more()).await.expect("opened").into_inner();
    assert_eq!((more_of_it.opened, more_of_it.opened_before), (1, 4));
    let again = node.schedules().backfill_schedule(more()).await.expect("stored").into_inner();
    assert_eq!(again, more_of_it);

    let run = node.until(&rest.first_run, |run| run.finished_index.is_some()).await;
    assert_eq!((run.cause(), run.counts.map(|counts| counts.sent)), (RunCause::Backfill, Some(1)));
    let history = ListScheduleHistoryRequest { name: "report".to_owned(), ..ListScheduleHistoryRequest::default() };
    let history = node.schedules().list_schedule_history(history).await.expect("a history").into_inner().entries;
    assert_eq!(history.len(), 5);
    assert!(history.iter().all(|entry| entry.cause() == RunCause::Backfill && entry.late.is_some()), "{history:?}");

    let ahead = BackfillScheduleRequest {
        start_time: at("2222-01-01T00:00:00Z"),
        end_time: at("2223-01-01T00:00:00Z"),
        ..request(0, "", true)
    };
    let ahead = node.schedules().backfill_schedule(ahead).await.expect_err("the future");
    assert!(ahead.message().starts_with("start_time: lies ahead"), "{}", ahead.message());
    node.stop().await;
}

/// A repeated request gets one answer (I7). The two requests overlap only by chance, so the test covers many years.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_that_is_asked_twice_at_once_is_answered_once() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    for year in 1980..2020 {
        let at = |day: &str| {
            let instant: jiff::Timestamp = format!("{year}-{day}T00:00:00Z").parse().expect("an instant");
            Some(prost_types::Timestamp { seconds: instant.as_second(), nanos: 0 })
        };
        let request = BackfillScheduleRequest {
            name: "report".to_owned(),
            start_time: at("01-01"),
            end_time: at("06-01"),
            request_id: format!("of-{year}"),
            ..BackfillScheduleRequest::default()
        };
        let mut requested = tokio::task::JoinSet::new();
        for later_us in [0, 300, 1_000, 2_000] {
            let (mut schedules, request) = (node.schedules(), request.clone());
            requested.spawn(async move {
                tokio::time::sleep(Duration::from_micros(later_us)).await;
                schedules.backfill_schedule(request).await.expect("an answer").into_inner()
            });
        }
        let answers = requested.join_all().await;
        assert_eq!(answers[0].opened, 1);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_by_another_zone_database_is_corrected_by_leader() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let plan = || {
        let query =
            |ledger: &Ledger| ledger.schedule_named("default", "report").map(|(id, known)| (id, known.plan.clone()));
        node.context().replica.read(query).expect("a schedule")
    };
    let (schedule, right) = plan();
    let from = right.next.clone().expect("it is planned");
    let next = Some(NextInstant { due: from.due.plus_ms(3_600_000), ..from.clone() });
    let older = Replan { schedule, plan_version: right.version, from, next, tzdb: "2025a".to_owned() };
    let reply = node.context().replica.propose(&Command::Replan(vec![older]), Instant::now() + STEP_TIMEOUT).await;
    assert_eq!(reply.expect("an answer").outcome, CommandOutcome::Changed(1));
    let end = Instant::now() + STEP_TIMEOUT;
    while plan().1.next != right.next {
        assert!(Instant::now() < end, "not within {STEP_TIMEOUT:?}: {:?}", plan());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(&*plan().1.tzdb, "2026x", "by the leader's own");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_reports_unknown_schedule_and_finds_deleted_one() {
    let node = node("").await;
    node.triggered("morning", &["ada@example.net"], "").await;
    let runs_of = |schedule: &str| ListRunsRequest { schedule: schedule.to_owned(), ..ListRunsRequest::default() };
    for (name, message) in
        [("mornin", "no schedule named 'mornin'; did you mean morning?"), ("a\nb", "no schedule named 'a\\nb'")]
    {
        let refused = node.runs().list_runs(runs_of(name)).await.expect_err("no schedule");
        assert_eq!((refused.message(), reason(&refused)), (message, (Code::NotFound, "SCHEDULE_NOT_FOUND".to_owned())));
        let letters = v1::DeadLetterFilter { schedule: name.to_owned(), ..Default::default() };
        let letters = v1::ListDeadLettersRequest { filter: Some(letters), ..Default::default() };
        let refused = node.dead_letters().list_dead_letters(letters).await.expect_err("no schedule");
        assert_eq!(refused.message(), message);
        let get = GetScheduleRequest { name: name.to_owned(), ..GetScheduleRequest::default() };
        assert_eq!(node.schedules().get_schedule(get).await.expect_err("no schedule").message(), message);
    }
    let delete = DeleteScheduleRequest { name: "morning".to_owned(), ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(delete).await.expect("deleted");
    let left = node.runs().list_runs(runs_of("morning")).await.expect("its runs stay").into_inner();
    assert_eq!(left.runs.len(), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_listed_since_an_instant() {
    let node = node("").await;
    let first = node.triggered("first", &["ada@example.net"], "").await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let second = node.triggered("second", &["ada@example.net"], "").await;
    for (since, expected) in [(first.open_time, vec!["second", "first"]), (second.open_time, vec!["second"])] {
        let request = ListRunsRequest { since_time: since, ..ListRunsRequest::default() };
        let runs = node.runs().list_runs(request).await.expect("a list").into_inner().runs;
        assert_eq!(runs.iter().map(|run| run.schedule.as_str()).collect::<Vec<_>>(), expected);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_creations_at_once_is_the_one_that_created() {
    let node = node("").await;
    for round in 0..10 {
        let mut creations = JoinSet::new();
        for caller in 0..8 {
            let mut schedules = node.schedules();
            let schedule = Some(yearly(&format!("s{round}"), &["ada@example.net"]));
            let request_id = if round % 2 == 0 { String::new() } else { format!("{round}-{caller}") };
            let request = CreateScheduleRequest { schedule, request_id, validate_only: false };
            creations.spawn(async move { schedules.create_schedule(request).await.expect("answered").into_inner() });
        }
        let answers = creations.join_all().await;
        let numbers: BTreeSet<u64> = answers.iter().filter_map(|one| Some(one.schedule.as_ref()?.number)).collect();
        let created = answers.iter().filter(|one| one.created).count();
        assert_eq!((numbers.len(), created), (1, 1), "round {round}");
    }
    node.stop().await;
}
