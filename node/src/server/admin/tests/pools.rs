//! Pools over the API: warm-up plans, and that emails stay within the cap of the day.

use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::{
    ExplainRequest, GetClusterStatusRequest, GetPoolRequest, ListPoolsRequest, Pool, RemovePoolRequest, RunState,
    SetPoolRequest, WarningReason,
};
use tonic::{Code, Status};

use super::harness::{Node, node, reason};
use crate::cli::wording::explained;

fn set(name: &str, warm_up: &[u32]) -> SetPoolRequest {
    SetPoolRequest { name: name.to_owned(), warm_up: warm_up.to_vec(), ..SetPoolRequest::default() }
}

async fn put(node: &Node, request: SetPoolRequest) -> Result<Pool, Status> {
    Ok(node.pools().set_pool(request).await?.into_inner().pool.expect("a pool"))
}

async fn get(node: &Node, name: &str) -> Result<Pool, Status> {
    let request = GetPoolRequest { name: name.to_owned(), stale: false };
    Ok(node.pools().get_pool(request).await?.into_inner().pool.expect("a pool"))
}

async fn used_up(node: &Node) -> Vec<Pool> {
    let status = ClusterServiceClient::new(node.channel.clone())
        .get_cluster_status(GetClusterStatusRequest {})
        .await
        .expect("a status");
    status.into_inner().pools_used_up
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipients_beyond_daily_cap_wait_and_are_reported() {
    let node = node("").await;
    let known = get(&node, "default").await.expect("it has a relay");
    assert_eq!((known.relays.as_slice(), known.cap_today, known.index), (["mailbox".to_owned()].as_slice(), None, 0));
    assert_eq!(
        reason(&get(&node, "bulk").await.expect_err("no such pool")),
        (Code::NotFound, "POOL_NOT_FOUND".to_owned())
    );
    let known = put(&node, set("default", &[2, 9])).await.expect("set");
    assert_eq!((known.cap_today, known.used_today, known.warm_up.as_slice()), (Some(2), 0, [2, 9].as_slice()));
    let run = node.triggered("news", &["a@x.example", "b@x.example", "c@x.example"], "").await;
    let waits = node.until(&run.run, |run| run.counts.is_some_and(|counts| counts.sent == 2)).await;
    assert_eq!(waits.counts.map(|counts| counts.pending), Some(1));
    let pools = used_up(&node).await;
    let pools: Vec<_> = pools.iter().map(|pool| (pool.name.as_str(), pool.used_today, pool.waiting)).collect();
    assert_eq!(pools, [("default", 2, 1)]);
    let request = ExplainRequest { run: run.run.clone(), recipient: "#2".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(request).await.expect("a story").into_inner();
    let waits = history.events.last().map(explained).unwrap_or_default();
    assert!(waits.contains("today's cap of pool 'default'"), "{history:?}");
    assert_eq!(put(&node, set("default", &[2, 50])).await.expect("set").used_today, 2, "what was sent stays spent");
    put(&node, set("default", &[3])).await.expect("set");
    let done = node.until(&run.run, |run| run.state() == RunState::Finished).await;
    assert_eq!(done.counts.map(|counts| counts.sent), Some(3));
    assert_eq!(used_up(&node).await, [], "nothing waits");
    node.pools()
        .remove_pool(RemovePoolRequest { name: "default".to_owned(), ..Default::default() })
        .await
        .expect("removed");
    assert_eq!(get(&node, "default").await.expect("its relay is there").cap_today, None);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_without_reveille_headers_sends_emails_without_them() {
    let node = node("").await;
    let fences = async |schedule: &str| {
        let run = node.triggered(schedule, &[&format!("{schedule}@x.example")], "").await;
        node.until(&run.run, |run| run.state() == RunState::Finished).await;
        let found = node.sink.find(|email| email.recipient.starts_with(schedule));
        found.iter().map(|email| (email.fence.is_some(), email.headers.len())).collect::<Vec<_>>()
    };
    assert_eq!(fences("shown").await, [(true, 1)]);
    let hidden = SetPoolRequest { reveille_headers: Some(false), ..set("default", &[]) };
    let known = put(&node, hidden.clone()).await.expect("set");
    assert_eq!((known.reveille_headers, known.warm_up.len()), (false, 0));
    assert_eq!(fences("hidden").await, [(false, 0)]);
    assert!(!put(&node, set("default", &[9])).await.expect("set").reveille_headers, "a warm-up changes no headers");
    assert_eq!(put(&node, hidden).await.expect("set").warm_up, [9], "headers change no warm-up");
    node.pools()
        .remove_pool(RemovePoolRequest { name: "default".to_owned(), ..Default::default() })
        .await
        .expect("removed");
    assert!(get(&node, "default").await.expect("its relay is there").reveille_headers);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_warm_up_is_refused_and_past_first_day_is_allowed() {
    let node = node("").await;
    let wrong = [
        set("a b", &[1]),
        set("bulk", &[]),
        set("bulk", &[5, 0]),
        set("bulk", &[1; 401]),
        SetPoolRequest { first_day: "tomorrow".to_owned(), ..set("bulk", &[1]) },
        SetPoolRequest { first_day: "2026-11-20".to_owned(), reveille_headers: Some(false), ..set("bulk", &[]) },
    ];
    for request in wrong {
        let refused = put(&node, request.clone()).await.expect_err("wrong");
        assert_eq!(reason(&refused).0, Code::InvalidArgument, "{request:?}: {refused:?}");
    }
    let far = SetPoolRequest { first_day: "2999-01-01".to_owned(), ..set("bulk", &[1]) };
    let refused = put(&node, far).await.expect_err("it has not come");
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    let warnings = node.pools().set_pool(set("bulk", &[5, 6, 7])).await.expect("set").into_inner().warnings;
    let reasons: Vec<(WarningReason, &str)> = warnings.iter().map(|one| (one.reason(), one.pool.as_str())).collect();
    assert_eq!(reasons, [(WarningReason::PoolUnused, "bulk")]);
    let warnings = node.pools().set_pool(set("default", &[50])).await.expect("set").into_inner().warnings;
    assert!(warnings.is_empty(), "it has a relay: {warnings:?}");
    node.pools()
        .remove_pool(RemovePoolRequest { name: "default".to_owned(), ..Default::default() })
        .await
        .expect("removed");
    let list = node.pools().list_pools(ListPoolsRequest::default()).await.expect("a list").into_inner();
    let names: Vec<&str> = list.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["bulk", "default"]);
    let first = list.pools[0].first_day.clone();
    let again = put(&node, SetPoolRequest { first_day: first.clone(), ..set("bulk", &[8]) }).await.expect("set");
    assert_eq!((again.first_day, again.cap_today), (first, Some(8)));
    let remove = RemovePoolRequest { name: "bulk".to_owned(), ..Default::default() };
    node.pools().remove_pool(remove.clone()).await.expect("removed");
    node.pools().remove_pool(remove).await.expect("asked again by a client that lost its answer, it is done");
    let gone = get(&node, "bulk").await.expect_err("it was removed");
    assert_eq!(reason(&gone), (Code::NotFound, "POOL_NOT_FOUND".to_owned()));
    node.stop().await;
}
