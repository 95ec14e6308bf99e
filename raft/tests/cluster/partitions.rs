//! Three replicas on a network in memory whose links are cut.

use std::time::{Duration, Instant};

use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::{Hash, NodeId, TokenId};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_raft::{ClusterId, LEADERLESS_AFTER, MembershipError, ProposeError, ReadError, Role};

use crate::memory::MemoryNetwork;
use crate::support::*;

const ALL: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

async fn three(network: &MemoryNetwork) -> Vec<Node> {
    let mut nodes = Vec::new();
    for id in ALL {
        let mut node = Node::new(id.0, MemoryNetwork::address_of(id));
        node.start(network.transport(id)).await.expect("a new node starts");
        nodes.push(node);
    }
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    nodes
}

fn in_ms(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_leader_answers_nothing_and_follows_after_return() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    let former = leader(&nodes).await;
    propose(nodes[former].replica(), "before").await.expect("it is applied");
    network.isolate(nodes[former].id, ALL);

    // The node may still believe that it leads, but its reads and writes fail.
    let cut_off = nodes[former].replica();
    let read = cut_off.linearizable(in_ms(1_500)).await;
    assert_eq!(read, Err(ReadError::NoLeader));
    let write = cut_off.propose(&mark("lost"), in_ms(1_500)).await;
    assert!(write.is_err(), "{write:?}");

    let other = nodes[(former + 1) % 3].replica();
    let reply = propose(other, "after").await.expect("the majority goes on");

    network.heal();
    cut_off.wait_applied(reply.index, soon()).await.expect("it follows again");
    assert!(has_mark(cut_off, "after"));
    let acked = cut_off.last_quorum_acked();
    assert!(acked.is_none() || matches!(*cut_off.role().borrow(), Role::Leader { .. }));
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_follower_causes_no_election_after_return() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    let leads = leader(&nodes).await;
    let follower = (leads + 1) % 3;
    propose(nodes[leads].replica(), "before").await.expect("it is applied");
    let term = nodes[leads].replica().status().term;
    network.isolate(nodes[follower].id, ALL);
    // Long enough for several elections without a majority.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(nodes[follower].replica().status().term, term, "pre-vote keeps the term where it was");
    network.heal();
    let reply = propose(nodes[leads].replica(), "after").await.expect("the leader leads on");
    nodes[follower].replica().wait_applied(reply.index, soon()).await.expect("it follows again");
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minority_answers_no_write() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    let leads = leader(&nodes).await;
    for place in [(leads + 1) % 3, (leads + 2) % 3] {
        nodes[place].stop().await;
    }
    let replica = nodes[leads].replica();
    assert_eq!(replica.linearizable(in_ms(1_000)).await, Err(ReadError::NoLeader));
    let write = replica.propose(&mark("alone"), in_ms(1_000)).await;
    assert!(write.is_err(), "{write:?}");
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaderless_node_reports_it_and_ends_waiting_requests() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    let leads = leader(&nodes).await;
    propose(nodes[leads].replica(), "before").await.expect("it is applied");
    for node in &nodes {
        assert_eq!(node.replica().leaderless_for(), None, "a leader is heard");
        assert!(node.replica().status().leader.is_some());
    }
    // The leader and one follower are isolated, so every node is without a quorum.
    for place in [leads, (leads + 1) % 3] {
        network.isolate(nodes[place].id, ALL);
    }
    for node in &nodes {
        let deadline = Instant::now() + Duration::from_secs(600);
        assert_eq!(node.replica().linearizable_while_led(deadline).await, Err(ReadError::NoLeader));
        let write = node.replica().propose_while_led(&Actor::System, &mark("never"), deadline).await;
        assert_eq!(write, Err(ProposeError::NoLeader), "it is known before anything enters a log");
        let status = node.replica().status();
        assert!(status.leaderless_for.is_some_and(|silence| silence >= LEADERLESS_AFTER), "{status:?}");
        assert_eq!(status.leader, None);
    }
    assert!(matches!(*nodes[leads].replica().role().borrow(), Role::Leader { .. }), "it goes on believing");

    network.heal();
    for node in &nodes {
        let reached = async {
            while node.replica().leaderless_for().is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // A change of the leader leaves an outcome unknown, so a mark may be proposed twice.
            while propose(node.replica(), "after").await.is_err() {}
        };
        tokio::time::timeout_at(soon().into(), reached).await.expect("a leader is heard again, and all goes on");
    }
    assert!(nodes.iter().all(|node| !has_mark(node.replica(), "never")));
    stop_all(&mut nodes).await;
}

