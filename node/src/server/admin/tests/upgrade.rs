//! Finishing a rolling upgrade over the API.

use std::time::Instant;

use reveille_ledger::LEVEL;
use reveille_ledger::command::{Command, NodeUp};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_proto::admin::v1::{FinishUpgradeRequest, FinishUpgradeResponse, GetUpgradeRequest};
use tonic::Code;

use super::harness::{STEP_TIMEOUT, node, reason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_names_the_node_that_is_in_the_way() {
    let node = node("").await;
    let mut cluster = node.cluster();
    let seen = cluster.get_upgrade(GetUpgradeRequest {}).await.expect("a status").into_inner();
    assert_eq!((seen.level, seen.target_level, seen.highest_level), (LEVEL, LEVEL, LEVEL), "{seen:?}");
    let own = &seen.nodes[0];
    assert_eq!((own.name.as_str(), own.votes, own.level, own.version.as_deref()), ("node-1", true, 1, Some("0.1.0")));
    let done = cluster.finish_upgrade(FinishUpgradeRequest::default()).await.expect("nothing to do").into_inner();
    assert_eq!(done, FinishUpgradeResponse { level: LEVEL, raised: false });

    // A node with the next release starts.
    let holder = ClaimOwner { node: NodeId(9), incarnation: Incarnation(1) };
    let up = NodeUp { owner: holder, name: "node-9".to_owned(), level: LEVEL + 1, process_nonce: 9 };
    node.context().replica.propose(&Command::NodeUp(up), Instant::now() + STEP_TIMEOUT).await.expect("an answer");
    let seen = cluster.get_upgrade(GetUpgradeRequest {}).await.expect("a status").into_inner();
    assert_eq!((seen.level, seen.target_level, seen.highest_level), (LEVEL, LEVEL, LEVEL + 1), "{seen:?}");
    let obstacle = "node node-1 applies ledger level 1 and not 2; install the new release on it and restart it";
    let levels: Vec<(&str, u32)> = seen.nodes.iter().map(|node| (node.name.as_str(), node.level)).collect();
    assert_eq!(levels, [("node-1", LEVEL), ("node-9", LEVEL + 1)]);
    for level in [0, LEVEL + 1] {
        let request = FinishUpgradeRequest { level, ..FinishUpgradeRequest::default() };
        let refused = cluster.finish_upgrade(request).await.expect_err("node-1 is in the way");
        assert_eq!(
            (reason(&refused), refused.message()),
            ((Code::FailedPrecondition, "UPGRADE_NOT_FINISHED".to_owned()), obstacle)
        );
    }
    assert_eq!(node.context().replica.read(|ledger| ledger.head().level), LEVEL);
}
