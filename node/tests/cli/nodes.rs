//! Several endpoints, some of which do not work: the client tries the next one.

use reveille_proto::admin::v1;
use tokio::net::TcpListener;
use tonic::Code;

use crate::fake::Fake;
use crate::terminal::{command, reveille, run};

/// Returns an address without a listener: its port was bound and released.
async fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[tokio::test]
async fn next_address_is_asked_when_one_does_not_answer_or_cannot() {
    let answer = v1::GetScheduleResponse::default();
    let follower = Fake::refusing(Code::Unavailable, "NO_LEADER", "no leader is known").await;
    let good = Fake::answering("GetSchedule", answer).await;
    let endpoints = format!("{},{},{}", unused_address().await, follower.address(), good.address());
    let ended = reveille(&format!("--endpoint {endpoints} schedule show morning -o json")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((follower.methods().len(), good.methods().len()), (1, 1));

    let mut from_environment = command(&["schedule", "show", "morning", "-o", "name"]);
    let ended = run(from_environment.env("REVEILLE_URL", &endpoints)).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn unreachable_nodes_are_reported_at_once() {
    let endpoints = format!("{},{}", unused_address().await, unused_address().await);
    let ended = reveille(&format!("--endpoint {endpoints} schedule list -o json")).await;
    assert_eq!(ended.code, Some(5));
    let error = ended.error();
    assert_eq!((error["reason"].as_str(), error["field"].as_str()), (Some("UNREACHABLE"), Some("--endpoint")));
    assert!(error["message"].as_str().is_some_and(|text| text.contains(&endpoints.replace(',', ", "))), "{error}");
}

#[tokio::test]
async fn version_makes_no_request() {
    let json = reveille("version -o json").await.json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["tzdb"].as_str().is_some_and(|version| version.starts_with("20")), "{json}");
    assert_eq!(json["level"], reveille_ledger::LEVEL);
    assert_eq!(json.get("crashPoints").is_some(), cfg!(feature = "crash-points"), "no release has any: {json}");
}

#[tokio::test]
async fn stale_answer_says_how_old_it_is() {
    let freshness = v1::Freshness { index: 42, stale: true, age: Some(prost_types::Duration { seconds: 3, nanos: 0 }) };
    let answer = v1::GetRunResponse { run: None, freshness: Some(freshness) };
    let fake = Fake::answering("GetRun", answer).await;
    let ended = fake.reveille("run show r1.0 --stale -o json").await;
    assert_eq!(ended.stderr, "stale: from the node's local state at log index 42, 3s old\n");
    assert_eq!(ended.json()["state"], "RUN_STATE_UNSPECIFIED");
    let requested: Vec<v1::GetRunRequest> = fake.requests("GetRun");
    assert!(requested.iter().all(|request| request.stale && request.tenant == "default"));
}
