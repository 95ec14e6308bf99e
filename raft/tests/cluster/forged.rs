//! Forged requests: from a caller that is not a member, in another node's name, and with a term that no election
//! reaches.

use reveille_ledger::command::Command;
use reveille_ledger::ids::{GROUP, NodeId};
use reveille_proto::peer::v1;
use reveille_raft::peer::{Destination, PeerError, Rejection, Request, Transport};

use crate::support::*;

fn header(from: u64, to: &Destination) -> Option<v1::Header> {
    Some(v1::Header { cluster: CLUSTER.0.to_be_bytes().to_vec().into(), group: GROUP, from, to: to.node.0 })
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_vote_with_highest_term_is_refused_and_cluster_elects_afterwards() {
    let mut nodes = three_over_tcp().await;
    propose(nodes[0].replica(), "before").await.expect("it is applied");
    let outsider = loopback();
    let high = Some(v1::LogId { term: u64::MAX, leader: 777, index: u64::MAX });
    for (at, node) in nodes.iter().enumerate() {
        let to = Destination { node: node.id, address: node.address.clone(), key: None };
        let member = nodes[(at + 1) % 3].id.0;
        // A member's name; a member's name with another node's vote; a node that is not a member.
        for (from, voter) in [(member, member), (member, 777), (777, 777)] {
            let ballot = |committed| Some(v1::Ballot { term: u64::MAX, node: voter, committed });
            let header = header(from, &to);
            let vote =
                v1::VoteRequest { header: header.clone(), vote: ballot(false), last: high, leadership_transfer: true };
            let append = v1::AppendRequest { header, vote: ballot(true), ..v1::AppendRequest::default() };
            for request in [Request::Vote(vote), Request::Append(append)] {
                let answer = outsider.call(&to, request, PATIENCE).await;
                assert!(matches!(answer, Err(PeerError::Rejected(_))), "{from} {voter}: {answer:?}");
            }
        }
    }
    let former = leader(&nodes).await;
    nodes[former].stop().await;
    propose(nodes[(former + 1) % 3].replica(), "after").await.expect("the other two elect a leader");
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_that_is_no_member_gets_no_answer() {
    let mut nodes = three_over_tcp().await;
    propose(nodes[0].replica(), "before").await.expect("it is applied");
    let outsider = loopback();
    for node in &nodes {
        let to = Destination { node: node.id, address: node.address.clone(), key: None };
        let application = v1::ApplicationRequest { remaining_ms: 1_000, ..v1::ApplicationRequest::default() };
        let read_index = v1::ReadIndexRequest { remaining_ms: 1_000, ..v1::ReadIndexRequest::default() };
        for mut request in [Request::Application(application), Request::ReadIndex(read_index)] {
            request.set_header(header(777, &to).expect("a header"));
            let answer = outsider.call(&to, request, PATIENCE).await;
            assert!(matches!(answer, Err(PeerError::Rejected(Rejection::Unauthorized(_)))), "{answer:?}");
        }
    }
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_node_of_another_cluster_is_refused_as_foreign() {
    let mut nodes = three_over_tcp().await;
    let removed = NodeId(777);
    nodes[0].replica().propose(&Command::NodeRemove(removed), soon()).await.expect("it is applied");
    let outsider = loopback();
    for node in &nodes {
        let has_removed = || node.replica().read(|ledger| ledger.removed_nodes().contains(&removed)).then_some(());
        until("the node applies the removal", has_removed).await;
        let to = Destination { node: node.id, address: node.address.clone(), key: None };
        let own = header(removed.0, &to).expect("a header");
        let foreign = v1::Header { cluster: 0x43_u128.to_be_bytes().to_vec().into(), ..own.clone() };
        let call = async |header| {
            let mut request = Request::ReadIndex(v1::ReadIndexRequest::default());
            request.set_header(header);
            outsider.call(&to, request, PATIENCE).await
        };
        let (own, foreign) = (call(own).await, call(foreign).await);
        assert!(matches!(own, Err(PeerError::Rejected(Rejection::Removed(_)))), "{own:?}");
        assert!(matches!(foreign, Err(PeerError::Rejected(Rejection::Unauthorized(_)))), "{foreign:?}");
    }
    stop_all(&mut nodes).await;
}
