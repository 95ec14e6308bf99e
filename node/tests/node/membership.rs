//! A cluster with certificates: how it is made, which nodes it admits, refuses and removes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use reveille_harness::clocks::{CORRECT, Clocks};
use reveille_sink::{HoldRequest, Sink, SinkOptions};

use crate::audience::parts;
use crate::process::{Ended, Process, STEP_TIMEOUT, start, until};

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

/// Runs `reveille start` until it ends by itself, and returns its end and what it said.
fn runs_until_its_end(mut start: Command) -> (Option<ExitStatus>, String) {
    let log = tempfile::NamedTempFile::new().expect("a log");
    let mut asking = start.stderr(log.reopen().expect("a log")).spawn().expect("it runs");
    let (mut ended, end) = (None, Instant::now() + STEP_TIMEOUT);
    while ended.is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        ended = asking.try_wait().expect("its state");
    }
    // One that was admitted runs on.
    let _ = (asking.kill(), asking.wait());
    (ended, fs::read_to_string(log.path()).expect("a log"))
}

/// Returns the flags of a node that joins with a token.
fn joins<'a>([listen, peers, http]: [&'a str; 3], token: &'a str) -> [&'a str; 8] {
    ["--listen", listen, "--peer-listen", peers, "--http", http, "--join", token]
}

/// Runs `reveille start` with a token that is not accepted, and returns what it says.
fn refused(folder: &Path, name: &str, token: &str) -> String {
    let (ended, said) = runs_until_its_end(start(folder, name, &joins(["127.0.0.1:0"; 3], token)));
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}: {said}");
    assert!(!said.contains(token), "a token is a secret: {said}");
    said
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
    let said = refused(folder.path(), "thief", &spent);
    assert!(said.contains("another node has used this join token"), "{said}");
    assert!(said.contains("reveille cluster member add") && !said.contains("with the same token"), "{said}");
    // The node itself may repeat its request, as after a crash before it has stored its certificate.
    two.kill();
    std::fs::remove_file(folder.path().join("two/tls/node.crt")).expect("removed");
    std::fs::remove_dir_all(folder.path().join("two/wal")).expect("removed");
    std::fs::remove_file(folder.path().join("two/peers")).expect("removed");
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
    let flags = joins(["127.0.0.1:0"; 3], &fresh);
    let mut asking = start(folder.path(), "late", &flags).spawn().expect("it runs");
    until("it is refused", || other.said().contains("a connection was refused"));
    asking.kill().expect("killed");
    asking.wait().expect("ended");
    assert!(!folder.path().join("late/tls/ca.pem").exists());
}

/// The clocks of these nodes; `None` on a machine that cannot have them.
fn clocks(folder: &Path, names: &[&str]) -> Option<Clocks> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let clocks = Clocks::new(folder, &names);
    if let Err(why) = &clocks {
        reveille_strict::skip(&why.to_string());
    }
    clocks.ok()
}

/// Starts the node again, with its clock.
fn again_with_clock(folder: &Path, clocks: &Clocks, node: &mut Process, name: &str) {
    let environment = clocks.environment(name);
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.to_str().expect("text"))).collect();
    node.kill();
    *node = node.again_by(folder, name, &environment);
}

#[test]
fn node_with_a_wrong_clock_does_not_vote_until_it_is_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(clocks) = clocks(folder.path(), &["two"]) else { return };
    let one = founder(folder.path());
    clocks.set("two", "+3600 x1").expect("set");
    let (environment, token) = (clocks.environment("two"), one.join_token());
    let environment = environment.iter().map(|(name, value)| (*name, value.to_str().expect("text")));
    let environment: Vec<_> = environment.chain([("REVEILLE__JOIN", token.as_str())]).collect();
    let _two = Process::listening_by(folder.path(), "two", ["127.0.0.1:0"; 3], &environment);
    until("the leader says why", || one.said().contains("its clock is off"));
    assert_eq!(one.voters(), 1);
    clocks.set("two", CORRECT).expect("set");
    until("it votes", || one.voters() == 2);
}

