//! Rotations of the certificate authority: with all members, with crashes in each step, and who is shut out after it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use reveille_sink::{Sink, SinkOptions};
use serde_json::Value;

use crate::process::{Ended, Process, STEP_TIMEOUT, client, until};

const NAMES: [&str; 3] = ["one", "two", "three"];

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_default()
}

fn status(node: &Process) -> Value {
    json(&node.reveille("cluster ca status -o json"))
}

fn rotate(node: &Process) -> Ended {
    node.reveille("cluster ca rotate --yes --timeout 60s -o json")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn term(node: &Process) -> u64 {
    json(&node.reveille("cluster status -o json"))["term"]
        .as_str()
        .and_then(|term| term.parse().ok())
        .unwrap_or_default()
}

/// Waits until all members have one authority and no other.
fn one_authority(folder: &Path, nodes: [&Process; 3]) -> String {
    let mut fingerprint = String::new();
    until("one authority", || {
        let seen: Vec<Value> = nodes.iter().map(|node| status(node)).collect();
        let is_settled = |status: &Value| {
            status["step"] == "ROTATION_STEP_UNSPECIFIED" && status["waitsFor"] == Value::Array(vec![])
        };
        let all: BTreeSet<String> = seen.iter().map(|status| text(&status["fingerprint"])).collect();
        fingerprint = all.first().cloned().unwrap_or_default();
        seen.iter().all(is_settled) && all.len() == 1 && !fingerprint.is_empty()
    });
    let files = NAMES.map(|name| std::fs::read_to_string(folder.join(name).join("tls/ca.pem")).expect("an authority"));
    assert!(files.iter().all(|file| *file == files[0]), "each has the same");
    assert!(NAMES.iter().all(|name| !folder.join(name).join("tls/next-ca.pem").exists()), "and no other");
    fingerprint
}

/// Recipients of the run that is sent during a rotation.
const RECIPIENTS: u64 = 4_000;

fn done(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout.trim().to_owned()
}

/// Starts a run to [`RECIPIENTS`] at a slow relay. Returns its name when emails arrive.
fn begin_run(folder: &Path, node: &Process, sink: &Sink) -> String {
    let relay = format!("relay add main --host 127.0.0.1 --port {} --tls none", sink.handle().address().port());
    done(node, &format!("{relay} --rate-per-second 100"));
    let list = folder.join("list.csv");
    let rows: String = (0..RECIPIENTS).map(|row| format!("r{row}@example.net\n")).collect();
    std::fs::write(&list, format!("email\n{rows}")).expect("a list");
    let what = "--at 2040-01-01T00:00:00Z --zone UTC --sender a@example.net --subject s --inline-text t";
    done(node, &format!("schedule create large {what} --recipients {}", list.display()));
    let run = done(node, "schedule trigger large -o name");
    until("emails arrive", || sink.handle().accepted_count() > 20);
    run
}

/// Lets a run go on at once, and checks that each recipient got one email, and that no node lost its lease meanwhile.
fn end_run(nodes: [&Process; 3], sink: &Sink, run: &str) {
    let relay = format!("relay add main --host 127.0.0.1 --port {} --tls none", sink.handle().address().port());
    done(nodes[0], &format!("{relay} --rate-per-second 10000 --replace"));
    let sent = || json(&nodes[0].reveille(&format!("run show {run} -o json")))["counts"]["sent"] == RECIPIENTS;
    until("all are sent", sent);
    assert_eq!(sink.handle().accepted_count(), RECIPIENTS);
    for node in nodes {
        let metrics = node.get("/metrics");
        assert!(!metrics.contains("\nreveille_gate_closed_total{"), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_is_replaced_under_mail_without_restart_election_or_login() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let [one, mut two, three] = Process::cluster(folder.path(), NAMES, &[]);
    let run = begin_run(folder.path(), &one, &sink);
    let (before, led, unused) = (text(&status(&one)["fingerprint"]), term(&one), one.join_token());
    let context = || text(&json(&one.reveille("context show -o json"))["fingerprint"]);
    assert_eq!(context(), before);
    let begun = std::time::Instant::now();
    let rotated = rotate(&three);
    println!("rotated in {:?}", begun.elapsed());
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    let stored = context();
    let after = one_authority(folder.path(), [&one, &two, &three]);
    assert_ne!(after, before);
    assert_eq!(stored, after, "the rotation has stored the successor");
    assert_eq!(term(&one), led, "there was no election");
    assert!(sink.handle().accepted_count() < RECIPIENTS, "emails went on during the rotation");
    end_run([&one, &two, &three], &sink, &run);

    // A node that restarts, and one that is new.
    two.kill();
    let two = two.again(folder.path(), "two");
    until("it is back", || two.reveille("optout add ann@example.net").code == Some(0));
    let join =
        |token: &str| Process::listening_by(folder.path(), "four", ["127.0.0.1:0"; 3], &[("REVEILLE__JOIN", token)]);
    let four = join(&one.join_token());
    until("it votes", || one.voters() == 4);
    assert!(four.reveille("optout check ann@example.net").stdout.contains("yes"));
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", &unused];
    let mut late = crate::process::start(folder.path(), "late", &flags).spawn().expect("it runs");
    until("a token of the former authority is refused", || one.said().contains("a connection was refused"));
    late.kill().expect("killed");
    late.wait().expect("ended");
    for node in [&one, &two, &three, &four] {
        assert!(!node.said().contains("PRIVATE KEY"));
    }
    sink.stop().await;
}

#[test]
fn rotation_waits_for_a_member_that_is_down_and_can_be_aborted() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two, mut three] = Process::cluster(folder.path(), NAMES, &[]);
    let before = text(&status(&one)["fingerprint"]);
    three.kill();
    let waits = one.reveille("cluster ca rotate --yes --timeout 3s");
    assert!(waits.code == Some(1) && waits.stderr.contains("three does not answer"), "{waits:?}");
    assert_eq!(status(&two)["step"], "ROTATION_STEP_ADDING");
    assert_eq!(two.reveille("cluster ca abort").code, Some(0));
    let three = three.again(folder.path(), "three");
    assert_eq!(one_authority(folder.path(), [&one, &two, &three]), before);
    assert_eq!(rotate(&two).code, Some(0));
    assert_ne!(one_authority(folder.path(), [&one, &two, &three]), before);
}

/// Kills a node when the rotation is at `step`, while the command runs on `one`. The same command then ends it.
fn killed_at(step: &str, victim: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Process::cluster(folder.path(), NAMES, &[]);
    until("one leads", || nodes[0].reveille("cluster transfer-leader one").code == Some(0));
    let before = text(&status(&nodes[1])["fingerprint"]);
    let mut command = client(folder.path(), &nodes[0].admin);
    command.args(["cluster", "ca", "rotate", "--yes", "--timeout", "60s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut rotating = command.spawn().expect("it runs");
    let other = if victim == 1 { 2 } else { 1 };
    until(step, || {
        let now = status(&nodes[other]);
        let is_over = text(&now["fingerprint"]) != before && !text(&now["fingerprint"]).is_empty();
        now["step"] == step || is_over
    });
    nodes[victim].kill();
    std::thread::sleep(std::time::Duration::from_millis(300));
    nodes[victim] = nodes[victim].again(folder.path(), NAMES[victim]);
    let _ = rotating.kill();
    rotating.wait().expect("ended");
    // It may have ended already: then this is another one.
    until("it ends", || rotate(&nodes[other]).code == Some(0));
    let [one, two, three] = &nodes;
    assert_ne!(one_authority(folder.path(), [one, two, three]), before);
    assert!(STEP_TIMEOUT.as_secs() > 60);
    until("all vote", || two.voters() == 3 && two.reveille("optout add ann@example.net").code == Some(0));
}

#[test]
fn crash_of_the_leader_while_the_new_authority_is_added_leaves_one_authority() {
    killed_at("ROTATION_STEP_ADDING", 0);
}

#[test]
fn crash_of_a_member_while_the_new_authority_is_added_leaves_one_authority() {
    killed_at("ROTATION_STEP_ADDING", 1);
}

#[test]
fn crash_of_the_leader_while_the_new_authority_comes_into_use_leaves_one_authority() {
    killed_at("ROTATION_STEP_USING", 0);
}

#[test]
fn crash_of_a_member_while_the_new_authority_comes_into_use_leaves_one_authority() {
    killed_at("ROTATION_STEP_USING", 1);
}

#[test]
fn crash_of_the_leader_while_the_former_authority_is_dropped_leaves_one_authority() {
    killed_at("dropping", 0);
}

#[test]
fn crash_of_a_member_while_the_former_authority_is_dropped_leaves_one_authority() {
    killed_at("dropping", 1);
}

#[test]
fn removed_member_with_the_former_key_reaches_nobody_after_a_rotation() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two, three] = Process::cluster(folder.path(), NAMES, &[]);
    let four =
        Process::listening_by(folder.path(), "four", ["127.0.0.1:0"; 3], &[("REVEILLE__JOIN", &one.join_token())]);
    until("it votes", || one.voters() == 4);
    drop(four);
    // A thief has its disk from before.
    let stolen = tempfile::tempdir().expect("a folder");
    let copied = std::process::Command::new("cp").arg("-a").arg(folder.path().join("four")).arg(stolen.path()).status();
    assert!(copied.expect("it runs").success());
    until("it is removed", || one.reveille("cluster member remove four --dead --yes").code == Some(0));
    assert_eq!(rotate(&one).code, Some(0));
    one_authority(folder.path(), [&one, &two, &three]);
    let thief = Process::listening_by(stolen.path(), "four", ["127.0.0.1:0"; 3], &[]);
    until("it is refused", || one.said().contains("a connection was refused listener=\"peers\""));
    assert!(!thief.said().contains("removed node"), "it gets no answer at all");
}
