//! Errors that must stop a node, and damage that must keep it from voting.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::{GROUP, NodeId};
use reveille_proto::peer::v1;
use reveille_raft::peer::{Destination, Request, Transport};
use reveille_raft::{FatalError, Role};

use crate::memory::MemoryNetwork;
use crate::support::*;

fn in_ms(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

/// Returns an append request as a leader would send it to a new node, without an election.
pub fn entries(payloads: Vec<v1::log_entry::Payload>) -> Request {
    let id = |index| v1::LogId { term: 1, leader: 2, index };
    let last = payloads.len() as u64 - 1;
    let entry = |(index, payload)| v1::LogEntry { id: Some(id(index as u64)), payload: Some(payload) };
    let header = v1::Header { cluster: CLUSTER.0.to_be_bytes().to_vec().into(), group: GROUP, from: 2, to: 1 };
    Request::Append(v1::AppendRequest {
        header: Some(header),
        vote: Some(v1::Ballot { term: 1, node: 2, committed: true }),
        previous: None,
        entries: payloads.into_iter().enumerate().map(entry).collect(),
        committed: Some(id(last)),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_entry_stops_node_and_is_never_skipped() {
    let network = MemoryNetwork::default();
    let mut node = Node::new(1, MemoryNetwork::address_of(NodeId(1)));
    node.start(network.transport(node.id)).await.expect("a new node starts");

    let blank = || v1::log_entry::Payload::Blank(v1::Blank {});
    let unreadable = v1::log_entry::Payload::Command(vec![0xff; 9].into());
    let to = Destination { node: node.id, address: node.address.clone(), key: None };
    let stranger = network.transport(NodeId(2));
    // The log accepts an entry that it cannot read. The response may be lost, so it is not checked.
    let _ = stranger.call(&to, entries(vec![blank(), blank(), unreadable, blank()]), PATIENCE).await;

    let mut fatal_error = node.replica().fatal_error();
    let fatal_error = fatal_error.wait_for(Option::is_some);
    let fatal_error =
        tokio::time::timeout(PATIENCE, fatal_error).await.expect("a fatal_error").expect("it is kept").clone();
    assert!(matches!(fatal_error, Some(FatalError::Unreadable { index: 2, .. })), "{fatal_error:?}");
    let mut role = node.replica().role();
    let stopped = role.wait_for(|role| *role == Role::Stopped);
    tokio::time::timeout(PATIENCE, stopped).await.expect("it takes no further part").expect("it is known");
    assert!(*node.replica().applied().borrow() < 2, "nothing behind it was applied");
    assert!(propose(node.replica(), "a").await.is_err());

    // The node does not start again: the entry is committed and still unreadable.
    node.stop().await;
    let again = node.start(network.transport(node.id)).await;
    assert!(matches!(again, Err(FatalError::Unreadable { index: 2, .. })), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_out_of_order_are_refused_before_raft_sees_them() {
    let network = MemoryNetwork::default();
    let mut node = Node::new(1, MemoryNetwork::address_of(NodeId(1)));
    node.start(network.transport(node.id)).await.expect("a new node starts");
    let to = Destination { node: node.id, address: node.address.clone(), key: None };
    let blank = || v1::log_entry::Payload::Blank(v1::Blank {});
    let Request::Append(mut append) = entries(vec![blank(), blank()]) else { unreachable!("an append") };
    append.entries.swap(0, 1);
    let sent = network.transport(NodeId(2)).call(&to, Request::Append(append), PATIENCE).await;
    assert!(sent.is_err(), "{sent:?}");
    assert_eq!(*node.replica().fatal_error().borrow(), None);
    node.stop().await;
}

/// Removes bytes from the end of the log, as a power cut during a write does.
fn tear_log(node: &Node, bytes: u64) {
    let folder = node.folder.path().join("wal");
    let mut segments: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a log")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.metadata().is_ok_and(|data| data.len() > 0))
        .collect();
    segments.sort();
    let last = segments.last().expect("a segment");
    let length = last.metadata().expect("its length").len();
    OpenOptions::new().write(true).open(last).and_then(|file| file.set_len(length - bytes)).expect("it is cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_lost_log_tail_votes_after_catching_up() {
    let network = MemoryNetwork::default();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let mut node = Node::new(number, MemoryNetwork::address_of(NodeId(number)));
        node.start(network.transport(node.id)).await.expect("a new node starts");
        nodes.push(node);
    }
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let last = propose(nodes[0].replica(), "before").await.expect("it is applied").index;
    for node in &nodes {
        node.replica().wait_applied(last, soon()).await.expect("all are there");
    }
    stop_all(&mut nodes).await;
    tear_log(&nodes[2], 100);

    // The node with the torn log does not vote, so it and one whole node elect no leader.
    for place in [0, 2] {
        let transport = network.transport(nodes[place].id);
        nodes[place].start(transport).await.expect("it starts");
    }
    let read = nodes[0].replica().linearizable(in_ms(5_000)).await;
    assert!(read.is_err(), "{read:?}");

    // With the second whole node there is a leader, and the torn node catches up.
    let transport = network.transport(nodes[1].id);
    nodes[1].start(transport).await.expect("it starts");
    let last = propose(nodes[0].replica(), "after").await.expect("two whole nodes elect").index;
    nodes[2].replica().wait_applied(last, soon()).await.expect("it catches up");

    // From then on its vote counts again.
    nodes[1].stop().await;
    propose(nodes[0].replica(), "with its vote").await.expect("two are a majority");
    stop_all(&mut nodes).await;
}

/// The node had acknowledged the entries that it lost. The leader relies on that, and must send them again.
#[tokio::test(flavor = "multi_thread")]
async fn log_with_lost_tail_catches_up_with_leader() {
    let network = MemoryNetwork::default();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let mut node = Node::new(number, MemoryNetwork::address_of(NodeId(number)));
        node.start(network.transport(node.id)).await.expect("a new node starts");
        nodes.push(node);
    }
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let leading = leader(&nodes).await;
    let torn = (leading + 1) % 3;
    for number in 0..20 {
        let last = propose(nodes[leading].replica(), &format!("mark {number}")).await.expect("it is applied").index;
        nodes[torn].replica().wait_applied(last, soon()).await.expect("it is there");
    }
    nodes[torn].stop().await;
    // More than one batch, because the last batch may hold only the commit index.
    tear_log(&nodes[torn], 5_000);
    let transport = network.transport(nodes[torn].id);
    nodes[torn].start(transport).await.expect("it starts");
    let last = propose(nodes[leading].replica(), "after").await.expect("it goes on").index;
    nodes[torn].replica().wait_applied(last, soon()).await.expect("it catches up");
    for node in &nodes {
        assert_eq!(*node.replica().fatal_error().borrow(), None);
    }
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_log_refuses_to_start_and_names_the_place() {
    let network = MemoryNetwork::default();
    let mut node = Node::new(1, MemoryNetwork::address_of(NodeId(1)));
    node.start(network.transport(node.id)).await.expect("a new node starts");
    let nodes = [node];
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let [mut node] = nodes;
    for number in 0..20 {
        propose(node.replica(), &format!("mark {number}")).await.expect("it is applied");
    }
    node.stop().await;
    let folder = node.folder.path().join("wal");
    let file = std::fs::read_dir(&folder).expect("a log").next().expect("a segment").expect("a file").path();
    let mut bytes = std::fs::read(&file).expect("its bytes");
    bytes[700] ^= 0xff;
    std::fs::write(&file, bytes).expect("one byte is another");
    let refused =
        reveille_raft::Replica::start(options(node.folder.path(), node.id, network.transport(node.id)), Arc::new(Echo))
            .await;
    let text = match refused {
        Err(FatalError::Damaged(text)) => text,
        Err(other) => panic!("another fatal_error: {other}"),
        Ok(_) => panic!("a damaged log must not start"),
    };
    assert!(text.contains("byte") && text.contains(&folder.display().to_string()), "with its folder: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_voter_with_lost_log_tail_starts_at_once() {
    let network = MemoryNetwork::default();
    let mut node = Node::new(1, MemoryNetwork::address_of(NodeId(1)));
    node.start(network.transport(node.id)).await.expect("a new node starts");
    let nodes = [node];
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let [mut node] = nodes;
    propose(node.replica(), "before").await.expect("it is applied");
    node.stop().await;
    tear_log(&node, 100);
    node.start(network.transport(node.id)).await.expect("it starts");
    // In a larger cluster it would wait a minute for a leader.
    node.replica().propose(&mark("after"), in_ms(30_000)).await.expect("it leads at once");
    node.stop().await;
}