/// The clock of the member that makes a token is 100 days ahead: no certificate for clients bears more.
#[test]
fn token_of_member_with_clock_ahead_is_valid_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(clocks) = clocks(folder.path(), &["three"]) else { return };
    let [one, _two, mut three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    clocks.set("three", &format!("+{}", 100 * 86_400)).expect("set");
    again_with_clock(folder.path(), &clocks, &mut three, "three");
    until("it takes part", || three.reveille("schedule list").code == Some(0));
    let added = three.reveille("cluster member add --valid-for 1h -o json");
    let answer: serde_json::Value = serde_json::from_str(&added.stdout).unwrap_or_else(|_| panic!("{added:?}"));
    let expires: jiff::Timestamp = answer["expireTime"].as_str().expect("a time").parse().expect("a time");
    let minutes = expires.duration_since(jiff::Timestamp::now()).as_mins();
    assert!((50..=61).contains(&minutes), "{minutes} min");
    let four = joining(folder.path(), "four", answer["token"].as_str().expect("a token"));
    until("it votes", || one.voters() == 4);
    drop(four);
}

#[test]
fn expired_token_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(clocks) = clocks(folder.path(), &["one"]) else { return };
    let mut one = founder(folder.path());
    let added = one.reveille("cluster member add --valid-for 10m -o json");
    let answer: serde_json::Value = serde_json::from_str(&added.stdout).unwrap_or_else(|_| panic!("{added:?}"));
    // A clock that is alone may move by less than an hour (P18).
    clocks.set("one", "+1200").expect("set");
    again_with_clock(folder.path(), &clocks, &mut one, "one");
    until("a leader", || one.reveille("optout add ann@example.net").code == Some(0));
    let said = refused(folder.path(), "two", answer["token"].as_str().expect("a token"));
    assert!(said.contains("the join token has expired"), "{said}");
}

#[test]
fn token_used_by_two_nodes_at_once_admits_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let token = one.join_token();
    let flags = joins(["127.0.0.1:0"; 3], &token);
    let mut nodes = ["two", "three"].map(|name| {
        let log = fs::File::create(folder.path().join(format!("{name}.log"))).expect("a log");
        (name, start(folder.path(), name, &flags).stderr(log).spawn().expect("it runs"))
    });
    let mut refused = Vec::new();
    until("one ends", || {
        let ended = nodes.iter_mut().filter_map(|(name, node)| node.try_wait().expect("its state").map(|_| *name));
        refused.extend(ended);
        !refused.is_empty()
    });
    let said = fs::read_to_string(folder.path().join(format!("{}.log", refused[0]))).expect("a log");
    assert!(said.contains("another node has used this join token"), "{said}");
    assert_eq!(refused.len(), 1);
    until("the other one votes", || one.voters() == 2);
    for (_, mut node) in nodes {
        let _ = node.kill();
        node.wait().expect("ended");
    }
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
    until("it is logged", || one.said().contains("a connection was refused"));
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

/// Runs a command until it succeeds.
fn succeeds(node: &Process, line: &str) -> Ended {
    let mut ended = node.reveille(line);
    until(line, || {
        if ended.code != Some(0) {
            ended = node.reveille(line);
        }
        ended.code == Some(0)
    });
    ended
}

/// Returns the name of the leader, as the first node knows it.
fn leader(nodes: &[(&str, Process)]) -> String {
    let mut leader = String::new();
    until("a leader", || {
        let status = nodes[0].1.reveille("cluster status -o json").stdout;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        leader = status["leader"].as_str().unwrap_or_default().to_owned();
        !leader.is_empty()
    });
    leader
}

/// Starts a node that was removed, and returns what it says. It ends by itself.
fn start_removed(folder: &Path, name: &str) -> Ended {
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    start(folder, name, &flags).output().expect("it runs").into()
}

