//! A cluster of one node: from a proposal to the state, and back from disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::LEVEL;
use reveille_ledger::command::{Command, ENTRY_BYTES_MAX, NodeUp, RaiseLevel};
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::peer::{PeerError, Rejection};
use reveille_raft::{FatalError, Hint, MembershipError, ProposeError, Replica, Role};

use crate::support::*;

pub async fn one() -> Node {
    let transport = loopback();
    let mut node = Node::new(1, transport.address().to_string());
    node.start(transport).await.expect("a new node starts");
    let nodes = [node];
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let [node] = nodes;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn proposal_is_applied_and_survives_restart() {
    let mut node = one().await;
    let reply = propose(node.replica(), "a").await.expect("it is applied");
    assert_eq!(reply.outcome, CommandOutcome::Done);
    assert!(has_mark(node.replica(), "a"), "the reply is given after the state can be read");
    let before = node.replica().read(|ledger| ledger.state_hash());
    let applied = *node.replica().applied().borrow();
    node.stop().await;

    node.start(rebind(&node.address)).await.expect("it starts again");
    let at_start = node.replica().read(|ledger| (ledger.head().applied, ledger.state_hash()));
    assert_eq!(at_start, (applied, before), "the applied state is complete when start returns");
    propose(node.replica(), "b").await.expect("it leads again");
    assert!(has_mark(node.replica(), "a") && has_mark(node.replica(), "b"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_an_answer_and_not_an_error() {
    let mut node = one().await;
    let remove = Command::RelayRemove("unknown".into());
    let reply = node.replica().propose(&remove, soon()).await.expect("it is answered");
    assert_eq!(reply.outcome, CommandOutcome::Refused(CommandRefusal::NoSuchRelay("unknown".to_owned())));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_above_bound_is_refused_before_it_is_sent() {
    let mut node = one().await;
    let large = Command::RelayRemove("x".repeat(ENTRY_BYTES_MAX).as_str().into());
    let refused = node.replica().propose(&large, soon()).await;
    assert!(matches!(refused, Err(ProposeError::TooLarge { .. })), "{refused:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_without_epoch_is_not_ready() {
    let transport = loopback();
    let node = Node::new(1, transport.address().to_string());
    let replica = Replica::start(options(node.folder.path(), node.id, transport), Arc::new(Echo));
    let replica = replica.await.expect("a new node starts");
    replica.initialize(CLUSTER, &members(&[node])).await.expect("a new cluster");
    until("it leads", || matches!(*replica.role().borrow(), Role::Leader { .. }).then_some(())).await;

    let end = soon();
    let refused = loop {
        let refused = replica.propose(&mark("a"), Instant::now() + Duration::from_millis(300)).await;
        // On a busy machine the time may end within an attempt.
        if refused != Err(ProposeError::Unknown) || Instant::now() > end {
            break refused;
        }
    };
    assert_eq!(refused, Err(ProposeError::NotReady));
    assert!(!has_mark(&replica, "a"));
    assert!(replica.shutdown(soon()).await);
    assert_eq!(propose(&replica, "a").await, Err(ProposeError::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_for_other_raft_term_does_not_enter_log() {
    let mut node = one().await;
    propose(node.replica(), "a").await.expect("a term stands");
    let before = node.replica().status().last_index;
    let stale = node.replica().propose_as_leader(0, Command::Tick, soon()).await;
    assert_eq!(stale, Err(ProposeError::NoLeader));
    assert_eq!(node.replica().status().last_index, before);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_come_in_the_order_of_the_log_and_after_their_state() {
    let mut node = one().await;
    propose(node.replica(), "first").await.expect("a term stands");
    let mut hints = node.replica().hints();
    let mut indices = Vec::new();
    for name in ["a", "b", "c"] {
        indices.push(propose(node.replica(), name).await.expect("it is applied").index);
    }
    for index in indices {
        let hint = tokio::time::timeout(PATIENCE, hints.next()).await.expect("a hint comes");
        assert_eq!(hint, Some(Hint::Effect { index, effect: Effect::RelaysChanged }));
        assert!(node.replica().read(|ledger| ledger.head().applied) >= index);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_of_one_node_is_always_acknowledged() {
    let mut node = one().await;
    propose(node.replica(), "a").await.expect("it is applied");
    let start = Instant::now();
    until("an acknowledgement after the start of the wait", || {
        node.replica().last_quorum_acked().filter(|acked| *acked >= start)
    })
    .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_made_once() {
    let mut node = one().await;
    propose(node.replica(), "a").await.expect("it is applied");
    let member = node.replica().members();
    assert_eq!(node.replica().initialize(CLUSTER, &member).await, Err(MembershipError::Initialized));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_do_not_share_a_data_folder() {
    let mut node = one().await;
    let second = Replica::start(options(node.folder.path(), node.id, loopback()), Arc::new(Echo)).await;
    assert!(matches!(second, Err(FatalError::InUse(_))));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_node_to_itself_is_answered_within_its_limit() {
    let mut node = one().await;
    let peer = node.replica().peer(NodeId(1)).expect("a member");
    assert_eq!(peer.ask(request("a"), PATIENCE).await, Ok(format!("{}: a", node.id).into_bytes()));
    let refused = peer.ask(request("refuse"), PATIENCE).await;
    assert_eq!(refused, Err(PeerError::Rejected(Rejection::Unavailable("later".to_owned()))));
    let late = peer.ask(request("never"), Duration::from_millis(50)).await;
    assert!(matches!(late, Err(PeerError::Lost(_))), "{late:?}");
    assert!(node.replica().peer(NodeId(2)).is_none(), "not a member");
    node.stop().await;
}

/// Entries after this one may mean something that this build does not know, so the node must stop (P23).
#[tokio::test(flavor = "multi_thread")]
async fn entry_that_raises_level_above_the_build_stops_the_node() {
    let mut node = one().await;
    let level = LEVEL + 1;
    let raise = Command::RaiseLevel(RaiseLevel { level, voters: vec![node.id] });
    let refused = node.replica().propose(&raise, soon()).await.expect("it is answered").outcome;
    assert!(
        matches!(refused, CommandOutcome::Refused(CommandRefusal::NotPossible(_))),
        "not announced yet: {refused:?}"
    );
    let holder = ClaimOwner { node: node.id, incarnation: Incarnation(1) };
    let up = Command::NodeUp(NodeUp { owner: holder, name: "n1".into(), level, process_nonce: 1 });
    let last = node.replica().propose(&up, soon()).await.expect("a later release announces its level").index;
    assert_eq!(*node.replica().fatal_error().borrow(), None);

    let raised = node.replica().propose(&raise, soon()).await;
    assert!(raised.is_err(), "{raised:?}");
    let mut fatal_error = node.replica().fatal_error();
    let fatal_error =
        tokio::time::timeout(PATIENCE, fatal_error.wait_for(Option::is_some)).await.expect("a fatal_error");
    assert!(
        matches!(*fatal_error.expect("it is kept"), Some(FatalError::Unreadable { index, .. }) if index == last + 1)
    );
    assert_eq!(node.replica().read(|ledger| (ledger.head().applied, ledger.head().level)), (last, LEVEL));
    node.stop().await;
    let again = node.start(rebind(&node.address)).await;
    assert!(matches!(again, Err(FatalError::Unreadable { index, .. }) if index == last + 1), "{again:?}");
}
