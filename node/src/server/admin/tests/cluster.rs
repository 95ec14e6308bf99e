//! The status of a cluster is always available, and any node answers for all.

use std::time::{Duration, Instant};

use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{
    AddMemberRequest, GetClusterStatusRequest, ListMembersRequest, ListSchedulesRequest, MemberRole,
    TransferLeaderRequest,
};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::harness::{STEP_TIMEOUT, creation, founder, initialize, reason, yearly};

/// Timeout of a call that cannot get an answer.
const SHORT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_certificates_admits_no_node() {
    let one = founder(1).await;
    let mut cluster = ClusterServiceClient::new(one.channel.clone());
    initialize(&[&one]).await;
    let refused = cluster.add_member(AddMemberRequest::default()).await.expect_err("it has no certificates");
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "NO_AUTHORITY".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_answers_for_all_and_hands_leadership_over() {
    let (one, two) = (founder(1).await, founder(2).await);
    initialize(&[&one, &two]).await;
    for node in [&one, &two] {
        let leads = async {
            while node.context.replica.status().leader.is_none()
                || node.context.replica.read(|ledger| ledger.head().epoch).is_none()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, leads).await.expect("a leader");
    }
    // Reads and writes work on both nodes, whichever one leads.
    for node in [&one, &two] {
        let mut schedules = ScheduleServiceClient::new(node.channel.clone());
        let listed = schedules.list_schedules(ListSchedulesRequest::default());
        let freshness = listed.await.expect("a list").into_inner().freshness.expect("freshness");
        assert!(!freshness.stale && freshness.index > 0);
        let mut cluster = ClusterServiceClient::new(node.channel.clone());
        let status = cluster.get_cluster_status(GetClusterStatusRequest {}).await.expect("a status").into_inner();
        let leaders = status.members.iter().filter(|member| member.role() == MemberRole::Leader).count();
        assert_eq!((leaders, status.members.len(), status.clocks_agree), (1, 2, true), "{status:?}");
        let offset = status.members.iter().filter_map(|member| member.clock_offset_ms).map(i64::abs).max();
        assert!(offset.is_some_and(|offset| offset < 5_000), "one machine, one clock: {status:?}");
        let members = cluster.list_members(ListMembersRequest {}).await.expect("members").into_inner().members;
        assert_eq!(members.len(), 2);
    }
    let mut cluster = ClusterServiceClient::new(one.channel.clone());
    let unknown = cluster.transfer_leader(TransferLeaderRequest { to: "node-9".to_owned() }).await;
    assert_eq!(reason(&unknown.expect_err("no such member")), (Code::NotFound, "MEMBER_NOT_FOUND".to_owned()));
    let status = cluster.get_cluster_status(GetClusterStatusRequest {}).await.expect("a status").into_inner();
    let moved = cluster.transfer_leader(TransferLeaderRequest::default()).await.expect("moved").into_inner();
    assert_ne!(moved.leader, status.leader);

    // One of two nodes refuses fresh reads and writes, but it still returns the status.
    assert!(two.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await);
    let mut schedules = ScheduleServiceClient::new(one.channel.clone());
    let mut fresh = Request::new(ListSchedulesRequest::default());
    fresh.set_timeout(SHORT);
    let fresh = schedules.list_schedules(fresh).await.expect_err("no quorum");
    let (code, word) = reason(&fresh);
    assert!(code == Code::Unavailable && ["NO_LEADER", "NO_QUORUM"].contains(&word.as_str()), "{fresh:?}");
    let mut write = Request::new(creation(yearly("report", &["ada@example.net"])));
    write.set_timeout(SHORT);
    let write = schedules.create_schedule(write).await.expect_err("no quorum");
    assert_eq!(write.code(), Code::Unavailable, "its read comes first: {write:?}");
    let stale = ListSchedulesRequest { stale: true, ..ListSchedulesRequest::default() };
    assert!(schedules.list_schedules(stale).await.is_ok());
    let status = cluster.get_cluster_status(GetClusterStatusRequest {}).await.expect("a status").into_inner();
    let lost = status.members.iter().filter(|member| member.role() == MemberRole::Unreachable);
    let names = lost.filter_map(|member| Some(member.member.as_ref()?.name.as_str())).collect::<Vec<_>>();
    assert_eq!(names, ["node-2"], "{status:?}");
    let leads = status.members.iter().any(|member| member.role() == MemberRole::Leader);
    assert_eq!(leads, !status.leader.is_empty(), "the status does not contradict itself: {status:?}");

    assert!(!status.members.iter().any(|member| member.stopping));
    one.context.mark_stopping();
    assert_eq!(crate::server::health::readiness(&one.context), (false, "stopping".to_owned()));
    let status = cluster.get_cluster_status(GetClusterStatusRequest {}).await.expect("a status").into_inner();
    assert!(status.members.iter().any(|member| member.stopping), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_without_protos_learns_services_and_their_health() {
    let node = founder(1).await;
    let check = HealthCheckRequest::default();
    let health = HealthClient::new(node.channel.clone()).check(check).await.expect("an answer").into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);

    let message_request = Some(MessageRequest::ListServices(String::new()));
    let ask = ServerReflectionRequest { host: String::new(), message_request };
    let mut reflection = ServerReflectionClient::new(node.channel.clone());
    let answers = reflection.server_reflection_info(tokio_stream::iter([ask])).await.expect("a stream");
    let answer = answers.into_inner().message().await.expect("an answer").expect("one answer");
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"reveille.admin.v1.ScheduleService"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("peer")), "{names:?}");
}
