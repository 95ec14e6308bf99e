//! Test emails: sent once, in the same way as all emails, and with the relay's reply.

use reveille_proto::admin::v1::{
    AddOptOutRequest, ExplainRequest, ExplainResponse, ExplainedEventKind as Kind, ListRunsRequest,
    ListSchedulesRequest, Policies, RecipientState, RunCause, ScheduleBody, SendTestRequest,
};
use tonic::Code;

use super::harness::{Node, node, reason, yearly};
use crate::cli::wording::explained;

fn mail(id: &str, to: &str) -> SendTestRequest {
    SendTestRequest {
        schedule: Some(ScheduleBody { timing: None, name: String::new(), zone: String::new(), ..yearly("", &[to]) }),
        finish_within: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
        request_id: id.to_owned(),
        validate_only: false,
    }
}

/// Sends a test email, and returns its history once it is settled.
async fn sent(node: &Node, request: SendTestRequest) -> ExplainResponse {
    let answer = node.schedules().send_test(request).await.expect("opened").into_inner();
    let run = answer.run.expect("a run").run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.pending + counts.claimed == 0)).await;
    let request = ExplainRequest { run, recipient: "#0".to_owned(), ..ExplainRequest::default() };
    node.runs().explain(request).await.expect("a story").into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_accepted_once_and_leaves_a_run_and_no_schedule() {
    let node = node("").await;
    let checked = SendTestRequest { validate_only: true, ..mail("one", "ada@example.net") };
    assert_eq!(node.schedules().send_test(checked).await.expect("checked").into_inner().run, None);
    let history = sent(&node, mail("one", "ada@example.net")).await;
    assert_eq!((history.recipient.as_str(), history.state()), ("ada@example.net", RecipientState::Sent));
    let taken = history.events.iter().find(|event| event.kind() == Kind::Sent).expect("it was sent");
    assert_eq!((taken.relay.as_str(), taken.code), ("mailbox", 250), "{taken:?}");
    let answer = [taken.enhanced.as_str(), taken.text.as_str()].join(" ");
    let answer = answer.trim_start();
    assert!(!taken.text.is_empty() && explained(taken) == format!("mailbox answered 250 {answer}"), "{taken:?}");
    assert!(!taken.text.starts_with("2."), "its code is a field of its own, as a refusal's is: {taken:?}");

    let again = sent(&node, mail("one", "ada@example.net")).await;
    assert_eq!((again.run, node.sink.accepted_count()), (history.run.clone(), 1), "the same request is the same mail");
    let other = node.schedules().send_test(mail("one", "bob@example.net")).await.expect_err("another email");
    assert_eq!(reason(&other), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));

    let schedules =
        node.schedules().list_schedules(ListSchedulesRequest::default()).await.expect("a list").into_inner();
    assert_eq!(schedules.schedules.len(), 0);
    let runs = node.runs().list_runs(ListRunsRequest::default()).await.expect("a list").into_inner().runs;
    let causes: Vec<_> = runs.iter().map(|run| (run.schedule.as_str(), run.cause())).collect();
    assert_eq!(causes, [("", RunCause::Test)]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_refusal_is_answered_and_unsent_test_email_expires() {
    let node = node("rcpt:550").await;
    let history = sent(&node, mail("one", "ada@example.net")).await;
    assert_eq!(history.state(), RecipientState::Dead, "{history:?}");
    let refused = history.events.iter().find(|event| event.kind() == Kind::Refused).expect("it was refused");
    assert_eq!((refused.code, refused.text.is_empty()), (550, false), "{refused:?}");
    let requested = history.events.iter().position(|event| event.kind() == Kind::Asked).expect("a relay was asked");
    assert_eq!(
        (history.events[requested].relay.as_str(), history.events[requested + 1].kind()),
        ("mailbox", Kind::Refused)
    );

    let unserved = SendTestRequest {
        finish_within: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..mail("two", "ada@example.net")
    };
    let body = unserved.schedule.clone().map(|body| ScheduleBody { pool: "unserved".to_owned(), ..body });
    let history = sent(&node, SendTestRequest { schedule: body, ..unserved }).await;
    assert_eq!(history.state(), RecipientState::Expired, "{history:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opt_out_holds_and_what_is_wrong_is_named() {
    let node = node("").await;
    let out = AddOptOutRequest { recipient: "ada@example.net".to_owned(), ..AddOptOutRequest::default() };
    node.opt_outs().add_opt_out(out).await.expect("opted out");
    let dry_run = |to: &str| SendTestRequest { validate_only: true, ..mail("one", to) };
    let checked = node.schedules().send_test(dry_run("Ada@Example.net")).await.expect("checked").into_inner();
    assert!(checked.opted_out, "a dry run looks where the deed does");
    assert!(!node.schedules().send_test(dry_run("bob@example.net")).await.expect("checked").into_inner().opted_out);
    let history = sent(&node, mail("one", "ada@example.net")).await;
    assert_eq!((history.state(), node.sink.accepted_count()), (RecipientState::Suppressed, 0));

    let wrong = |request: SendTestRequest| async {
        let refused = node.schedules().send_test(request).await.expect_err("it is wrong");
        assert_eq!(reason(&refused).1, "INVALID_FIELD");
        refused.message().to_owned()
    };
    let none = ScheduleBody { audience: None, ..mail("x", "a@example.net").schedule.expect("a body") };
    let none = SendTestRequest { schedule: Some(none), ..mail("x", "") };
    assert!(wrong(none).await.starts_with("schedule.audience.recipients: 0 are given"));
    let body = mail("x", "a@example.net").schedule.expect("a body");
    for (field, body) in [
        ("name", ScheduleBody { name: "news".to_owned(), ..body.clone() }),
        ("timing", ScheduleBody { timing: yearly("", &[]).timing, ..body.clone() }),
        ("zone", ScheduleBody { zone: "UTC".to_owned(), ..body.clone() }),
        ("start_time", ScheduleBody { start_time: Some(prost_types::Timestamp::default()), ..body.clone() }),
        ("end_time", ScheduleBody { end_time: Some(prost_types::Timestamp::default()), ..body.clone() }),
        ("max_runs", ScheduleBody { max_runs: Some(1), ..body.clone() }),
        ("policies", ScheduleBody { policies: Some(Policies::default()), ..body.clone() }),
        ("priority", ScheduleBody { priority: 1, ..body.clone() }),
        ("paused", ScheduleBody { paused: Some(String::new()), ..body.clone() }),
        ("labels", ScheduleBody { labels: [("a".to_owned(), "b".to_owned())].into(), ..body.clone() }),
    ] {
        let said = wrong(SendTestRequest { schedule: Some(body), ..mail("x", "a@example.net") }).await;
        assert!(said.starts_with(&format!("schedule.{field}: is given, but a test email has none")), "{said}");
    }
    assert!(wrong(mail("", "a@example.net")).await.starts_with("request_id: is missing"));
    assert!(wrong(mail("x", "postmaster")).await.starts_with("schedule.audience.recipients[0].address: "));
    let long = Some(prost_types::Duration { seconds: 3_601, nanos: 0 });
    let long = SendTestRequest { finish_within: long, ..mail("x", "a@example.net") };
    assert!(wrong(long).await.starts_with("finish_within: is 3601 s"));
    node.stop().await;
}