/// The node that proposes has not applied the revocation. `apply` refuses by the state at the entry's index.
#[tokio::test(flavor = "multi_thread")]
async fn write_by_node_that_lacks_revocation_is_refused_by_apply() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    let leads = leader(&nodes).await;
    let (leader, behind) = (nodes[leads].replica(), nodes[(leads + 1) % 3].replica());
    let (token, rights) = (TokenId(7), Rights(1));
    let hash = Hash([7; 32]);
    let grant = TokenGrant { name: "deploy".to_owned(), hash, rights, tenants: TenantScope::All, expires_at: None };
    let create = TokenCreate { id: token, grant, revokes: Rights::default() };
    let created = leader.propose(&Command::TokenCreate(Box::new(create)), soon()).await.expect("it is applied");
    behind.wait_applied(created.index, soon()).await.expect("it follows");
    let actor = Actor::Operator { token, needs: rights, tenant: None };
    let permitted = behind.propose_while_led(&actor, &mark("before"), soon()).await.expect("an answer");
    assert!(!matches!(permitted.outcome, CommandOutcome::Refused(_)), "{permitted:?}");

    // Requests of this node still reach the leader, and their answers return.
    let behind_has = || behind.read(|ledger| ledger.tokens().get(&token).is_some_and(|known| known.is_valid(wall())));
    let cut = [leads, (leads + 2) % 3].map(|other| (nodes[other].id, nodes[(leads + 1) % 3].id));
    network.lose_requests(&cut);
    let revoked = leader.propose(&Command::TokenRevoke(token), soon()).await.expect("a majority is left");
    assert!(revoked.index > created.index && behind_has(), "the node knows nothing of it");
    let refused = behind.propose_while_led(&actor, &mark("after"), soon()).await.expect("an answer");
    assert_eq!(refused.outcome, CommandOutcome::Refused(CommandRefusal::TokenNotValid));
    assert!(behind_has(), "the node still knows nothing of it");
    network.heal();
    assert!(!has_mark(leader, "after"));
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_other_cluster_is_rejected() {
    let network = MemoryNetwork::default();
    let mut nodes = three(&network).await;
    propose(nodes[0].replica(), "a").await.expect("it is applied");

    // Another cluster counts node 2 as its own member.
    let mut other = Node::new(4, MemoryNetwork::address_of(NodeId(4)));
    other.start(network.transport(NodeId(4))).await.expect("a new node starts");
    let mut theirs = members(std::slice::from_ref(&other));
    theirs.extend(members(&nodes[1..2]));
    other.replica().initialize(ClusterId(0x43), &theirs).await.expect("it has a log of its own");
    tokio::time::sleep(Duration::from_secs(3)).await;

    assert!(!matches!(*other.replica().role().borrow(), Role::Leader { .. }), "node 2 gives it no vote");
    assert_eq!(nodes[1].replica().cluster(), Some(CLUSTER));
    propose(nodes[1].replica(), "b").await.expect("the cluster goes on");
    let again = nodes[1].replica().initialize(ClusterId(0x43), &theirs).await;
    assert_eq!(again, Err(MembershipError::Initialized));
    other.stop().await;
    stop_all(&mut nodes).await;
}
