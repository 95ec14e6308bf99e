//! Two of three nodes are killed: the errors and the status of the third.

use reveille_cluster::node::secret::Secret;
use reveille_cluster::ops::unsubscribe::Unsubscribe;

use crate::process::{Process, until};
use crate::unsubscribe;

#[test]
fn without_a_quorum_nothing_is_changed_and_stale_reads_say_how_old_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, three] = ["one", "two", "three"].map(|name| unsubscribe::listening(folder.path(), name));
    let init = format!("cluster init --peer {},{}", two.peers, three.peers);
    until("a cluster", || one.reveille(&init).code == Some(0));
    until("a leader", || three.reveille("schedule list").code == Some(0));
    let status = three.reveille("cluster status");
    assert!(!status.stderr.contains("no quorum"), "{status:?}");
    let again = one.reveille(&init);
    assert!(again.stderr.starts_with("it exists already") && again.code == Some(0), "{again:?}");
    let elsewhere = Process::reveille_at(&three.http, "schedule list");
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
    assert!(status.stdout.contains("\"leader\": null"), "the dead node is not reported as leader: {status:?}");
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
    let of_two: Vec<_> = members.iter().filter(|member| member["name"] == "two").map(|two| &two["role"]).collect();
    assert_eq!(of_two, ["unreachable"], "{status}");
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
