//! Tenants over the API: their limits, and that emails stay within them.

use std::time::Instant;

use reveille_proto::admin::v1::{
    AddRelayRequest, CreateScheduleRequest, ExplainRequest, GetTenantRequest, ListTenantsRequest, Relay,
    RemoveTenantRequest, RunState, ScheduleBody, SendMessageRequest, SendTestRequest, SetTenantRequest, Tenant,
    UpdateScheduleRequest,
};
use tonic::{Code, Status};

use super::harness::{Node, creation, node, reason, yearly};
use super::messages::message;
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
        SetTenantRequest { pools: vec!["a b".to_owned()], ..set("acme") },
        SetTenantRequest { pools: vec!["bulk".to_owned()], all_pools: true, ..set("acme") },
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

/// The pool of another tenant has its login and its warm-up. A refusal does not say whether there is such a pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_sends_by_its_pools_only() {
    let node = node("").await;
    let relay = Relay { name: "acme".to_owned(), pool: "acme".to_owned(), ..node.relay() };
    node.relays().add_relay(AddRelayRequest { relay: Some(relay), ..Default::default() }).await.expect("added");
    let bound = SetTenantRequest { pools: vec!["default".to_owned(), "bulk".to_owned()], ..set("evil") };
    assert_eq!(put(&node, bound).await.expect("set").pools, ["bulk", "default"]);
    let body = |pool: &str| ScheduleBody {
        tenant: "evil".to_owned(),
        pool: pool.to_owned(),
        ..yearly("news", &["ada@x.example"])
    };
    node.schedules().create_schedule(creation(body(""))).await.expect("by the default pool");
    for validate_only in [true, false] {
        let refused = async |pool: &str| {
            let named = ScheduleBody { name: "other".to_owned(), ..body(pool) };
            let create = CreateScheduleRequest { validate_only, ..creation(named) };
            let create = node.schedules().create_schedule(create).await.map(drop);
            let update_mask = Some(prost_types::FieldMask { paths: vec!["pool".to_owned()] });
            let schedule = Some(body(pool));
            let update = UpdateScheduleRequest { schedule, update_mask, validate_only, ..Default::default() };
            let update = node.schedules().update_schedule(update).await.map(drop);
            let tenant = "evil".to_owned();
            let send = message("order-1", &["ada@x.example"]);
            let send = SendMessageRequest { tenant, pool: pool.to_owned(), validate_only, ..send };
            let send = node.messages().send_message(send).await.map(drop);
            let email = ScheduleBody { name: String::new(), timing: None, zone: String::new(), ..body(pool) };
            let test = SendTestRequest {
                schedule: Some(email),
                request_id: "test-1".to_owned(),
                validate_only,
                ..Default::default()
            };
            let test = node.schedules().send_test(test).await.map(drop);
            [create, update, send, test].map(|answer| {
                let message = answer.expect_err(pool).message().to_owned();
                assert!(message.contains("no relay of pool"), "{message}");
                message.replace(pool, "")
            })
        };
        assert_eq!(refused("acme").await, refused("unknown").await);
    }
    put(&node, SetTenantRequest { all_pools: true, ..set("evil") }).await.expect("set");
    let named = ScheduleBody { name: "other".to_owned(), ..body("acme") };
    node.schedules().create_schedule(creation(named)).await.expect("created");

    let send = SendMessageRequest {
        tenant: "evil".to_owned(),
        pool: "acme".to_owned(),
        ..message("order-1", &["ada@x.example"])
    };
    node.messages().send_message(send.clone()).await.expect("sent");
    put(&node, SetTenantRequest { pools: vec!["default".to_owned()], ..set("evil") }).await.expect("set");
    let repeat = node.messages().send_message(send).await.expect("a repeat has the first answer").into_inner();
    assert!(repeat.replayed);
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
