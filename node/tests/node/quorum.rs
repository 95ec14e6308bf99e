//! What a node says without a majority, and with a majority against it.

#[cfg(feature = "injected-bugs")]
use std::path::Path;

use reveille_cluster::compose::unsubscribe::Unsubscribe;
use reveille_cluster::process::secret::Secret;

#[cfg(feature = "injected-bugs")]
use reveille_sink::{Sink, SinkOptions};

#[cfg(feature = "injected-bugs")]
use crate::process::STEP_TIMEOUT;
use crate::process::{Process, until};
use crate::unsubscribe;

#[test]
fn node_without_quorum_changes_nothing_and_dates_stale_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, three] = unsubscribe::cluster(folder.path(), ["one", "two", "three"]);
    let status = three.reveille("cluster status");
    assert!(!status.stderr.contains("no quorum"), "{status:?}");
    let elsewhere = Process::reveille_at(folder.path(), &three.http, "schedule list");
    assert!(elsewhere.code == Some(5) && elsewhere.stderr.contains("admin port"), "{elsewhere:?}");
    one.kill();
    two.kill();

    // The command ends after some seconds, not after ten minutes, because then the missing nodes are known.
    let read = three.reveille("schedule list --timeout 10m");
    assert_eq!(read.code, Some(5), "{read:?}");
    let missing = ": 1 of 3 voters can be reached, 2 are needed; not one, two; nothing happened";
    assert!(read.stderr.contains(missing) && read.stderr.contains("--stale"), "{read:?}");
    let write = three.reveille("optout add ann@example.net -o json --timeout 10m");
    assert_eq!((write.code, write.stdout.as_str()), (Some(5), ""), "{write:?}");
    assert!(write.stderr.contains("NO_QUORUM") && write.stderr.contains(missing), "{write:?}");
    assert!(
        write.stderr.contains("start one, two") && !write.stderr.contains("--stale"),
        "only reads have it: {write:?}"
    );
    // The node checks an opt-out link by itself; without a quorum it never confirms the opt-out.
    let key = Secret::File(folder.path().join("unsubscribe.key").to_string_lossy().into_owned());
    let links = Unsubscribe::new("https://news.example.com/leave", None, &[key]).expect("the nodes' key");
    let link = links.link("default", "ann@example.net");
    let path = link.strip_prefix("https://news.example.com").expect("a path");
    let refused = unsubscribe::one_click(&three, path);
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nretry-after: 10\r\n"), "{refused}");
    assert!(three.get("/readyz").starts_with("HTTP/1.1 503 "), "{}", three.get("/readyz"));
    assert!(three.get("/readyz").contains("no leader was heard for "), "{}", three.get("/readyz"));
    let status = three.reveille("cluster status -o json");
    assert!(status.stdout.contains("\"leader\": \"\""), "the dead node is not reported as leader: {status:?}");
    let stale = three.reveille("schedule list --stale -o json");
    assert_eq!((stale.code, stale.stdout.as_str()), (Some(0), "[]\n"), "{stale:?}");
    let words = "stale: from the node's local state at log index ";
    assert!(stale.stderr.starts_with(words) && stale.stderr.ends_with(" old\n"), "{stale:?}");
    let status = three.reveille("cluster status");
    assert_eq!(status.code, Some(0));
    assert!(status.stderr.starts_with("no quorum: "), "{status:?}");
    assert!(status.stdout.contains("none heard for "), "{status:?}");

    // Another node at the address of a member is not that member.
    let stranger = two.again(folder.path(), "stranger");
    let status = three.reveille("cluster status -o json");
    let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("a status");
    let members = status["members"].as_array().expect("members");
    let of_two: Vec<_> =
        members.iter().filter(|member| member["member"]["name"] == "two").map(|two| &two["role"]).collect();
    assert_eq!(of_two, ["MEMBER_ROLE_UNREACHABLE"], "{status}");
    let read = three.reveille("schedule list");
    assert!(read.code == Some(5) && read.stderr.contains(missing), "{read:?}");
    drop(stranger);

    // One node restarts. With a majority everything works again.
    let _one = one.again(folder.path(), "one");
    until("a leader", || three.reveille("schedule list").code == Some(0));
    until("a click counts again", || unsubscribe::one_click(&three, path).starts_with("HTTP/1.1 200 "));
    assert!(three.reveille("optout check ann@example.net").stdout.contains("yes"));
    until("it is ready", || three.get("/readyz").starts_with("HTTP/1.1 200 "));
}

/// Node three ignores `min_gap`, so it alone opens a run for a recipient that has just got an email.
#[cfg(feature = "injected-bugs")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_against_majority_stops_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let [one, two, three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let mut three = differing(folder.path(), &one, three, &sink, || {}).await;
    assert_eq!(three.ended(), Some(1));
    assert!(three.said().contains("differs from that of a majority"), "{}", three.said());
    assert_eq!(two.reveille("schedule list").code, Some(0), "the others continue");
    sink.stop().await;
}

/// Of two replicas that differ, none can know that it is wrong. An operator must learn of it.
#[cfg(feature = "injected-bugs")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_differ_without_majority_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let [one, mut two, three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let three = differing(folder.path(), &one, three, &sink, || two.kill()).await;
    for node in [&one, &three] {
        until("it says so", || node.get("/metrics").contains("\nreveille_state_differs 1\n"));
        let said = node.said();
        assert_eq!(said.matches("differ at one log index").count(), 1, "{said}");
    }
    assert_eq!(one.reveille("schedule list").code, Some(0), "they continue");
    sink.stop().await;
}

/// Restarts node three so that its state differs from that of the others soon. Calls `before` just before.
#[cfg(feature = "injected-bugs")]
async fn differing(folder: &Path, one: &Process, mut three: Process, sink: &Sink, before: impl FnOnce()) -> Process {
    three.kill();
    three = three.again_by(folder, "three", &[("REVEILLE_INJECTED_BUG", "no-min-gap")]);
    until("a leader", || one.reveille("schedule list").code == Some(0));
    let port = sink.handle().address().port();
    let relay = one.reveille(&format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    assert_eq!(relay.code, Some(0), "{relay:?}");
    let create = "schedule create daily --at 2040-01-01T00:00:00Z --zone UTC --min-gap 20h --sender a@example.net";
    let created = one.reveille(&format!("{create} --subject s --inline-text t --to ann@example.net"));
    assert_eq!(created.code, Some(0), "{created:?}");
    assert_eq!(one.reveille("schedule trigger daily").code, Some(0));
    sink.handle().wait_for(1, STEP_TIMEOUT).await.expect("an email");
    before();
    one.reveille("schedule trigger daily");
    three
}
