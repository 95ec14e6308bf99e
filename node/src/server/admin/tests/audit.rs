//! Audit records over the API: pages through the state and the archive, in both directions, and filters.

use std::sync::Arc;
use std::time::Instant;

use reveille_ledger::command::{Actor, Command};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::tenant::TenantSet;
use reveille_proto::admin::v1::audit_service_client::AuditServiceClient;
use reveille_proto::admin::v1::tenant_service_client::TenantServiceClient;
use reveille_proto::admin::v1::{AuditOutcome, AuditRecord, AuditRefusal, ListAuditRecordsRequest, SetTenantRequest};
use tonic::Code;

use super::harness::{Node, STEP_TIMEOUT, node};

/// Proposals at a time.
const AT_ONCE: usize = 128;

/// Proposes so many commands of callers without a token.
async fn change(node: &Node, count: usize) {
    let context = node.shared_context();
    for batch in 0..count.div_ceil(AT_ONCE) {
        let mut changes = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE.min(count - batch * AT_ONCE) {
            let context = Arc::clone(&context);
            changes.spawn(async move {
                let name = "acme".to_owned();
                let (rate_milli, share) = (None, Some(2));
                let set = TenantSet {
                    request: None,
                    name,
                    rate_milli,
                    concurrency: None,
                    share,
                    pools: None,
                    expected: None,
                };
                let (command, deadline) = (Command::TenantSet(set), Instant::now() + STEP_TIMEOUT);
                context.replica.propose_while_led(&Actor::Insecure, &command, deadline).await
            });
        }
        for reply in changes.join_all().await {
            assert_eq!(reply.expect("an answer").outcome, CommandOutcome::Done);
        }
    }
}

async fn page(node: &Node, request: ListAuditRecordsRequest) -> (Vec<AuditRecord>, String) {
    let page = AuditServiceClient::new(node.channel.clone()).list_audit_records(request).await;
    let page = page.expect("a page").into_inner();
    (page.records, page.next_page_token)
}

async fn list(node: &Node, request: ListAuditRecordsRequest) -> Vec<AuditRecord> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let (records, next) = page(node, ListAuditRecordsRequest { page_token, ..request.clone() }).await;
        all.extend(records);
        page_token = next;
        if page_token.is_empty() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_lead_through_the_state_and_the_archive() {
    let node = node("").await;
    change(&node, 4_200).await;
    let parts = node.context().replica.read(|ledger| ledger.audit_parts().count());
    assert_eq!(parts, 1);
    let request = ListAuditRecordsRequest { page_size: 1_000, ..ListAuditRecordsRequest::default() };
    let mut latest_first = list(&node, request.clone()).await;
    let oldest_first = list(&node, ListAuditRecordsRequest { oldest_first: true, ..request.clone() }).await;
    let head = node.context().replica.read(|ledger| ledger.head().audit.to_string());
    assert_eq!(latest_first[0].hash, head);
    latest_first.reverse();
    assert!(latest_first == oldest_first && oldest_first.len() >= 4_200, "{}", oldest_first.len());
    for pair in oldest_first.windows(2) {
        assert_eq!(pair[0].hash, pair[1].previous);
    }
    let by = |change: &dyn Fn(&mut ListAuditRecordsRequest)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    let time = oldest_first[4_150].time;
    let newer = list(&node, by(&|request| request.since_time = time)).await;
    let older = list(&node, by(&|request| request.until_time = time)).await;
    assert_eq!(newer.len() + older.len(), oldest_first.len());
    assert!(newer.len() < 4_096 && older.len() > 100, "{} and {}", newer.len(), older.len());
    let of_command = list(&node, by(&|request| request.command = "tenant_set".to_owned())).await;
    assert_eq!(of_command.len(), 4_200);
    for (command, known) in [("tenant-set", "did you mean tenant_set?"), ("nonsense", "token_create, token_revoke")] {
        let request = by(&|request| request.command = command.to_owned());
        let unknown = AuditServiceClient::new(node.channel.clone()).list_audit_records(request).await;
        let unknown = unknown.expect_err("no such command");
        assert_eq!(unknown.code(), Code::InvalidArgument);
        assert!(unknown.message().contains(known), "{unknown:?}");
    }
    assert_eq!(list(&node, by(&|request| request.caller = "local".to_owned())).await, []);
    assert_eq!(list(&node, by(&|request| request.of_tenant = "acme".to_owned())).await, []);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_call_that_reached_the_log_has_a_record() {
    let node = node("").await;
    let mut tenants = TenantServiceClient::new(node.channel.clone());
    let request = |share| {
        let (name, request_id) = ("acme".to_owned(), "once".to_owned());
        SetTenantRequest { name, share: Some(share), request_id, ..SetTenantRequest::default() }
    };
    tenants.set_tenant(request(2)).await.expect("set");
    let reused = tenants.set_tenant(request(3)).await.expect_err("another body");
    assert_eq!(reused.code(), Code::AlreadyExists, "{reused:?}");
    tenants.set_tenant(request(2)).await.expect("a repeat");
    let (records, _) = page(&node, ListAuditRecordsRequest { page_size: 3, ..Default::default() }).await;
    let outcomes: Vec<_> = records.iter().map(AuditRecord::outcome).collect();
    assert_eq!(outcomes, [AuditOutcome::Repeated, AuditOutcome::Refused, AuditOutcome::Done]);
    assert_eq!((records[0].repeated_index, records[1].refusal()), (records[2].index, AuditRefusal::RequestReused));
    assert!(records.iter().all(|record| record.request_id == "once" && record.caller == "insecure"));
    node.stop().await;
}
