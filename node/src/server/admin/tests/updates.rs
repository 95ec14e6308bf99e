//! Updates of a schedule: only the named fields change, once, and only on the version that was read.

use std::sync::Arc;

use prost_types::FieldMask;
use reveille_proto::admin::v1::{
    Content, Daily, Every, GetScheduleRequest, ListRunsRequest, Policies, PutScheduleRequest, PutScheduleResponse,
    Schedule, ScheduleBody, ScheduleState, UpdateScheduleRequest, UpdateScheduleResponse, When, when,
};
use tonic::{Code, Status};

use super::harness::{Node, creation, node, node_by, reason, yearly};
use super::wrong_clock::WrongClock;

fn update(paths: &[&str], body: ScheduleBody) -> UpdateScheduleRequest {
    UpdateScheduleRequest {
        schedule: Some(ScheduleBody { name: "report".to_owned(), ..body }),
        update_mask: Some(FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }),
        ..UpdateScheduleRequest::default()
    }
}

fn cron(expression: &str) -> ScheduleBody {
    let pattern = when::Pattern::Cron(expression.to_owned());
    ScheduleBody { timing: Some(When { pattern: Some(pattern) }), ..ScheduleBody::default() }
}

async fn done(node: &Node, request: UpdateScheduleRequest) -> (Schedule, Schedule) {
    let answer = node.schedules().update_schedule(request).await.expect("an update").into_inner();
    let UpdateScheduleResponse { schedule, former, .. } = answer;
    // `now` differs between answers.
    let but_for_now = |schedule: Option<Schedule>| Schedule { read_time: None, ..schedule.expect("a schedule") };
    (but_for_now(former), but_for_now(schedule))
}

/// `H` is derived once from tenant and name. Its value is shown, and no other change moves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drawn_place_stays_through_updates() {
    let node = node("").await;
    let body = ScheduleBody { timing: cron("H H(0-7) * * *").timing, ..yearly("report", &["ada@example.net"]) };
    let created = node.schedules().create_schedule(creation(body.clone())).await.expect("created").into_inner();
    let created = created.schedule.expect("a schedule");
    assert_eq!(created.hashed_cron, "20 3 * * *");
    assert_eq!(created.timing, body.timing, "it is shown as it was written, too");
    assert!(created.next_instants.iter().all(|next| next.local.contains("T03:20:00")), "{:?}", created.next_instants);
    let (_, subject) =
        done(&node, update(&["priority"], ScheduleBody { priority: 9, ..ScheduleBody::default() })).await;
    assert_eq!((&subject.hashed_cron, &subject.next_instants), (&created.hashed_cron, &created.next_instants));
    let (former, other) = done(&node, update(&["timing"], cron("H/30 9 * * *"))).await;
    assert_eq!(former.hashed_cron, "20 3 * * *");
    assert_eq!(other.hashed_cron, "10-59/30 9 * * *");
    let (_, plain) = done(&node, update(&["timing"], cron("5 9 * * *"))).await;
    assert_eq!(plain.hashed_cron, "");
    let again = node.schedules().create_schedule(creation(ScheduleBody { priority: 9, ..body })).await;
    assert!(again.is_err(), "another body by now");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_changes_named_fields_and_open_run_keeps_its_own() {
    let node = node("").await;
    let run = node.triggered("report", &["ada@example.net"], "nowhere").await;
    let content = Content { subject: "Other".to_owned(), sender: "ignored".to_owned(), ..Content::default() };
    let policies = Policies { max_attempts: 2, ..Policies::default() };
    let body = ScheduleBody {
        content: Some(content),
        policies: Some(policies),
        pool: "default".to_owned(),
        ..cron("0 9 * * *")
    };
    let paths = ["content.subject", "policies.max_attempts", "timing", "pool"];
    let dry_run = UpdateScheduleRequest { validate_only: true, ..update(&paths, body.clone()) };
    let (former, would_be) = done(&node, dry_run).await;
    assert_eq!(former.next_instants.first().map(|next| next.local.contains("-01-01T00:00")), Some(true), "{former:?}");
    assert!(would_be.next_instants.iter().all(|next| next.local.contains("T09:00:00")), "{:?}", would_be.next_instants);

    let (same, changed) = done(&node, update(&paths, body)).await;
    assert_eq!(same, former, "a dry run changed nothing");
    assert_eq!(changed.next_instants, would_be.next_instants);
    assert_ne!(changed.content_hash, former.content_hash);
    assert_eq!(changed.audience_hash, former.audience_hash);
    let attempts = |schedule: &Schedule| schedule.policies.as_ref().map(|policies| policies.max_attempts);
    assert_eq!((attempts(&former), attempts(&changed)), (Some(5), Some(2)));
    assert_ne!(changed.etag, former.etag);

    // The open run stays in the pool with which it opened. The next run is sent with the new subject.
    let second = trigger(&node, "second").await;
    node.until(&second, |run| run.finished_index.is_some()).await;
    let waiting = node.until(&run.run, |_| true).await;
    assert_eq!(waiting.counts.map(|counts| counts.pending), Some(1));
    node.stop().await;
}

