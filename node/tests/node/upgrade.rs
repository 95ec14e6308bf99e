//! A rolling upgrade to a release with a higher ledger level, with the commands of the handbook (P23).

use std::path::Path;

use crate::process::{Ended, Process, start, until};

/// Simulates the next release: its ledger level is 2.
const NEXT: (&str, &str) = ("REVEILLE_LEVEL", "2");

/// Kills a node, and starts it with the next release.
fn upgrade(node: &mut Process, folder: &Path, name: &str) {
    node.kill();
    *node = node.again_by(folder, name, &[NEXT]);
}

#[test]
fn raised_level_keeps_the_former_release_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, mut three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    until("all are known", || one.reveille("cluster upgrade status").stdout.matches("0.1.0").count() == 3);
    until("all came up", || one.reveille("cluster upgrade finish --yes").code == Some(0));
    let status = one.reveille("cluster upgrade status -o json");
    assert!(status.stdout.contains("\"level\": 1"), "nothing to raise: {status:?}");

    upgrade(&mut one, folder.path(), "one");
    upgrade(&mut two, folder.path(), "two");
    let in_the_way = "node three applies ledger level 1 and not 2; install the new release on it and restart it";
    until("who is in the way", || three.reveille("cluster upgrade status").stderr.contains(in_the_way));
    let refused = two.reveille("cluster upgrade finish --yes");
    assert!(refused.code != Some(0) && refused.stderr.contains(in_the_way), "{refused:?}");
    assert_eq!(three.reveille("optout add ann@example.net").code, Some(0), "the mixed cluster works");

    upgrade(&mut three, folder.path(), "three");
    until("it is raised", || one.reveille("cluster upgrade finish --yes").code == Some(0));
    let status = three.reveille("cluster upgrade status -o json");
    assert!(status.stdout.contains("\"level\": 2"), "{status:?}");

    three.kill();
    let flags = ["--listen", &three.admin, "--peer-listen", &three.peers, "--http", &three.http];
    let former = Ended::from(start(folder.path(), "three", &flags).output().expect("it runs"));
    assert_eq!(former.code, Some(1), "{former:?}");
    assert!(former.stderr.contains("start a newer build on this data folder"), "{former:?}");
    three = three.again_by(folder.path(), "three", &[NEXT]);
    until("it is back", || three.reveille("optout check ann@example.net").code == Some(0));
}
