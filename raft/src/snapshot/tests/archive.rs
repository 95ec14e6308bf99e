//! Tests of archived blocks: a snapshot writes them once and never reads them again; the rows of the state name them.

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

fn hash(number: u64) -> Hash {
    unsaved(number).block.hash
}

fn build_with(snapshots: &Snapshots, index: u64, archive: &[FrozenBlock]) -> Result<Built, SnapshotError> {
    snapshots.build(index, vec![], &frozen(&state(500)).with_blocks(archive))
}

fn exists(snapshots: &Snapshots, hash: Hash) -> bool {
    snapshots.blocks.hashes().unwrap().contains(&hash)
}

#[test]
fn part_is_written_by_first_snapshot_and_shared_by_next() {
    let (_folder, snapshots) = opened();
    let first = build_with(&snapshots, 1, &[unsaved(1), unsaved(2), unsaved(1)]).unwrap();
    assert_eq!(first.new_blocks, first.manifest.blocks.len() + 2);
    assert_eq!(first.new_bytes, first.manifest.total_bytes() + unsaved(1).block.bytes + unsaved(2).block.bytes);
    assert_eq!(first.manifest.state_hash, frozen(&state(500)).hash());
    assert_eq!(read(&snapshots, &first.manifest).unwrap(), state(500));
    for part in [unsaved(1), unsaved(2)] {
        assert_eq!(snapshots.read_block(part.block.hash).unwrap(), part.bytes.unwrap().to_vec());
    }

    let second = build_with(&snapshots, 2, &[saved(2), saved(1), unsaved(3)]).unwrap();
    assert_eq!(second.new_blocks, 1);
    assert_eq!(newest(&snapshots), Some(second.manifest));
}

#[test]
fn missing_block_fails_no_snapshot_and_is_lacking_until_it_came() {
    let (_folder, snapshots) = opened();
    let manifest = build_with(&snapshots, 1, &[unsaved(1), saved(2)]).unwrap().manifest;
    let collect = |archive: &[u64]| {
        let archive = archive.iter().map(|number| hash(*number)).collect();
        snapshots.collect_garbage(std::slice::from_ref(&manifest), &[], &archive).unwrap();
        snapshots.missing_of_archive()
    };
    assert_eq!(collect(&[1, 2]), [hash(2)]);
    snapshots.put_block(hash(2), &unsaved(2).bytes.unwrap()).unwrap();
    assert_eq!(snapshots.missing_of_archive(), []);
    assert_eq!(collect(&[1, 2, 3]), [hash(3)]);
    assert_eq!(collect(&[1, 2]), [], "no part names it any more");
}

#[test]
fn damaged_block_is_lacking_although_it_has_a_file() {
    let (_folder, snapshots) = opened();
    let manifest = build_with(&snapshots, 1, &[unsaved(1)]).unwrap().manifest;
    flip(&block_path(&snapshots, unsaved(1).block), 50);
    assert!(matches!(snapshots.read_archived(hash(1)), Err(SnapshotError::Damaged { .. })));
    snapshots.find_missing(&[hash(1)].into(), || true).unwrap();
    assert_eq!(snapshots.missing_of_archive(), [hash(1)]);
    assert_eq!(snapshots.missing(&manifest).unwrap(), vec![], "the snapshot is readable");
    assert_eq!(newest(&snapshots), Some(manifest));
    // A replay of the log makes the bytes again.
    assert_eq!(build_with(&snapshots, 2, &[unsaved(1)]).unwrap().new_blocks, 1);
    snapshots.read_block(hash(1)).unwrap();
    assert_eq!(snapshots.missing_of_archive(), [], "no node is asked for it");
}

#[test]
fn archive_is_saved_by_first_snapshot_after_disk_was_full() {
    let Some(disk) = SmallDisk::mount(6) else { return };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let snapshots = Snapshots::open(folder.path()).unwrap();
    let former = build_with(&snapshots, 1, &[]).unwrap().manifest;
    let other = folder.path().join("other");
    fs::write(&other, vec![0; 4 * 1024 * 1024]).unwrap();
    let leaf = FrozenLeaf::of_rows((0..10_000).map(|number| (key(number), filler(number, 0, 300))).collect());
    let archive: Vec<FrozenBlock> =
        leaf.pack().into_iter().map(|(block, bytes)| FrozenBlock { block, bytes: Some(bytes.into()) }).collect();
    let error = build_with(&snapshots, 2, &archive).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { .. }), "{error}");
    assert_eq!(newest(&snapshots).as_ref(), Some(&former));
    assert!(archive.iter().all(|frozen| !exists(&snapshots, frozen.block.hash)), "their room is free");

    fs::remove_file(&other).unwrap();
    build_with(&snapshots, 3, &archive).unwrap();
    assert!(archive.iter().all(|frozen| snapshots.read_block(frozen.block.hash).is_ok()));
}

#[test]
fn garbage_collection_keeps_blocks_that_the_state_names() {
    let (_folder, snapshots) = opened();
    let manifest = build_with(&snapshots, 1, &[unsaved(1), unsaved(2)]).unwrap().manifest;
    snapshots.collect_garbage(std::slice::from_ref(&manifest), &[], &[hash(2)].into()).unwrap();
    assert_eq!([hash(1), hash(2)].map(|hash| exists(&snapshots, hash)), [false, true]);
    assert_eq!(read(&snapshots, &manifest).unwrap(), state(500));
}
