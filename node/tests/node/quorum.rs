//! Two of three nodes are killed: what the third one says.

use crate::process::{Process, until};

#[test]
fn without_a_quorum_nothing_is_changed_and_stale_reads_say_how_old_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, three] = ["one", "two", "three"].map(|name| Process::listening(folder.path(), name));
    let init = format!("cluster init --peer {},{}", two.peers, three.peers);
    until("a cluster", || one.reveille(&init).code == Some(0));
    until("a leader", || three.reveille("schedule list").code == Some(0));
    let status = three.reveille("cluster status");
    assert!(!status.stderr.contains("no quorum"), "{status:?}");
    one.kill();
    two.kill();

    let read = three.reveille("schedule list");
    assert_eq!(read.code, Some(5), "{read:?}");
    assert!(read.stderr.contains("--stale"), "{read:?}");
    let write = three.reveille("optout add ann@example.net -o json");
    assert_eq!((write.code, write.stdout.as_str()), (Some(5), ""), "{write:?}");
    let stale = three.reveille("schedule list --stale -o json");
    assert_eq!((stale.code, stale.stdout.as_str()), (Some(0), "[]\n"), "{stale:?}");
    let words = "stale: from the node's local state at log index ";
    assert!(stale.stderr.starts_with(words) && stale.stderr.ends_with(" old\n"), "{stale:?}");
    let status = three.reveille("cluster status");
    assert_eq!(status.code, Some(0));
    assert!(status.stderr.starts_with("no quorum: "), "{status:?}");
}
