//! `audience …`: requests and output, and what happens if a stream breaks.

use reveille_proto::admin::v1;
use serde_json::json;
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};

fn million() -> v1::SealedAudience {
    v1::SealedAudience {
        tenant: "default".into(),
        name: "million".into(),
        recipients: 1_000_000,
        columns: vec!["name".into(), "city".into()],
        parts: 16,
        seal: "5ea1".into(),
        index: 12,
        seal_time: Some(prost_types::Timestamp { seconds: 1_772_960_400, nanos: 0 }),
        missing: 2,
        etag: "12".into(),
    }
}

fn shown() -> serde_json::Value {
    json!({
        "tenant": "default", "name": "million", "recipients": 1_000_000, "columns": ["name", "city"], "parts": 16,
        "missing": 2, "seal": "5ea1", "index": "12", "etag": "12", "sealTime": "2026-03-08T09:00:00Z",
    })
}

#[tokio::test]
async fn show_and_list_print_the_same_fields() {
    let fake = Fake::start(|method, _| match method {
        "GetAudience" => one(v1::GetAudienceResponse { audience: Some(million()), freshness: None }),
        "ListAudiences" => one(v1::ListAudiencesResponse { audiences: vec![million()], ..Default::default() }),
        _ => Err(unknown(method)),
    })
    .await;
    assert_eq!(fake.reveille("audience show million -o json").await.json(), shown());
    assert_eq!(fake.reveille("audience list -o json").await.json(), json!([shown()]));
    let ended = fake.reveille("audience list").await;
    let header: Vec<&str> = ended.stdout.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "RECIPIENTS", "COLUMNS", "PARTS", "MISSING", "SEALED"], "{ended:?}");
    let requested: Vec<v1::GetAudienceRequest> = fake.requests("GetAudience");
    assert_eq!(requested[0].name, "million");
}

#[tokio::test]
async fn audience_that_is_used_is_not_deleted() {
    let fake = Fake::start(|_, _| {
        Err(refusal(Code::FailedPrecondition, "NOT_POSSIBLE", "audience 'million' is used by schedule 'report'"))
    })
    .await;
    let ended = fake.reveille("audience delete million --yes").await;
    assert!(ended.code != Some(0) && ended.stderr.contains("schedule 'report'"), "{ended:?}");
    let requested: Vec<v1::DeleteAudienceRequest> = fake.requests("DeleteAudience");
    assert!(!requested[0].request_id.is_empty(), "so a delete whose answer is lost may be repeated");
}

#[tokio::test]
async fn schedule_sends_to_it_by_name() {
    let fake = Fake::start(|method, _| match method {
        "CreateSchedule" => one(v1::CreateScheduleResponse::default()),
        _ => Err(unknown(method)),
    })
    .await;
    let line = "schedule create trial --audience million --cron @yearly --zone UTC --sender a@example.com \
                --subject Hello --inline-text Hi";
    fake.reveille(line).await;
    let requested: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    let audience = requested[0].schedule.clone().and_then(|body| body.audience);
    assert_eq!(audience, Some(v1::Audience { sealed: "million".into(), ..v1::Audience::default() }));
    let ended = fake.reveille(&format!("{line} --to b@example.com")).await;
    assert_eq!(ended.code, Some(2), "one of the three ways: {ended:?}");
}
