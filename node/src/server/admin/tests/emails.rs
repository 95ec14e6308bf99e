//! Emails from the schedule to the mailbox, and their history.

use prost_types::Timestamp;
use reveille_proto::admin::v1::{
    AddRelayRequest, ExplainRequest, ExplainedEvent, ExplainedEventKind as Kind, GetRelayRequest, GetRunRequest,
    HistoryOutcome, ListRelaysRequest, ListScheduleHistoryRequest, RecipientState, Relay, RunCause, RunState,
    ScheduleBody, ScheduleState, TestRelayRequest, WarningReason, WatchRunRequest, When, when,
};
use tonic::Code;

use super::harness::{creation, node, reason, yearly};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_run_is_sent_once_and_every_step_is_explained() {
    let node = node("").await;
    let due = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let at = Timestamp { seconds: due.as_second(), nanos: 0 };
    let body = ScheduleBody {
        timing: Some(When { pattern: Some(when::Pattern::At(at)) }),
        zone: "Europe/Berlin".to_owned(),
        ..yearly("campaign", &["ada@example.net", "bob@example.net", "ADA@example.net"])
    };
    let created = node.schedules().create_schedule(creation(body)).await.expect("created").into_inner();
    assert!(created.created && created.duplicates.len() == 1);
    let schedule = created.schedule.expect("a schedule");
    assert_eq!((schedule.state(), schedule.recipients, schedule.next_instants.len()), (ScheduleState::Active, 2, 1));

    let run = node.first_run("campaign").await;
    let watch = WatchRunRequest { run: run.run.clone(), ..WatchRunRequest::default() };
    let mut watched = node.runs().watch_run(watch).await.expect("a stream").into_inner();
    let mut last = None;
    while let Some(state) = watched.message().await.expect("a state") {
        last = state.run;
    }
    let last = last.expect("a last state");
    let counts = last.counts.expect("counts");
    assert_eq!((last.state(), counts.sent, last.audience), (RunState::Finished, 2, 2), "{last:?}");
    assert_eq!(node.sink.accepted_count(), 2);

    // A run can be named by its schedule and its instant, in UTC or in local time of Berlin.
    let occurrence = jiff::Timestamp::from_second(at.seconds).expect("an instant");
    let local = occurrence.to_zoned(jiff::tz::TimeZone::get("Europe/Berlin").expect("a zone")).datetime();
    for name in [format!("campaign@{occurrence}"), format!("campaign@{local}"), run.run.clone()] {
        let request = GetRunRequest { run: name.clone(), ..GetRunRequest::default() };
        let found = node.runs().get_run(request).await.expect(&name).into_inner();
        assert_eq!(found.run.map(|found| found.run), Some(run.run.clone()), "{name}");
    }

    for recipient in ["Bob@example.net", "#1"] {
        let request =
            ExplainRequest { run: run.run.clone(), recipient: recipient.to_owned(), ..ExplainRequest::default() };
        let explanation = node.runs().explain(request).await.expect("a story").into_inner();
        assert_eq!(
            (explanation.recipient.as_str(), explanation.number, explanation.state()),
            ("bob@example.net", 1, RecipientState::Sent)
        );
        let events: Vec<Kind> = explanation.events.iter().map(ExplainedEvent::kind).collect();
        assert_eq!(events, [Kind::Opened, Kind::Claimed, Kind::Sent]);
        assert!(explanation.events.is_sorted_by_key(|event| event.index));
        assert_eq!(explanation.events.last().map(|event| event.node.as_str()), Some("node-1"));
    }
    let stranger =
        ExplainRequest { run: run.run.clone(), recipient: "eve@example.net".to_owned(), ..ExplainRequest::default() };
    let stranger = node.runs().explain(stranger).await.expect_err("not in the audience");
    assert_eq!(reason(&stranger), (Code::NotFound, "RECIPIENT_NOT_FOUND".to_owned()));

    let request = ListScheduleHistoryRequest { name: "campaign".to_owned(), ..ListScheduleHistoryRequest::default() };
    let history = node.schedules().list_schedule_history(request).await.expect("a history").into_inner();
    let [entry] = history.entries.as_slice() else { panic!("{history:?}") };
    assert_eq!(
        (entry.outcome(), entry.run.as_str(), entry.cause(), entry.late),
        (HistoryOutcome::Fired, run.run.as_str(), RunCause::Due, None)
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_are_added_compared_tested_and_removed() {
    let node = node("").await;
    let relay = node.relay();
    let add =
        |relay: &Relay, replace| AddRelayRequest { relay: Some(relay.clone()), replace, ..AddRelayRequest::default() };
    let same = node.relays().add_relay(add(&relay, false)).await.expect("the same").into_inner();
    assert_eq!(same.relay.as_ref().map(|relay| (relay.pool.as_str(), relay.max_sessions)), Some(("default", 10)));
    let slower = Relay { rate_per_second: 0.5, ..relay };
    let taken = node.relays().add_relay(add(&slower, false)).await.expect_err("another body");
    assert_eq!(reason(&taken), (Code::AlreadyExists, "NAME_TAKEN".to_owned()));
    let replace = || AddRelayRequest { request_id: "018f-9".to_owned(), ..add(&slower, true) };
    let first = node.relays().add_relay(replace()).await.expect("replaced").into_inner();
    let again = node.relays().add_relay(replace()).await.expect("the same").into_inner();
    assert_eq!(first, again, "the answer that was stored");
    let other = AddRelayRequest { request_id: "018f-9".to_owned(), ..add(&Relay { port: 26, ..slower.clone() }, true) };
    let reused = node.relays().add_relay(other).await.expect_err("the same id for another relay");
    assert_eq!(reason(&reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    let listed = node.relays().list_relays(ListRelaysRequest::default()).await.expect("a list").into_inner();
    assert_eq!(listed.relays.iter().map(|relay| relay.rate_per_second).collect::<Vec<_>>(), [0.5]);

    let test = TestRelayRequest { name: "mailbox".to_owned(), stale: false, authenticate: false };
    let found = node.relays().test_relay(test.clone()).await.expect("tested").into_inner();
    assert!(found.reachable && found.banner.contains("sink.test"), "{found:?}");
    assert!(found.extensions.iter().any(|keyword| keyword == "PIPELINING"), "{found:?}");
    assert_eq!(node.sink.accepted_count(), 0, "a test offers no mail");
    node.sink.set_faults("banner:554".parse().expect("a plan"));
    let refused = node.relays().test_relay(test).await.expect("tested").into_inner();
    assert!(!refused.reachable && refused.problem.starts_with("refused at the greeting: 554"), "{refused:?}");

    let remove = reveille_proto::admin::v1::RemoveRelayRequest { name: "mailbox".to_owned(), ..Default::default() };
    let unused = node.relays().remove_relay(remove.clone()).await.expect("removed").into_inner();
    assert_eq!(unused.warnings, [], "nothing sends by its pool");
    node.relays().add_relay(add(&slower, false)).await.expect("added");
    node.schedules().create_schedule(creation(yearly("daily", &["ada@example.net"]))).await.expect("created");
    let used = node.relays().remove_relay(remove.clone()).await.expect("removed").into_inner();
    let [warning] = used.warnings.as_slice() else { panic!("{used:?}") };
    assert_eq!((warning.reason(), warning.pool.as_str()), (WarningReason::NoRelay, "default"));
    let gone = node.relays().remove_relay(remove).await.expect_err("gone");
    assert_eq!(reason(&gone), (Code::NotFound, "RELAY_NOT_FOUND".to_owned()));
    let get = GetRelayRequest { name: "mailbox".to_owned(), stale: true };
    assert_eq!(node.relays().get_relay(get).await.expect_err("gone").code(), Code::NotFound);
    node.stop().await;
}
