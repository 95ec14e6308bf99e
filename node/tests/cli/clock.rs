//! `clock`: requests and output, and what an interrupted advance means.

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::json;
use tonic::Code;

use crate::fake::{Fake, refusal};

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn word(now: i64, done: bool) -> Vec<u8> {
    let (from, now, to) = (at(0), at(now), at(86_400));
    v1::AdvanceClockResponse {
        former_time: from,
        current_time: now,
        target_time: to,
        steps: 3,
        fired: 2,
        done,
        ..Default::default()
    }
    .encode_to_vec()
}

#[tokio::test]
async fn clock_is_shown() {
    let offset = Some(prost_types::Duration { seconds: 72_000, nanos: 0 });
    let fake =
        Fake::answering("GetClock", v1::GetClockResponse { current_time: at(0), offset, ..Default::default() }).await;
    let json = fake.reveille("clock show -o json").await.json();
    assert_eq!(json, json!({"currentTime": "1970-01-01T00:00:00Z", "offset": "72000s"}));
}

#[tokio::test]
async fn how_far_an_instant_is_counts_from_the_clock_of_the_cluster() {
    // 22 hours ahead by the cluster's clock, which is decades away from this machine's clock.
    let next = vec![v1::Instant { time: at(79_200), local: "1970-01-01T22:00:00".into(), ..Default::default() }];
    let schedule = v1::Schedule { name: "g".into(), next_instants: next, read_time: at(0), ..Default::default() };
    let reported = Some(schedule.clone());
    let shown =
        Fake::answering("GetSchedule", v1::GetScheduleResponse { schedule: reported.clone(), ..Default::default() });
    let resumed = v1::ResumeScheduleResponse { schedule: reported.clone(), ..Default::default() };
    let created = v1::CreateScheduleResponse { schedule: reported, ..Default::default() };
    let create = "schedule create g --daily 22:00 --zone UTC --to a@b.example --sender a@b.example --subject s \
                  --inline-text t --dry-run";
    for (fake, line) in [
        (shown.await, "schedule show g"),
        (Fake::answering("ResumeSchedule", resumed).await, "schedule resume g --dry-run"),
        (Fake::answering("CreateSchedule", created).await, create),
    ] {
        let ended = fake.reveille(line).await;
        assert!(ended.stdout.contains(" in 22h"), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn advance_prints_one_object() {
    let fake = Fake::start(|_, _| Ok(vec![word(3_600, false), word(86_400, true)])).await;
    let ended = fake.reveille("clock advance 24h --jump -o json").await;
    let json = ended.json();
    assert_eq!(
        (&json["formerTime"], &json["currentTime"]),
        (&json!("1970-01-01T00:00:00Z"), &json!("1970-01-02T00:00:00Z"))
    );
    assert_eq!((&json["steps"], &json["fired"]), (&json!("3"), &json!("2")));
    let by = prost_types::Duration { seconds: 86_400, nanos: 0 };
    let target = Some(v1::advance_clock_request::Target::By(by));
    assert_eq!(
        fake.requests::<v1::AdvanceClockRequest>("AdvanceClock"),
        [v1::AdvanceClockRequest { target, jump: true }]
    );
}

#[tokio::test]
async fn interrupted_advance_may_have_moved_the_clock() {
    let fake = Fake::start(|_, _| Ok(vec![word(3_600, false)])).await;
    let ended = fake.reveille("clock advance --target-time 1970-01-02T00:00:00Z -o json").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(8), ""), "{ended:?}");
    assert_eq!(ended.error()["reason"], "ANSWER_LOST");
    assert_eq!(fake.methods().len(), 1, "it is not asked again: it would go on from there");
}

#[tokio::test]
async fn real_time_is_not_moved() {
    let message = "this cluster keeps real time";
    let fake = Fake::start(move |_, _| Err(refusal(Code::FailedPrecondition, "NOT_POSSIBLE", message))).await;
    for line in ["clock show -o json", "clock advance 1h -o json"] {
        let ended = fake.reveille(line).await;
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert_eq!(ended.error()["reason"], "NOT_POSSIBLE");
    }
}

#[tokio::test]
async fn distance_or_the_end_is_given_and_not_both() {
    let fake = Fake::refusing(Code::Unimplemented, "GENERAL", "not asked").await;
    for line in ["clock advance", "clock advance 1h --target-time 1970-01-02T00:00:00Z", "clock advance soon"] {
        assert_eq!(fake.reveille(line).await.code, Some(2), "{line}");
    }
    assert!(fake.methods().is_empty());
}
