//! `cluster upgrade …`: requests and output.

use reveille_proto::admin::v1::{FinishUpgradeRequest, FinishUpgradeResponse, GetUpgradeResponse, UpgradeNode};
use serde_json::json;

use crate::fake::{Fake, one, unknown};

fn node(name: &str, level: u32, version: Option<&str>) -> UpgradeNode {
    let version = version.map(str::to_owned);
    UpgradeNode { id: format!("{name}1"), name: name.to_owned(), votes: true, level, version }
}

/// Starts a fake cluster: two nodes run the next release, and the third too if `is_ready`.
async fn fake(is_ready: bool) -> Fake {
    let third = if is_ready { node("c", 2, Some("0.2.0")) } else { node("c", 1, None) };
    let seen = GetUpgradeResponse {
        level: 1,
        target_level: if is_ready { 2 } else { 1 },
        highest_level: 2,
        nodes: vec![node("a", 2, Some("0.2.0")), node("b", 2, Some("0.2.0")), third],
        unfinished_for: None,
    };
    fake_of(seen).await
}

async fn fake_of(seen: GetUpgradeResponse) -> Fake {
    Fake::start(move |method, _| match method {
        "GetUpgrade" => one(seen.clone()),
        "FinishUpgrade" => one(FinishUpgradeResponse { level: 2, raised: true }),
        other => Err(unknown(other)),
    })
    .await
}

#[tokio::test]
async fn status_shows_levels_versions_and_obstacles() {
    let fake = fake(false).await;
    let json = fake.reveille("cluster upgrade status -o json").await.json();
    assert_eq!(
        json,
        json!({
            "level": 1, "targetLevel": 1, "highestLevel": 2,
            "nodes": [
                {"id": "a1", "name": "a", "votes": true, "level": 2, "version": "0.2.0"},
                {"id": "b1", "name": "b", "votes": true, "level": 2, "version": "0.2.0"},
                {"id": "c1", "name": "c", "votes": true, "level": 1},
            ],
        })
    );
    let ended = fake.reveille("cluster upgrade status").await;
    assert!(ended.stdout.contains("ledger level") && ended.stdout.contains("VERSION"), "{ended:?}");
    let obstacle = "node c applies ledger level 1 and not 2; install the new release on it and restart it";
    assert!(ended.stderr.contains(obstacle) && !ended.stderr.contains("node a"), "{ended:?}");
    assert!(!ended.stderr.contains("upgrade finish"), "{ended:?}");
}

#[tokio::test]
async fn upgrade_that_is_not_finished_for_a_week_is_remarked() {
    for (days, is_forgotten) in [(6, false), (7, true), (30, true)] {
        let unfinished_for = Some(prost_types::Duration { seconds: days * 86_400, nanos: 0 });
        let nodes = vec![node("a", 2, Some("0.2.0")), node("b", 1, Some("0.1.0"))];
        let seen = GetUpgradeResponse { level: 1, target_level: 1, highest_level: 2, nodes, unfinished_for };
        let ended = fake_of(seen).await.reveille("cluster upgrade status").await;
        let said = format!("an upgrade is not finished for at least {days}d");
        assert_eq!(ended.stderr.contains(&said), is_forgotten, "{ended:?}");
    }
}

#[tokio::test]
async fn finish_raises_level_that_was_shown_only_when_confirmed() {
    let fake = fake(true).await;
    let status = fake.reveille("cluster upgrade status").await;
    assert!(status.stderr.contains("next: reveille cluster upgrade finish"), "{status:?}");
    let unconfirmed = fake.reveille("cluster upgrade finish").await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("from 1 to 2"), "{unconfirmed:?}");
    assert!(fake.requests::<FinishUpgradeRequest>("FinishUpgrade").is_empty());
    let json = fake.reveille("cluster upgrade finish --yes -o json").await.json();
    assert_eq!(json, json!({"level": 2, "raised": true}));
    let requested: Vec<FinishUpgradeRequest> = fake.requests("FinishUpgrade");
    assert_eq!(requested.iter().map(|request| request.level).collect::<Vec<_>>(), [2]);
}
