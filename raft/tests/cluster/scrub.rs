//! Files at rest of a running node are damaged: a check names them, and new snapshots replace them.

use std::fs;
use std::path::Path;

use reveille_raft::wal::CheckedTo;
use reveille_raft::{FileAtRest, Replica};

use crate::one_node::one;
use crate::support::*;

/// Returns the damaged files.
fn damaged(replica: &Replica) -> Vec<FileAtRest> {
    let is_damaged = |file: &FileAtRest| {
        let mut from = CheckedTo::default();
        loop {
            match replica.check_at_rest(*file, from) {
                Err(_) => return true,
                Ok(piece) => match piece.next {
                    Some(next) => from = next,
                    None => return false,
                },
            }
        }
    };
    replica.files_at_rest().into_iter().filter(is_damaged).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    bytes[at] ^= 1;
    let file = fs::File::options().write(true).open(path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..=at], at as u64).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_log_and_snapshots_are_replaced_by_new_snapshots() {
    let mut node = one().await;
    node.stop().await;
    let often = |options: &mut reveille_raft::ReplicaOptions| options.snapshot_every = 40;
    node.start_with(rebind(&node.address), often).await.expect("it starts");
    for number in 0..100 {
        propose(node.replica(), &format!("mark {number}")).await.expect("it is applied");
    }
    let replica = node.replica().clone();
    let is_kept = |file: &FileAtRest| matches!(file, FileAtRest::SnapshotManifest(_));
    until("two snapshots", || (replica.files_at_rest().iter().filter(|file| is_kept(file)).count() == 2).then_some(()))
        .await;
    assert_eq!(damaged(&replica), []);

    let all = replica.files_at_rest();
    let kinds = |file: &FileAtRest| match file {
        FileAtRest::LogSegment(_) => 0,
        FileAtRest::SnapshotManifest(_) => 1,
        FileAtRest::StateBlock(_) | FileAtRest::ArchiveBlock(_) => 2,
    };
    let mut harmed: Vec<FileAtRest> =
        (0..3).filter_map(|kind| all.iter().find(|file| kinds(file) == kind)).copied().collect();
    for file in &harmed {
        flip(&node.folder.path().join(file.to_string()), 30);
    }
    harmed.sort();
    let mut found = damaged(&replica);
    found.sort();
    assert_eq!(found, harmed);

    found.iter().for_each(|file| replica.repair(*file));
    let end = soon();
    while !damaged(&replica).is_empty() {
        assert!(std::time::Instant::now() < end, "still damaged: {:?}", damaged(&replica));
        propose(&replica, "another").await.expect("it is applied");
        damaged(&replica).iter().for_each(|file| replica.repair(*file));
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(!node.folder.path().join(harmed[0].to_string()).exists(), "the damaged segment is gone");
    drop(replica);
    node.stop().await;
    node.start(rebind(&node.address)).await.expect("it starts again");
    assert!(has_mark(node.replica(), "mark 7"));
    node.stop().await;
}
