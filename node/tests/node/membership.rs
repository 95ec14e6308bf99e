//! A cluster with certificates: how it is made, who is admitted, and who is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::process::{Ended, Process, start, until};

/// Starts the first node of a new cluster.
fn founder(folder: &Path) -> Process {
    let one = Process::listening(folder, "one");
    until("a leader", || one.reveille("schedule list").code == Some(0));
    one
}

/// Starts a node that joins with a token.
fn joining(folder: &Path, name: &str, token: &str) -> Process {
    Process::listening_by(folder, name, ["127.0.0.1:0"; 3], &[("REVEILLE__JOIN", token)])
}

/// Runs `reveille start` with a token that is not accepted, and returns what it says.
fn refused(folder: &Path, name: &str, token: &str) -> String {
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", token];
    let ended: Ended = start(folder, name, &flags).output().expect("it runs").into();
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains(token), "a token is a secret: {ended:?}");
    ended.stderr
}

#[test]
fn nodes_join_by_token_vote_when_caught_up_and_survive_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut one = founder(folder.path());
    assert_eq!(one.reveille("optout add ann@example.net").code, Some(0));
    let two = joining(folder.path(), "two", &one.join_token());
    // A learner is a member, and any member admits others.
    until("it is a member", || two.reveille("cluster member list").stdout.contains("one"));
    let mut three = joining(folder.path(), "three", &two.join_token());
    until("all vote", || one.voters() == 3);
    assert!(three.reveille("optout check ann@example.net").stdout.contains("yes"));

    // The others go on without the founder, which returns with its own certificate and founds nothing.
    one.kill();
    until("the others lead", || three.reveille("optout add bob@example.net").code == Some(0));
    let one = one.again(folder.path(), "one");
    until("it has what it missed", || one.reveille("optout check bob@example.net").stdout.contains("yes"));
    assert_eq!(one.voters(), 3);
    three.kill();
    let three = three.again(folder.path(), "three");
    until("it is back", || three.reveille("optout check bob@example.net").stdout.contains("yes"));
    assert!(!three.said().contains("was admitted"), "a member does not join again");

    let again = Process::init(folder.path(), "one", "");
    assert!(again.code == Some(1) && again.stderr.contains("a node has used"), "{again:?}");
}

#[test]
fn token_admits_one_node_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let spent = one.join_token();
    let mut two = joining(folder.path(), "two", &spent);
    until("it is a member", || one.reveille("cluster member list").stdout.contains("two"));
    assert!(refused(folder.path(), "thief", &spent).contains("another node has used this join token"));
    // The node itself may repeat its request, as after a crash before it has stored its certificate.
    two.kill();
    std::fs::remove_file(folder.path().join("two/tls/node.crt")).expect("removed");
    std::fs::remove_dir_all(folder.path().join("two/wal")).expect("removed");
    drop(two.again_by(folder.path(), "two", &[("REVEILLE__JOIN", &spent)]));

    let fresh = one.join_token();
    let middle = fresh.len() / 2;
    let other = if fresh.as_bytes()[middle] == b'a' { "b" } else { "a" };
    let mut mistyped = fresh.clone();
    mistyped.replace_range(middle..=middle, other);
    assert!(refused(folder.path(), "typo", &mistyped).contains("join token"));
    let name = refused(folder.path(), "one-more/one", &fresh);
    assert!(name.contains("--name"), "a second node of that name: {name}");

    // Another cluster at the same address: its authority is not the one in the token.
    let address = one.peers.clone();
    drop(one);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let other = Process::listening_by(elsewhere.path(), "other", ["127.0.0.1:0", &address, "127.0.0.1:0"], &[]);
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", &fresh];
    let mut asking = start(folder.path(), "late", &flags).spawn().expect("it runs");
    until("it is refused", || other.said().contains("a connection to the peer port was refused"));
    asking.kill().expect("killed");
    asking.wait().expect("ended");
    assert!(!folder.path().join("late/tls/ca.key").exists());
}

#[test]
fn peer_port_refuses_whoever_has_no_certificate_of_the_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    // Plaintext HTTP/2, as a node without certificates speaks it.
    let mut plain = TcpStream::connect(&one.peers).expect("a connection");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("written");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"\0\0"), "no HTTP/2 frame: {answer:?}");
    until("it is logged", || one.said().contains("a connection to the peer port was refused"));
}

#[test]
fn node_that_was_down_follows_a_leader_that_joined_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two, mut three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    three.kill();
    let four = joining(folder.path(), "four", &one.join_token());
    until("it votes", || one.voters() == 4);
    until("it leads", || one.reveille("cluster transfer-leader four").code == Some(0));
    assert_eq!(four.reveille("optout add ann@example.net").code, Some(0));
    let three = three.again(folder.path(), "three");
    until("it follows", || three.reveille("optout check ann@example.net").stdout.contains("yes"));
    assert_eq!((three.voters(), two.voters()), (4, 4));
}