async fn trigger(node: &Node, request_id: &str) -> String {
    let request = reveille_proto::admin::v1::TriggerScheduleRequest {
        tenant: String::new(),
        name: "report".to_owned(),
        request_id: request_id.to_owned(),
        ..Default::default()
    };
    let answer = node.schedules().trigger_schedule(request).await.expect("triggered").into_inner();
    answer.run.expect("a run").run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_creates_or_replaces_and_its_repeat_changes_nothing() {
    let node = node("").await;
    let body = |priority| ScheduleBody { priority, paused: Some("later".into()), ..yearly("report", &["a@x.example"]) };
    let put = async |body: ScheduleBody, etag: &str, validate_only| {
        let request = PutScheduleRequest { schedule: Some(body), etag: etag.to_owned(), validate_only };
        let mut put = node.schedules().put_schedule(request).await?.into_inner();
        // The time of the answer is no part of the schedule.
        put.schedule.iter_mut().for_each(|schedule| schedule.read_time = None);
        Ok(put)
    };
    let is_stale = |answer: Result<PutScheduleResponse, Status>| {
        let refused = answer.expect_err("the etag is another one");
        assert_eq!(reason(&refused), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    };
    is_stale(put(body(1), "*", false).await);
    let dry = put(body(1), "0", true).await.expect("it can be put");
    assert_eq!((dry.created, dry.schedule.expect("as it would be").number), (false, 0));
    let first = put(body(1), "0", false).await.expect("put");
    let schedule = first.schedule.expect("a schedule");
    assert_eq!((first.created, schedule.priority, schedule.state()), (true, 1, ScheduleState::Paused));
    for etag in ["", "0", "*", &schedule.etag, "9.9"] {
        let again = put(body(1), etag, false).await.expect("a repeat is answered, whatever its etag is");
        assert_eq!((again.created, again.schedule.as_ref()), (false, Some(&schedule)), "{etag}");
    }
    is_stale(put(body(2), "0", false).await);
    is_stale(put(body(2), "9.9", false).await);

    // What the body does not have gets its default, except that it stays paused.
    let content = Content { subject: "Other".into(), ..body(1).content.expect("a content") };
    let other = ScheduleBody { content: Some(content), paused: None, zone: "Asia/Tokyo".into(), ..body(0) };
    let dry = put(other.clone(), &schedule.etag, true).await.expect("it can be put").schedule.expect("as it would be");
    let put_again = put(other.clone(), &schedule.etag, false).await.expect("put");
    let changed = put_again.schedule.expect("a schedule");
    assert_eq!((put_again.created, changed.priority, changed.state()), (false, 0, ScheduleState::Paused));
    assert_eq!((changed.number, changed.zone.as_str(), &dry.zone), (schedule.number, "Asia/Tokyo", &changed.zone));
    assert_ne!(changed.content_hash, schedule.content_hash);
    is_stale(put(body(1), &schedule.etag, false).await);
    let refused = put(ScheduleBody { zone: "Europe/Atlantis".into(), ..other }, "", false).await.expect_err("no zone");
    assert_eq!(reason(&refused).0, Code::InvalidArgument);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_etag_is_a_conflict_that_names_the_present_one() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let priority = |priority, etag: &str, request_id: &str| UpdateScheduleRequest {
        etag: etag.to_owned(),
        request_id: request_id.to_owned(),
        ..update(&["priority"], ScheduleBody { priority, ..ScheduleBody::default() })
    };
    let (former, first) = done(&node, priority(7, "", "mine")).await;
    let stale = node.schedules().update_schedule(priority(8, &former.etag, "")).await.expect_err("stale");
    assert_eq!(reason(&stale), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    assert!(stale.message().contains(&first.etag) && stale.message().contains(&former.etag), "{}", stale.message());

    // A repeated request gets the first answer, whatever the etag is now. Another request with its id is refused.
    let (_, again) = done(&node, priority(7, &former.etag, "mine")).await;
    assert_eq!((again.priority, &again.etag), (7, &first.etag));
    let reused = node.schedules().update_schedule(priority(9, "", "mine")).await.expect_err("another change");
    assert_eq!(reason(&reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));

    // An update without effect is not a change, so etags stay valid.
    let (_, same) = done(&node, priority(7, "*", "")).await;
    assert_eq!(same, again);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_to_invalid_schedule_is_refused() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let refused = |request| {
        let mut schedules = node.schedules();
        async move { schedules.update_schedule(request).await.expect_err("refused").message().to_owned() }
    };
    let template = Content { subject: "{{ unknown }}".to_owned(), ..Content::default() };
    let body = ScheduleBody { content: Some(template), ..ScheduleBody::default() };
    assert!(refused(update(&["content.subject"], body)).await.contains("schedule.content.subject"));
    assert!(refused(update(&["timing"], cron("0 9 31 2 *"))).await.contains("schedule.timing.cron"));
    assert!(refused(update(&["zone"], ScheduleBody::default())).await.contains("schedule.zone: is missing"));
    assert!(refused(update(&["name"], ScheduleBody::default())).await.contains("can not be changed"));
    assert!(refused(update(&[], ScheduleBody::default())).await.contains("names nothing"));
    let past = Some(prost_types::Timestamp { seconds: 1_000, nanos: 0 });
    let over = refused(update(&["end_time"], ScheduleBody { end_time: past, ..ScheduleBody::default() })).await;
    assert!(over.contains("schedule.timing: has no instant after now"), "{over}");
    let gone = UpdateScheduleRequest {
        schedule: Some(ScheduleBody { name: "missing".to_owned(), ..ScheduleBody::default() }),
        ..update(&["pool"], ScheduleBody::default())
    };
    let gone = node.schedules().update_schedule(gone).await.expect_err("there is none");
    assert_eq!(reason(&gone), (Code::NotFound, "SCHEDULE_NOT_FOUND".to_owned()));
    let runs = node.runs().list_runs(ListRunsRequest::default()).await.expect("a list").into_inner().runs;
    assert!(runs.is_empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_ahead_of_ledger_time_hinders_no_other_timing() {
    let clock = Arc::new(WrongClock::default());
    let node = node_by(&clock).await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    // Ledger time follows the clock by a thousandth, so it is behind for hours.
    clock.set_ahead(30_000);
    let (_, changed) = done(&node, update(&["timing"], cron("0 9 * * *"))).await;
    assert!(changed.next_instants.iter().all(|next| next.local.contains("T09:00:00")), "{:?}", changed.next_instants);
    // The same holds with an etag, because the schedule has not changed.
    let with_etag = UpdateScheduleRequest { etag: changed.etag.clone(), ..update(&["timing"], cron("0 10 * * *")) };
    let (_, changed) = done(&node, with_etag).await;
    assert!(changed.next_instants.iter().all(|next| next.local.contains("T10:00:00")), "{:?}", changed.next_instants);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_of_a_schedule_applied_again_changes_nothing() {
    let node = node("").await;
    node.schedules().create_schedule(creation(yearly("report", &["ada@example.net"]))).await.expect("created");
    let get = |with_body| GetScheduleRequest { name: "report".to_owned(), with_body, ..GetScheduleRequest::default() };
    let short = node.schedules().get_schedule(get(false)).await.expect("there").into_inner();
    assert_eq!(short.body, None);
    let whole = node.schedules().get_schedule(get(true)).await.expect("there").into_inner();
    let body = whole.body.expect("its body");
    assert_eq!(body.audience.as_ref().map(|audience| audience.recipients.len()), Some(1));

    let paths =
        ["timing", "zone", "start_time", "end_time", "max_runs", "policies", "pool", "priority", "content", "audience"];
    let again = UpdateScheduleRequest { with_bodies: true, ..update(&paths, body.clone()) };
    let answer = node.schedules().update_schedule(again).await.expect("an update").into_inner();
    assert_eq!((answer.former_body, answer.body), (Some(body.clone()), Some(body.clone())));
    assert_eq!(answer.schedule.map(|schedule| schedule.etag), answer.former.map(|former| former.etag));

    let other = update(&["priority"], ScheduleBody { priority: 4, ..ScheduleBody::default() });
    let dry_run = UpdateScheduleRequest { with_bodies: true, validate_only: true, ..other };
    let answer = node.schedules().update_schedule(dry_run).await.expect("checked").into_inner();
    assert_eq!(answer.body, Some(ScheduleBody { priority: 4, ..body.clone() }));
    assert_eq!(answer.former_body, Some(body));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timing_part_that_is_not_named_stays() {
    let node = node("").await;
    let timed = |pattern: when::Pattern| ScheduleBody {
        timing: Some(When { pattern: Some(pattern) }),
        ..ScheduleBody::default()
    };
    let daily = |hour, days: &str| when::Pattern::Daily(Daily { hour, minute: 0, days: days.to_owned() });
    let body = ScheduleBody { timing: timed(daily(9, "mon-fri")).timing, ..yearly("report", &["ada@example.net"]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");

    let (_, later) = done(&node, update(&["timing.daily.hour", "timing.daily.minute"], timed(daily(10, "")))).await;
    assert_eq!(later.timing, timed(daily(10, "mon,tue,wed,thu,fri")).timing);
    let (_, saturday) = done(&node, update(&["timing.daily.days"], timed(daily(0, "sat")))).await;
    assert_eq!(saturday.timing, timed(daily(10, "sat")).timing);

    let hours = |hours: i64| Some(prost_types::Duration { seconds: hours * 3_600, nanos: 0 });
    let anchor = Some(prost_types::Timestamp { seconds: 1_795_510_800, nanos: 0 });
    let every = |period, anchor| when::Pattern::Every(Every { period, anchor_time: anchor });
    let alone = update(&["timing.every.anchor_time"], timed(every(None, anchor)));
    let refused = node.schedules().update_schedule(alone).await.expect_err("the schedule is daily");
    assert!(refused.message().contains("schedule.timing.every"), "{refused}");
    let both = update(&["timing.every.period", "timing.every.anchor_time"], timed(every(hours(36), anchor)));
    let (_, periodic) = done(&node, both).await;
    assert_eq!(periodic.timing, timed(every(hours(36), anchor)).timing);
    let (_, longer) = done(&node, update(&["timing.every.period"], timed(every(hours(48), None)))).await;
    assert_eq!(longer.timing, timed(every(hours(48), anchor)).timing, "the anchor stays");
    let alone = update(&["timing.daily.days"], timed(daily(0, "sat")));
    let refused = node.schedules().update_schedule(alone).await.expect_err("the schedule is periodic");
    assert!(refused.message().contains("the schedule is not daily"), "{refused}");
    node.stop().await;
}
