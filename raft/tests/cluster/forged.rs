//! Forged requests: of a caller that is no member, in the name of another node, with a term that no election reaches.

use reveille_ledger::ids::GROUP;
use reveille_proto::peer::v1;
use reveille_raft::peer::{Destination, PeerError, Rejection, Request, Response, Transport};

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
        let to = Destination { node: node.id, address: node.address.clone() };
        let member = nodes[(at + 1) % 3].id.0;
        // A member's name, a member's name with another's vote, and a node that is no member.
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
        let to = Destination { node: node.id, address: node.address.clone() };
        let asks = |from| {
            let header = header(from, &to);
            [
                Request::ReadIndex(v1::ReadIndexRequest { header: header.clone(), remaining_ms: 1_000 }),
                Request::Clock(v1::ClockRequest { header: header.clone() }),
                Request::HandOver(v1::HandOverRequest { header: header.clone(), node: 1, remaining_ms: 1_000 }),
                Request::HoldParts(v1::HoldPartsRequest { header, parts: vec![vec![7].into()] }),
            ]
        };
        for request in asks(777) {
            let answer = outsider.call(&to, request, PATIENCE).await;
            assert!(matches!(answer, Err(PeerError::Rejected(Rejection::Unauthorized(_)))), "{answer:?}");
        }
        let described = async |from| {
            let describe = Request::Describe(v1::DescribeRequest { header: header(from, &to) });
            let Ok(Response::Describe(told)) = outsider.call(&to, describe, PATIENCE).await else {
                panic!("no answer")
            };
            (told.name, told.version, told.applied)
        };
        assert_eq!(described(777).await, ("n1".to_owned(), String::new(), 0), "name and cluster, as founders need");
        assert_eq!(described(nodes[0].id.0).await, ("n1".to_owned(), "test".to_owned(), 9));
    }
    stop_all(&mut nodes).await;
}
