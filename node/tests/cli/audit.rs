//! `audit …`: requests and output.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};

async fn fake() -> Fake {
    let record = v1::AuditRecord {
        index: 7,
        time: Some(prost_types::Timestamp { seconds: 1_772_409_600, nanos: 0 }),
        caller: "00000000000000ff".into(),
        command: "relay_put".into(),
        subject: "main".into(),
        outcome: v1::AuditOutcome::Done.into(),
        previous: "00".into(),
        hash: "a0".into(),
        record: vec![1, 254],
        ..v1::AuditRecord::default()
    };
    Fake::start(move |method, _| match method {
        "ListAuditRecords" => one(v1::ListAuditRecordsResponse { records: vec![record.clone()], ..Default::default() }),
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn list_filters_and_export_is_in_the_order_of_the_log() {
    let fake = fake().await;
    let filter = "--caller local --tenant acme --command relay_put --since-time 2026-03-02T00:00:00Z";
    let listed = fake.reveille(&format!("audit list {filter} -o json")).await.json();
    let record = json!({
        "index": "7", "time": "2026-03-02T00:00:00Z", "caller": "00000000000000ff", "tenant": "",
        "command": "relay_put", "subject": "main", "requestId": "", "reason": "",
        "outcome": "AUDIT_OUTCOME_DONE", "repeatedIndex": "0", "doneCount": 0, "refusedCount": 0, "refusal": "AUDIT_REFUSAL_UNSPECIFIED",
        "previous": "00", "hash": "a0", "record": "Af4=",
    });
    assert_eq!(listed, json!([record]));
    let table = fake.reveille("audit list").await.stdout;
    assert!(table.contains("CALLER") && table.contains("relay_put") && table.contains("done"), "{table}");
    let exported = fake.reveille("audit export").await.stdout;
    assert_eq!(serde_json::from_str::<serde_json::Value>(exported.trim()).expect("a line"), record);
    let requested: Vec<v1::ListAuditRecordsRequest> = fake.requests("ListAuditRecords");
    let words = [&requested[0].caller, &requested[0].of_tenant, &requested[0].command].map(String::as_str);
    assert_eq!(words, ["local", "acme", "relay_put"]);
    assert_eq!(requested[0].since_time.map(|since| since.seconds), Some(1_772_409_600));
    assert_eq!(requested.iter().map(|requested| requested.oldest_first).collect::<Vec<_>>(), [false, false, true]);
}
