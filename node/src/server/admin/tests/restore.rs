//! A restore from a backup, and the evidence of a relay's log.

use reveille_proto::admin::v1::{
    AcceptRestoreRequest, ExplainRequest, ExplainedEventKind, GetClusterStatusRequest, GetRestoreRequest,
    ListDoubtsRequest, RecipientState, Resolution, ResolveDoubtsRequest,
};
use tonic::Code;

use super::harness::{node, reason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_was_not_restored_has_nothing_to_accept() {
    let node = node("").await;
    let status = node.cluster().get_cluster_status(GetClusterStatusRequest {}).await.expect("a status").into_inner();
    assert_eq!(status.restore, None);
    let seen = node.cluster().get_restore(GetRestoreRequest::default()).await.expect("a state").into_inner();
    assert_eq!((seen.restore, seen.in_doubt), (None, 0));
    for (former_cluster_is_dead, refusal) in [
        (false, (Code::InvalidArgument, "INVALID_FIELD".to_owned())),
        (true, (Code::FailedPrecondition, "NOTHING_TO_DO".to_owned())),
    ] {
        let request = AcceptRestoreRequest { former_cluster_is_dead };
        let refused = node.cluster().accept_restore(request).await.expect_err("nothing to accept");
        assert_eq!(reason(&refused), refusal, "{refused:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_that_relay_log_shows_counts_as_sent() {
    let node = node("after-commit:reset#1").await;
    let run = node.triggered("report", &["ada@example.net"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.in_doubt == 1)).await;
    let listed = node.doubts().list_doubts(ListDoubtsRequest::default()).await.expect("a page").into_inner();
    let [doubt] = listed.doubts.as_slice() else { panic!("{listed:?}") };
    let request = ResolveDoubtsRequest {
        run: run.clone(),
        recipients: vec!["#0".to_owned()],
        resolution: Resolution::Accepted.into(),
        fence: doubt.fence.clone(),
        ..ResolveDoubtsRequest::default()
    };
    let answer = node.doubts().resolve_doubts(request).await.expect("settled").into_inner();
    assert_eq!(answer.resolved, 1);
    node.until(&run, |run| run.counts.is_some_and(|counts| (counts.sent, counts.in_doubt) == (1, 0))).await;
    let explain = ExplainRequest { run, recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    let last = history.events.last().map(|event| event.kind());
    assert_eq!(history.state(), RecipientState::Sent);
    assert_eq!(last, Some(ExplainedEventKind::Accepted));
    node.stop().await;
}
