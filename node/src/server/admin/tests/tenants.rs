//! Tenants over the API: their limits, and that emails stay within them.

use std::time::Instant;

use reveille_proto::admin::v1::{
    ExplainRequest, GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, RunState, ScheduleBody,
    SetTenantRequest, Tenant,
};
use tonic::{Code, Status};

use super::node::{Node, creation, node, reason, yearly};
use crate::cli::wording::explained;

fn set(name: &str) -> SetTenantRequest {
    SetTenantRequest { name: name.to_owned(), ..SetTenantRequest::default() }
}

async fn put(node: &Node, request: SetTenantRequest) -> Result<Tenant, Status> {
    Ok(node.tenants().set_tenant(request).await?.into_inner().tenant.expect("a tenant"))
}

async fn get(node: &Node, name: &str) -> Result<Tenant, Status> {
    let request = GetTenantRequest { name: name.to_owned(), stale: false };
    Ok(node.tenants().get_tenant(request).await?.into_inner().tenant.expect("a tenant"))
}

async fn names(node: &Node, page_size: i32) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListTenantsRequest { page_size, page_token, stale: false };
        let answer = node.tenants().list_tenants(request).await.expect("a list").into_inner();
        assert!(answer.tenants.len() <= page_size as usize);
        names.extend(answer.tenants.into_iter().map(|tenant| tenant.name));
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_are_set_one_by_one_and_taken_away_together() {
    let node = node("").await;
    assert_eq!(names(&node, 10).await, ["default"]);
    assert_eq!(get(&node, "default").await.expect("there").index, 0, "no bounds are set");
    assert_eq!(
        reason(&get(&node, "acme").await.expect_err("no such tenant")),
        (Code::NotFound, "TENANT_NOT_FOUND".to_owned())
    );
    let dry = SetTenantRequest { rate_per_second: Some(2.5), validate_only: true, ..set("acme") };
    node.tenants().set_tenant(dry).await.expect("it can be set");
    let unset = node.context().replica.read(|ledger| ledger.tenants().iter().count());
    assert_eq!(unset, 0, "a dry run sets nothing");
    put(&node, SetTenantRequest { rate_per_second: Some(2.5), ..set("acme") }).await.expect("set");
    let known =
        put(&node, SetTenantRequest { concurrency: Some(7), share: Some(3), ..set("acme") }).await.expect("set");
    assert_eq!((known.rate_per_second, known.concurrency, known.share), (2.5, 7, 3), "what is not named stays");
    assert!(known.index > 0);
    assert_eq!(get(&node, "acme").await.expect("there"), known);
    let body = ScheduleBody { tenant: "other".to_owned(), ..yearly("news", &["ada@x.example"]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    for page_size in [1, 2, 3, 10] {
        assert_eq!(names(&node, page_size).await, ["acme", "default", "other"], "all tenants that own anything");
    }
    let wrong = [
        SetTenantRequest { share: Some(1), ..set("a b") },
        SetTenantRequest { share: Some(0), ..set("acme") },
        SetTenantRequest { share: Some(101), ..set("acme") },
        SetTenantRequest { rate_per_second: Some(-1.0), ..set("acme") },
        SetTenantRequest { rate_per_second: Some(f64::NAN), ..set("acme") },
        SetTenantRequest { rate_per_second: Some(1e9), ..set("acme") },
        set("acme"),
    ];
    for request in wrong {
        let refused = put(&node, request.clone()).await.expect_err("wrong");
        assert_eq!(reason(&refused).0, Code::InvalidArgument, "{request:?}: {refused:?}");
    }
    assert_eq!(get(&node, "acme").await.expect("there"), known, "nothing has changed");
    let remove = RemoveTenantRequest { name: "acme".to_owned(), ..Default::default() };
    node.tenants().remove_tenant(remove.clone()).await.expect("removed");
    node.tenants().remove_tenant(remove).await.expect("asked again by a client that lost its answer, it is done");
    assert_eq!(names(&node, 10).await, ["default", "other"]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_rate_is_kept_and_explain_says_so() {
    let node = node("").await;
    let paced = |rate| SetTenantRequest { rate_per_second: Some(rate), ..set("default") };
    put(&node, paced(0.001)).await.expect("set");
    let recipients: Vec<String> = (0..9).map(|number| format!("a{number}@x.example")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let run = node.triggered("news", &recipients, "").await;
    let request = ExplainRequest { run: run.run.clone(), recipient: "#8".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(request).await.expect("a story").into_inner();
    let waits = history.events.last().map(explained).unwrap_or_default();
    assert!(waits.contains("tenant 'default' has 0.001 a second at most"), "{history:?}");
    let begun = Instant::now();
    put(&node, paced(2.0)).await.expect("set");
    let done = node.until(&run.run, |run| run.state() == RunState::Finished).await;
    assert_eq!(done.counts.map(|counts| counts.sent), Some(9));
    // The token bucket holds two seconds at most.
    assert!(begun.elapsed().as_secs_f64() >= (9.0 - 4.0) / 2.0 - 0.1, "{:?}", begun.elapsed());
    node.stop().await;
}
