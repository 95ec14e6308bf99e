//! The gRPC transport by itself: the error for each kind of failure.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_raft::listen::{FIRST_BYTES_WITHIN, MESSAGES_BYTES_MAX};
use reveille_raft::peer::{
    Destination, Handler, MESSAGE_BYTES_MAX, PeerError, Rejection, Request, Response, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::support::*;

struct Judge;

#[async_trait]
impl Handler for Judge {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        match request {
            Request::ReadIndex(_) => Ok(index()),
            Request::Propose(_) => std::future::pending().await,
            Request::Vote(_) => Err(Rejection::Unauthorized("who are you".to_owned())),
            Request::PreVote(_) => Err(Rejection::Unavailable("later".to_owned())),
            Request::TransferLeader(_) => Err(Rejection::Removed("entry 7 removed you".to_owned())),
            _ => Err(Rejection::Malformed("what".to_owned())),
        }
    }
}

fn read_index() -> Request {
    Request::ReadIndex(v1::ReadIndexRequest::default())
}

fn index() -> Response {
    Response::ReadIndex(v1::ReadIndexResponse { index: 7 })
}

fn at(address: impl ToString) -> Destination {
    Destination { node: NodeId(1), address: address.to_string(), key: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_rejections_arrive_unchanged() {
    let server = loopback();
    let stop = CancellationToken::new();
    server.serve(Arc::new(Judge), stop.clone()).await.expect("it listens");
    let to = at(server.address());
    let client = loopback();

    let answer = client.call(&to, read_index(), PATIENCE).await;
    assert_eq!(answer, Ok(index()));
    let stranger = client.call(&to, Request::Vote(v1::VoteRequest::default()), PATIENCE).await;
    assert_eq!(stranger, Err(PeerError::Rejected(Rejection::Unauthorized("who are you".to_owned()))));
    let later = client.call(&to, Request::PreVote(v1::PreVoteRequest::default()), PATIENCE).await;
    assert_eq!(later, Err(PeerError::Rejected(Rejection::Unavailable("later".to_owned()))));
    let removed = client.call(&to, Request::TransferLeader(v1::TransferLeaderRequest::default()), PATIENCE).await;
    assert_eq!(removed, Err(PeerError::Rejected(Rejection::Removed("entry 7 removed you".to_owned()))));
    let malformed = client.call(&to, Request::Append(v1::AppendRequest::default()), PATIENCE).await;
    assert_eq!(malformed, Err(PeerError::Rejected(Rejection::Malformed("what".to_owned()))));
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_port_is_unreachable_and_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = at(listener.local_addr().expect("its address"));
    drop(listener);
    let answer = loopback().call(&to, read_index(), PATIENCE).await;
    assert!(matches!(answer, Err(PeerError::Unreachable(_))), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_request_is_lost_within_limit() {
    let server = loopback();
    let stop = CancellationToken::new();
    server.serve(Arc::new(Judge), stop.clone()).await.expect("it listens");
    let start = Instant::now();
    let request = Request::Propose(v1::ProposeRequest::default());
    let answer = loopback().call(&at(server.address()), request, Duration::from_millis(300)).await;
    assert!(matches!(answer, Err(PeerError::Lost(_))), "{answer:?}");
    assert!(start.elapsed() < PATIENCE);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_broken_after_request_is_lost_and_not_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = at(listener.local_addr().expect("its address"));
    // Accepts the connection, reads some bytes and closes it.
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let _ = stream.read(&mut [0; 24]);
    });
    let answer = loopback().call(&to, read_index(), PATIENCE).await;
    assert!(matches!(answer, Err(PeerError::Lost(_))), "{answer:?}");
    peer.join().expect("the peer ends");
}

/// Reports the peers whose connections end.
struct Ends(tokio::sync::mpsc::UnboundedSender<NodeId>);

#[async_trait]
impl Handler for Ends {
    async fn handle(&self, _: Request) -> Result<Response, Rejection> {
        Ok(index())
    }

    fn connection_ended(&self, peer: NodeId) {
        let _ = self.0.send(peer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_connection_is_reported_with_the_peer_that_sent_entries() {
    let server = loopback();
    let stop = CancellationToken::new();
    let (report, mut ended) = tokio::sync::mpsc::unbounded_channel();
    server.serve(Arc::new(Ends(report)), stop.clone()).await.expect("it listens");
    let append = |from| {
        let header = Some(v1::Header { from, ..v1::Header::default() });
        Request::Append(v1::AppendRequest { header, ..v1::AppendRequest::default() })
    };
    for request in [read_index(), append(7), append(9)] {
        // Dropping the transport ends its connection.
        let _ = loopback().call(&at(server.address()), request, PATIENCE).await;
    }
    let mut reported = [ended.recv().await, ended.recv().await];
    reported.sort_unstable();
    assert_eq!(reported, [Some(NodeId(7)), Some(NodeId(9))], "a client that sends no entries is not reported");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_peer_is_found_again() {
    let server = loopback();
    let address = server.address();
    let client = loopback();
    let stop = CancellationToken::new();
    server.serve(Arc::new(Judge), stop.clone()).await.expect("it listens");
    client.call(&at(address), read_index(), PATIENCE).await.expect("an answer");
    stop.cancel();
    drop(server);

    let end = soon();
    let again = loop {
        match reveille_raft::GrpcTransport::bind(address) {
            Ok(again) => break again,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let stop = CancellationToken::new();
    again.serve(Arc::new(Judge), stop.clone()).await.expect("it listens again");
    while client.call(&at(address), read_index(), Duration::from_secs(2)).await.is_err() {
        assert!(Instant::now() < end, "the same client reaches the new life of the peer");
    }
    stop.cancel();
}

/// Waits in real time: the limit applies to sockets of the operating system, which paused test time does not affect.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed_and_peers_answered() {
    let server = loopback();
    let stop = CancellationToken::new();
    server.serve(Arc::new(Judge), stop.clone()).await.expect("it listens");
    let mut silent = Vec::new();
    for at in 0..500 {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.expect("a connection");
        if at % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n").await.expect("half of what HTTP/2 begins with");
        }
        silent.push(stream);
    }
    let answer = loopback().call(&at(server.address()), read_index(), PATIENCE).await;
    assert!(answer.is_ok(), "{answer:?}");
    for mut stream in silent {
        let mut rest = Vec::new();
        // Any way of closing is correct.
        let closed = tokio::time::timeout(3 * FIRST_BYTES_WITHIN, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "still open");
    }
    stop.cancel();
}

/// Holds each proposal until it is released.
#[derive(Default)]
struct Slow {
    asked: AtomicUsize,
    go_on: Notify,
}

#[async_trait]
impl Handler for Slow {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        if let Request::Propose(_) = request {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.go_on.notified().await;
        }
        Ok(index())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_beyond_memory_are_refused_and_small_ones_pass() {
    let (server, slow, stop) = (loopback(), Arc::new(Slow::default()), CancellationToken::new());
    server.serve(Arc::clone(&slow) as Arc<dyn Handler>, stop.clone()).await.expect("it listens");
    let (to, client) = (at(server.address()), Arc::new(loopback()));
    let bytes = MESSAGE_BYTES_MAX - 1024;
    let fitting = MESSAGES_BYTES_MAX / MESSAGE_BYTES_MAX;
    let large = v1::ProposeRequest { command: vec![7; bytes].into(), ..v1::ProposeRequest::default() };
    let call = || {
        let (client, to, request) = (Arc::clone(&client), to.clone(), Request::Propose(large.clone()));
        async move { client.call(&to, request, PATIENCE).await.map(drop) }
    };
    let mut calls = tokio::task::JoinSet::new();
    for number in 1..=fitting {
        calls.spawn(call());
        let asked = async {
            while slow.asked.load(Ordering::SeqCst) < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("there is room for it");
    }
    let refused = call().await;
    assert!(matches!(refused, Err(PeerError::Rejected(Rejection::Unavailable(_)))), "{refused:?}");
    let answer = client.call(&to, read_index(), PATIENCE).await;
    assert!(answer.is_ok(), "a small message passes: {answer:?}");
    slow.go_on.notify_waiters();
    while calls.join_next().await.is_some() {}
    calls.spawn(call());
    let asked = async {
        while slow.asked.load(Ordering::SeqCst) <= fitting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("what was answered gives its memory back");
    calls.abort_all();
    stop.cancel();
}
