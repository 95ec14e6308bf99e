//! Tests of archived blocks: a snapshot writes them once, and never reads them again.

use super::small_disk::SmallDisk;
use super::*;

/// Returns an archived block that no snapshot has yet.
fn unsaved(number: u64) -> FrozenBlock {
    let leaf = FrozenLeaf::of_rows(vec![(number.to_be_bytes().to_vec(), filler(number, 0, 300))]);
    let (block, bytes) = leaf.pack().remove(0);
    FrozenBlock { block, bytes: Some(bytes.into()) }
}

/// Returns an archived block that an earlier snapshot has.
fn saved(number: u64) -> FrozenBlock {
    FrozenBlock { bytes: None, ..unsaved(number) }
}

fn build_with(snapshots: &Snapshots, index: u64, archive: Vec<FrozenBlock>) -> Result<Built, SnapshotError> {
    snapshots.build(index, vec![], &frozen(&state(500)).with_archive(archive))
}

#[test]
fn part_is_written_by_first_snapshot_and_shared_by_next() {
    let (_folder, snapshots) = opened();
    let first = build_with(&snapshots, 1, vec![unsaved(1), unsaved(2), unsaved(1)]).unwrap();
    let mut expected = [unsaved(1).block, unsaved(2).block];
    expected.sort_by_key(|block| block.hash);
    assert_eq!(first.manifest.archive, expected);
    assert_eq!(first.new_blocks, first.manifest.blocks.len() + 2);
    assert_eq!(first.new_bytes, first.manifest.total_bytes());
    assert_eq!(first.manifest.state_hash, frozen(&state(500)).hash());
    assert_eq!(read(&snapshots, &first.manifest).unwrap(), state(500));
    for part in [unsaved(1), unsaved(2)] {
        assert_eq!(snapshots.read_block(part.block.hash).unwrap(), part.bytes.unwrap().to_vec());
    }

    let second = build_with(&snapshots, 2, vec![saved(2), saved(1), unsaved(3)]).unwrap();
    assert_eq!((second.new_blocks, second.manifest.archive.len()), (1, 3));
    assert_eq!(newest(&snapshots), Some(second.manifest));
}

#[test]
fn missing_part_fails_no_snapshot_and_stays_named() {
    let (_folder, snapshots) = opened();
    let manifest = build_with(&snapshots, 1, vec![unsaved(1), saved(2)]).unwrap().manifest;
    assert_eq!(manifest.archive.len(), 2);
    assert_eq!(snapshots.missing(&manifest).unwrap(), vec![saved(2).block.hash], "a peer may have it");
    assert_eq!(snapshots.lacking(), [saved(2).block.hash]);
    build_with(&snapshots, 2, vec![saved(1)]).unwrap();
    assert_eq!(snapshots.lacking(), [], "no part names it any more");
}

#[test]
fn archive_is_saved_by_first_snapshot_after_disk_was_full() {
    let Some(disk) = SmallDisk::mount(6) else { return };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let snapshots = Snapshots::open(folder.path()).unwrap();
    let former = build_with(&snapshots, 1, vec![]).unwrap().manifest;
    let other = folder.path().join("other");
    fs::write(&other, vec![0; 4 * 1024 * 1024]).unwrap();
    let leaf = FrozenLeaf::of_rows((0..10_000).map(|number| (key(number), filler(number, 0, 300))).collect());
    let archive: Vec<FrozenBlock> =
        leaf.pack().into_iter().map(|(block, bytes)| FrozenBlock { block, bytes: Some(bytes.into()) }).collect();
    let error = build_with(&snapshots, 2, archive.clone()).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { .. }), "{error}");
    assert_eq!(newest(&snapshots).as_ref(), Some(&former));
    assert!(archive.iter().all(|frozen| !snapshots.blocks.exists(frozen.block.hash).unwrap()), "their room is free");

    fs::remove_file(&other).unwrap();
    let built = build_with(&snapshots, 3, archive).unwrap();
    assert!(built.manifest.archive.iter().all(|block| snapshots.read_block(block.hash).is_ok()));
}

#[test]
fn garbage_collection_keeps_parts_of_kept_and_transferred_snapshots() {
    let (_folder, snapshots) = opened();
    let archives = [vec![unsaved(1)], vec![saved(1), unsaved(2)], vec![saved(2), unsaved(3)], vec![saved(2), saved(3)]];
    let built = (1..).zip(archives).map(|(index, archive)| build_with(&snapshots, index, archive).unwrap().manifest);
    let built: Vec<Manifest> = built.collect();
    let exists = || [1, 2, 3].map(|number| snapshots.blocks.exists(saved(number).block.hash).unwrap());
    snapshots.collect_garbage(&built[2..], &built[..1]).unwrap();
    assert_eq!(exists(), [true, true, true]);
    snapshots.collect_garbage(&built[2..], &[]).unwrap();
    assert_eq!(exists(), [false, true, true]);
}

#[test]
fn follower_fetches_parts_and_installs_without_those_that_the_sender_lost() {
    let ((_leader, leader), (_follower, follower)) = (opened(), opened());
    build_with(&follower, 1, vec![unsaved(1)]).unwrap();
    let sent = build_with(&leader, 2, vec![unsaved(1), unsaved(2)]).unwrap().manifest;
    let manifest = Manifest::from_bytes(&sent.to_bytes().unwrap()).unwrap();
    assert_eq!(manifest, sent);

    let lacking = unsaved(2).block.hash;
    assert_eq!(follower.missing(&manifest).unwrap(), vec![lacking]);
    follower.install(&manifest).unwrap();
    assert_eq!(follower.missing(&manifest).unwrap(), vec![lacking], "it is still asked for");
    follower.put_block(lacking, &leader.read_block(lacking).unwrap()).unwrap();
    assert_eq!(follower.missing(&manifest).unwrap(), vec![]);
    follower.install(&manifest).unwrap();
    assert_eq!(newest(&follower), Some(sent));
}

#[test]
fn damaged_part_leaves_snapshot_readable() {
    let (_folder, snapshots) = opened();
    let manifest = build_with(&snapshots, 1, vec![unsaved(1)]).unwrap().manifest;
    let block = manifest.archive[0];
    flip(&block_path(&snapshots, block), 50);
    assert!(matches!(snapshots.read_block(block.hash), Err(SnapshotError::Damaged { .. })));
    assert_eq!(snapshots.missing(&manifest).unwrap(), vec![]);
    assert_eq!(newest(&snapshots), Some(manifest));
    // A replay of the log makes the bytes again.
    assert_eq!(build_with(&snapshots, 2, vec![unsaved(1)]).unwrap().new_blocks, 1);
    snapshots.read_block(block.hash).unwrap();
}

#[test]
fn manifest_with_unordered_parts_is_refused() {
    let (_folder, snapshots) = opened();
    let mut manifest = build_with(&snapshots, 1, vec![unsaved(1), unsaved(2)]).unwrap().manifest;
    manifest.archive.reverse();
    assert!(Manifest::from_bytes(&manifest.to_bytes().unwrap()).is_err());
    manifest.archive[1] = manifest.archive[0];
    assert!(Manifest::from_bytes(&manifest.to_bytes().unwrap()).is_err());
}