#[test]
fn lost_node_is_replaced_and_never_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, mut two, three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let running = one.reveille("cluster member remove two --dead --yes");
    assert!(running.code == Some(4) && running.stderr.contains("'two' was not removed: it runs"), "{running:?}");
    two.kill();
    succeeds(&one, "optout add bob@example.net");
    let silent = one.reveille("cluster member remove two --yes");
    assert!(silent.code == Some(4) && silent.stderr.contains("does not answer"), "{silent:?}");
    assert!(silent.stderr.contains("--dead"), "{silent:?}");
    let removed = succeeds(&one, "cluster member remove two --dead --yes");
    assert!(removed.stderr.contains("2 nodes vote and survive the loss of 0, as 1 would"), "{removed:?}");
    until("two vote", || one.voters() == 2 && three.voters() == 2);
    // The same again, from another node.
    assert_eq!(three.reveille("cluster member remove two --dead --yes").code, Some(0));
    let unknown = three.reveille("cluster member remove twelve --dead --yes");
    assert!(unknown.code == Some(3), "{unknown:?}");
    // Neither upgrades nor barriers wait for it or name it.
    assert!(!one.reveille("cluster upgrade status").stdout.contains("two"));
    let began = Instant::now();
    let barrier = one.reveille("optout add ann@example.net -o json");
    assert!(barrier.code == Some(0) && !barrier.stdout.contains("two"), "{barrier:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "no lease of it is waited for: {:?}", began.elapsed());

    // A new node takes its place.
    let four = joining(folder.path(), "four", &one.join_token());
    until("three vote", || one.voters() == 3);
    assert!(four.reveille("optout check ann@example.net").stdout.contains("yes"));
    // The lost node comes back with its whole folder, learns that it was removed, and ends for good.
    let mut two = two.again(folder.path(), "two");
    assert_eq!(two.ended(), Some(0), "{}", two.said());
    assert!(two.said().contains("this node was removed from its cluster"), "{}", two.said());
    let again = start_removed(folder.path(), "two");
    assert!(again.code == Some(0) && again.stderr.contains("reveille cluster member add"), "{again:?}");
    assert_eq!(one.voters(), 3);
}

#[test]
fn running_node_is_drained_then_removed_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["one", "two", "three"];
    let nodes = Process::cluster(folder.path(), names, &[]);
    let mut nodes: Vec<(&str, Process)> = names.into_iter().zip(nodes).collect();
    let led = leader(&nodes);
    let drained = succeeds(&nodes[0].1, &format!("cluster member drain {led}"));
    assert!(drained.stdout.contains("yes, drains"), "{drained:?}");
    until("another one leads", || leader(&nodes) != led);
    let undone = succeeds(&nodes[0].1, &format!("cluster member drain {led} --undo"));
    assert!(!undone.stdout.contains("drains"), "{undone:?}");

    // The leader hands over before its own removal, and its process ends.
    let led = leader(&nodes);
    let place = nodes.iter().position(|(name, _)| *name == led).expect("a node");
    let (_, mut removed) = nodes.remove(place);
    succeeds(&nodes[0].1, &format!("cluster member remove {led} --yes"));
    assert_eq!(removed.ended(), Some(0), "{}", removed.said());
    let again = start_removed(folder.path(), &led);
    assert!(again.code == Some(0) && again.stderr.contains("was removed from its cluster"), "{again:?}");

    let (second, mut process) = nodes.pop().expect("two are left");
    succeeds(&nodes[0].1, &format!("cluster member remove {second} --yes"));
    assert_eq!(process.ended(), Some(0), "{}", process.said());
    let (last, process) = &nodes[0];
    until("it votes alone", || process.voters() == 1);
    let refused = process.reveille(&format!("cluster member remove {last} --yes"));
    assert!(refused.code == Some(4) && refused.stderr.contains("it is the only voter"), "{refused:?}");
}

#[test]
fn each_change_of_a_member_has_an_audit_record_of_its_caller() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two, mut three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    succeeds(&one, "cluster transfer-leader two");
    succeeds(&two, "cluster member drain three");
    succeeds(&one, "cluster member drain three --undo");
    succeeds(&one, "cluster member remove three --yes");
    assert_eq!(three.ended(), Some(0), "{}", three.said());

    let listed = |line: &str| -> serde_json::Value {
        serde_json::from_str(&succeeds(&one, line).stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let caller = listed("token show -o json")["token"]["id"].clone();
    let records = listed("audit list -o json");
    let of_nodes: Vec<&serde_json::Value> = records
        .as_array()
        .expect("a list")
        .iter()
        .filter(|record| record["subject"].as_str().is_some_and(|subject| subject.starts_with("node ")))
        .collect();
    assert!(
        of_nodes.iter().all(|record| record["caller"] == caller && record["outcome"] == "AUDIT_OUTCOME_DONE"),
        "{of_nodes:?}"
    );
    let mut commands: Vec<&str> = of_nodes.iter().filter_map(|record| record["command"].as_str()).collect();
    // A command that is repeated, as here until it succeeds, has a record each time.
    commands.dedup();
    let wanted = ["node_remove", "node_drain", "node_undrain", "node_drain", "leader_transfer", "node_invite"];
    assert_eq!(commands, wanted, "{of_nodes:?}");
}

#[test]
fn two_dead_nodes_of_five_are_removed_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["one", "two", "three", "four", "five"];
    let [one, two, three, mut four, mut five] = Process::cluster(folder.path(), names, &[]);
    four.kill();
    five.kill();
    succeeds(&one, "cluster member remove four --dead --yes");
    succeeds(&two, "cluster member remove five --dead --yes");
    until("three vote", || three.voters() == 3);
    assert_eq!(three.reveille("optout add ann@example.net").code, Some(0));
    // Removing one that runs would leave too few: one of the two others is down.
    drop(two);
    succeeds(&one, "optout add bob@example.net");
    let refused = one.reveille("cluster member remove three --yes");
    assert!(refused.code == Some(4) && refused.stderr.contains("1 of 2 voters run, and 2 are needed"), "{refused:?}");
}

