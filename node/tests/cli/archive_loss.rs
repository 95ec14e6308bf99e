//! `cluster archive-loss`: requests and output.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn part(name: &str, accept_time: Option<prost_types::Timestamp>) -> v1::LostPart {
    v1::LostPart {
        part: name.into(),
        content: v1::ArchiveContent::Runs.into(),
        runs: 512,
        from_time: at(0),
        to_time: at(86_400),
        details: true,
        summaries: false,
        accept_time,
    }
}

/// Starts a fake of a cluster that has lost a part, and accepted the loss of another one.
async fn fake() -> Fake {
    let parts = vec![part("42.0", None), part("7.1", at(172_800))];
    let loss = v1::GetArchiveLossResponse { parts, silent: vec!["n3: no answer".into()] };
    Fake::start(move |method, _| match method {
        "GetArchiveLoss" => one(loss.clone()),
        "AcceptArchiveLoss" => one(v1::AcceptArchiveLossResponse { parts: vec![part("42.0", None)], index: 9 }),
        other => Err(unknown(other)),
    })
    .await
}

#[tokio::test]
async fn loss_is_shown_with_what_may_have_the_blocks() {
    let fake = fake().await;
    let ended = fake.reveille("cluster archive-loss").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for word in ["42.0", "512 runs", "1970-01-02", "results of recipients"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:?}");
    }
    assert!(ended.stderr.contains("n3: no answer") && ended.stderr.contains("--accept"), "{ended:?}");
    assert!(fake.requests::<v1::AcceptArchiveLossRequest>("AcceptArchiveLoss").is_empty());
    let json = fake.reveille("cluster archive-loss -o json").await.json();
    assert_eq!(json[1]["acceptTime"], json!("1970-01-03T00:00:00Z"));
}

#[tokio::test]
async fn acceptance_needs_a_confirmation_and_names_what_is_not_accepted() {
    let fake = fake().await;
    let unconfirmed = fake.reveille("cluster archive-loss --accept").await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("1 part with 512 runs"), "{unconfirmed:?}");
    assert!(fake.requests::<v1::AcceptArchiveLossRequest>("AcceptArchiveLoss").is_empty());
    let ended = fake.reveille("cluster archive-loss --accept --yes").await;
    assert!(ended.stderr.contains("reveille backup create"), "{ended:?}");
    let requested: Vec<v1::AcceptArchiveLossRequest> = fake.requests("AcceptArchiveLoss");
    assert_eq!(requested, [v1::AcceptArchiveLossRequest { parts: vec!["42.0".into()] }]);
}