/// The log may be on a volume that is missing after a restart. Without it, its vote could elect a leader that lacks what
/// the node has acknowledged.
#[test]
fn member_without_its_log_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_one, mut two, _three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    until("it knows the others", || folder.path().join("two/peers").exists());
    two.kill();
    std::fs::remove_dir_all(folder.path().join("two/wal")).expect("removed");
    let refused = start_removed(folder.path(), "two");
    assert!(refused.code == Some(1) && refused.stderr.contains("its log (the folder 'wal') is gone"), "{refused:?}");
    let next =
        "remove it from the cluster (reveille cluster member remove NODE --dead), and admit a new one with an empty";
    assert!(refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ").contains(next), "{refused:?}");
}

/// The lease of the crashed node still runs. With the removal of the other follower, only the leader would be left of
/// two voters, and the cluster could neither go on nor take the removal back.
#[test]
fn follower_is_not_removed_just_after_the_other_one_crashed() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["one", "two", "three"];
    let nodes = Process::cluster(folder.path(), names, &[]);
    let nodes: Vec<(&str, Process)> = names.into_iter().zip(nodes).collect();
    let leading = leader(&nodes);
    let (leading, mut followers): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(name, _)| *name == leading);
    let (_, leading) = &leading[0];
    followers[0].1.kill();
    let refused = leading.reveille(&format!("cluster member remove {} --yes", followers[1].0));
    assert!(refused.code == Some(4) && refused.stderr.contains("1 of 2 voters run, and 2 are needed"), "{refused:?}");
    succeeds(leading, "optout add ann@example.net");
    let members = succeeds(leading, "cluster member list").stdout;
    assert!(!members.contains("drains"), "{members}");
}

/// The relay does not answer, so the drain takes long. Meanwhile the other follower dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_ends_when_the_removal_is_refused_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let names = ["one", "two", "three"];
    let hello = |name: &str| format!("{name}.example.net");
    let one = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &[]);
    until("a leader", || one.reveille("schedule list").code == Some(0));
    let [mut two, three] = [names[1], names[2]].map(|name| {
        let (token, hello) = (one.join_token(), hello(name));
        let environment = [("REVEILLE__JOIN", token.as_str()), ("REVEILLE__HELLO_NAME", hello.as_str())];
        Process::listening_by(folder.path(), name, ["127.0.0.1:0"; 3], &environment)
    });
    until("all vote", || one.voters() == 3);
    let request = HoldRequest { ehlo: Some(hello("three")), limit: 2 * STEP_TIMEOUT, ..HoldRequest::default() };
    let mut hold = sink.handle().hold_next_answer(request);
    let port = sink.handle().address().port();
    succeeds(&one, &format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    launch(folder.path(), &one, "all");
    let held = hold.next(STEP_TIMEOUT).await.expect("it sends");

    let drains = || one.reveille("cluster member list").stdout.contains("drains");
    let refused = std::thread::scope(|scope| {
        let removing = scope.spawn(|| one.reveille("cluster member remove three --yes --timeout 60s"));
        until("it drains", || drains() || removing.is_finished());
        assert!(drains(), "the removal waits for the drain");
        two.kill();
        removing.join().expect("it ends")
    });
    assert!(refused.code == Some(4) && refused.stderr.contains("1 of 2 voters run, and 2 are needed"), "{refused:?}");
    assert!(!refused.stderr.contains("--undo") && !drains(), "the drain is taken back: {refused:?}");
    assert!(held.release(), "its answer is still waited for");
    drop(three);
    sink.stop().await;
}

/// Returns the node's share of the relay `main`, in emails a second.
fn share(node: &Process) -> Option<f64> {
    let page = node.get("/metrics");
    let line = page.lines().find(|line| line.starts_with("reveille_relay_rate_per_second{relay=\"main\"}"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// P25: the shares of all nodes together are the relay's rate.
#[test]
fn each_voter_has_an_equal_share_while_nodes_come_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, mut two, three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    succeeds(&one, "relay add main --host 127.0.0.1 --port 9 --tls none --rate-per-second 60");
    let each = |nodes: &[&Process], rate: f64| nodes.iter().all(|node| share(node) == Some(rate));
    until("a third each", || each(&[&one, &two, &three], 20.0));
    let four = joining(folder.path(), "four", &one.join_token());
    until("a quarter each", || each(&[&one, &two, &three, &four], 15.0));
    two.kill();
    succeeds(&one, "cluster member remove two --dead --yes");
    until("a third each again", || each(&[&one, &three, &four], 20.0));
}

/// Emails of each run of [`cluster_grows_to_five_and_shrinks_to_three_while_emails_are_sent`].
const MEMBERS: usize = 100;

/// Imports an audience and opens a run to it.
fn launch(folder: &Path, node: &Process, name: &str) {
    let list = folder.join(format!("{name}.csv"));
    let rows: String = (0..MEMBERS).map(|row| format!("r{row}@{name}.example.net\n")).collect();
    fs::write(&list, format!("email\n{rows}")).expect("a list");
    succeeds(node, &format!("audience import {name} {}", list.display()));
    let what = "--at 2040-01-01T00:00:00Z --zone UTC --sender a@example.net --subject s --inline-text t";
    succeeds(node, &format!("schedule create {name} {what} --audience {name}"));
    succeeds(node, &format!("schedule trigger {name} --request-id {name}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_grows_to_five_and_shrinks_to_three_while_emails_are_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let mut one = founder(folder);
    let port = sink.handle().address().port();
    succeeds(&one, &format!("relay add main --host 127.0.0.1 --port {port} --tls none --rate-per-second 10"));
    let arrived =
        |runs: usize| until("each got an email", || sink.handle().accepted_count() >= (runs * MEMBERS) as u64);

    launch(folder, &one, "alone");
    let [mut two, three] = ["two", "three"].map(|name| joining(folder, name, &one.join_token()));
    until("three vote", || one.voters() == 3);
    arrived(1);
    launch(folder, &three, "of-three");
    let [four, five] = ["four", "five"].map(|name| joining(folder, name, &two.join_token()));
    until("five vote", || one.voters() == 5);
    arrived(2);
    launch(folder, &five, "of-five");
    for (name, node) in [("one", &mut one), ("two", &mut two)] {
        succeeds(&four, &format!("cluster member remove {name} --yes"));
        assert_eq!(node.ended(), Some(0), "{}", node.said());
    }
    until("three vote again", || three.voters() == 3);
    arrived(3);
    launch(folder, &three, "of-three-again");
    arrived(4);

    until("nothing is in doubt", || !succeeds(&four, "in-doubt list -o json").stdout.contains("example.net"));
    let recipients: BTreeSet<String> =
        sink.handle().emails().iter().map(|(_, accept)| accept.recipient.clone()).collect();
    assert_eq!((recipients.len(), sink.handle().accepted_count()), (4 * MEMBERS, 4 * MEMBERS as u64), "each got one");
    let all: BTreeSet<_> =
        ["one", "two", "three", "four", "five"].iter().flat_map(|name| parts(folder, name)).collect();
    assert_eq!(all.len(), 4, "each audience has a part");
    let left = ["three", "four", "five"].map(|name| parts(folder, name));
    let holders = |part| left.iter().filter(|parts| parts.contains(part)).count();
    assert!(all.iter().all(|part| holders(part) >= 2), "each part is on a majority: {all:?} in {left:?}");
    sink.stop().await;
}

/// The relay has the whole email, and does not answer for longer than a lease lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_waits_for_the_answer_to_an_email() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let one = founder(folder.path());
    let (token, hello) = (one.join_token(), "two.example.net");
    let environment = [("REVEILLE__JOIN", token.as_str()), ("REVEILLE__HELLO_NAME", hello)];
    let two = Process::listening_by(folder.path(), "two", ["127.0.0.1:0"; 3], &environment);
    until("it votes", || one.voters() == 2);
    let request = HoldRequest { ehlo: Some(hello.to_owned()), limit: 2 * STEP_TIMEOUT, ..HoldRequest::default() };
    let mut hold = sink.handle().hold_next_answer(request);
    let port = sink.handle().address().port();
    succeeds(&one, &format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    launch(folder.path(), &one, "all");
    let held = hold.next(STEP_TIMEOUT).await.expect("it sends");

    let mut last = None;
    until("only that email is left", || {
        let waits = one.reveille("cluster member drain two --timeout 8s");
        assert_ne!(waits.code, Some(0), "{waits:?}");
        last = Some(waits.stderr);
        last.as_ref().is_some_and(|said| said.contains(" 1 emails are claimed"))
    });
    assert!(two.reveille("cluster member list").stdout.contains("drains"), "{last:?}");
    assert!(held.release(), "its answer is still waited for");
    succeeds(&one, "cluster member drain two");
    until("all are sent", || one.reveille("run list -o json").stdout.contains(&format!("\"sent\": {MEMBERS}")));
    assert!(!one.reveille("in-doubt list -o json").stdout.contains("example.net"), "the answer was recorded");
    assert_eq!(sink.handle().accepted_count(), MEMBERS as u64);
    sink.stop().await;
}

/// Asserts that a process ended at this crash point.
#[cfg(feature = "crash-points")]
fn assert_crashed(code: Option<i32>, said: &str, point: &str) {
    assert!(code.is_none() && said.contains(&format!("crashed at the crash point {point}")), "{code:?}: {said}");
}

#[cfg(feature = "crash-points")]
#[test]
fn join_succeeds_after_the_new_node_crashed() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let mut joined = Vec::new();
    // It has its certificate and has not stored it; it applies the members for the first time; its log has nothing, or
    // a vote only.
    let points = ["join.before-store", "membership.apply", "wal.vote-before-fsync", "wal.before-append"];
    for (name, point) in ["two", "three", "four", "five"].into_iter().zip(points) {
        let (token, addresses) = (one.join_token(), crate::process::ports());
        let addresses = addresses.each_ref().map(String::as_str);
        let mut crashes = start(folder.path(), name, &joins(addresses, &token));
        crashes.env("FAILPOINTS", format!("{point}=return"));
        let (ended, said) = runs_until_its_end(crashes);
        assert_crashed(ended.expect("it ends").code(), &said, point);
        assert!(one.reveille("cluster member list").stdout.contains(name), "it was admitted");
        joined.push(Process::listening_by(folder.path(), name, addresses, &[("REVEILLE__JOIN", &token)]));
        until("it votes", || one.voters() == joined.len() + 1);
    }
}

#[cfg(feature = "crash-points")]
#[test]
fn join_succeeds_after_the_leader_crashed() {
    // At its start it applies its own membership. Then come the learner, both sets of voters, and the new set.
    for step in 1..=3 {
        let folder = tempfile::tempdir().expect("a folder");
        let mut one = founder(folder.path());
        let token = one.join_token();
        one.kill();
        let crash = format!("membership.apply={step}*off->return");
        let mut one = one.again_by(folder.path(), "one", &[("FAILPOINTS", &crash)]);
        // Its request is repeated until the leader is back.
        let log = fs::File::create(folder.path().join("two.log")).expect("a log");
        let flags = joins(["127.0.0.1:0"; 3], &token);
        let mut two = start(folder.path(), "two", &flags).stderr(log).spawn().expect("it runs");
        assert_crashed(one.ended(), &one.said(), "membership.apply");
        let said = fs::read_to_string(folder.path().join("two.log")).expect("a log");
        assert_eq!(said.contains("this node was admitted"), step > 1, "step {step}: {said}");
        let one = one.again(folder.path(), "one");
        until("it votes", || one.voters() == 2);
        assert_eq!(one.reveille("cluster member list -o name").stdout.lines().count(), 2, "step {step}");
        two.kill().expect("killed");
        two.wait().expect("ended");
    }
}
