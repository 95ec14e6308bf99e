//! Tests of shared blocks: what a new snapshot writes, a follower fetches, and garbage collection removes.

use reveille_ledger::storage::unpack_block;

use super::*;

#[test]
fn leaf_is_split_into_blocks_of_limited_size() {
    let rows: Vec<Row> = state(10_000).into_iter().collect();
    let leaf = FrozenLeaf::of_rows(rows.clone());
    let packed = leaf.pack();
    assert!(packed.len() >= 4 && packed.iter().all(|(_, bytes)| bytes.len() <= BLOCK_BYTES_MAX), "{}", packed.len());
    assert!(packed.iter().map(|(entry, _)| entry).eq(leaf.blocks()));
    let read: Vec<Row> = packed.iter().flat_map(|(_, bytes)| unpack_block(bytes).unwrap()).collect();
    assert_eq!(read, rows);
}

#[test]
fn failed_build_keeps_blocks_of_other_snapshots() {
    let (_folder, snapshots) = opened();
    let state = state(4_000);
    let manifest = build(&snapshots, 1, &state).manifest;
    flip(&block_path(&snapshots, manifest.blocks[0]), 50);
    let mut more = state.clone();
    more.insert(b"schedule/99999999".to_vec(), vec![1]);
    let last = frozen(&more).leaves().last().unwrap().blocks()[0];
    fs::create_dir(block_path(&snapshots, last)).unwrap();
    assert!(snapshots.build(2, vec![], &frozen(&more)).is_err());
    assert_eq!(read(&snapshots, &manifest).unwrap(), state, "the damaged block is even whole again");
}

#[test]
fn adjacent_change_of_one_percent_writes_few_blocks() {
    let (_folder, snapshots) = opened();
    let mut state = state(20_000);
    let first = build(&snapshots, 1, &state);
    for number in 7_000..7_200 {
        state.insert(key(number), filler(number, 1, 400));
    }
    let second = build(&snapshots, 2, &state);
    assert!(second.new_blocks <= 3, "{} of {} blocks are new", second.new_blocks, first.new_blocks);
    assert_eq!(read(&snapshots, &second.manifest).unwrap(), state);
}

#[test]
fn inserted_and_removed_rows_change_only_their_pages() {
    let (_folder, snapshots) = opened();
    let mut state = state(20_000);
    let first = build(&snapshots, 1, &state);
    state.insert(b"schedule/00000000/inserted near the front".to_vec(), filler(1, 1, 400));
    state.remove(&key(9_000));
    for number in 20_000..20_200 {
        state.insert(key(number), filler(number, 0, 400));
    }
    let second = build(&snapshots, 2, &state);
    assert!(second.new_blocks <= 8, "{} of {} blocks are new", second.new_blocks, first.new_blocks);
    let unchanged = build(&snapshots, 3, &state);
    assert_eq!((unchanged.new_blocks, unchanged.new_bytes), (0, 0));
    assert_eq!(snapshots.list().unwrap().iter().map(|manifest| manifest.index).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn equal_states_give_equal_blocks() {
    let ((_one, one), (_other, other)) = (opened(), opened());
    let state = state(3_000);
    build(&other, 5, &self::state(1_000));
    assert_eq!(build(&one, 7, &state).manifest, build(&other, 7, &state).manifest);
}

#[test]
fn follower_fetches_only_lacking_blocks() {
    let ((_leader, leader), (_follower, follower)) = (opened(), opened());
    let mut state = state(10_000);
    build(&leader, 1, &state);
    build(&follower, 1, &state);
    for number in 100..200 {
        state.insert(key(number), filler(number, 1, 400));
    }
    let sent = build(&leader, 2, &state).manifest;
    let manifest = Manifest::from_bytes(&sent.to_bytes().unwrap()).unwrap();

    let missing = follower.missing(&manifest).unwrap();
    assert!(!missing.is_empty() && missing.len() <= 3, "{} are missing", missing.len());
    assert!(matches!(follower.install(&manifest), Err(SnapshotError::Missing { .. })), "not before all is there");
    for hash in &missing {
        follower.put_block(*hash, &leader.read_block(*hash).unwrap()).unwrap();
    }
    assert_eq!(follower.missing(&manifest).unwrap(), vec![]);
    follower.install(&manifest).unwrap();
    assert_eq!(newest(&follower), Some(sent));
    assert_eq!(read(&follower, &manifest).unwrap(), state);
}

#[test]
fn wrong_block_from_peer_is_refused() {
    let (_folder, snapshots) = opened();
    let hash = Hash::of(b"the right bytes");
    assert!(matches!(snapshots.put_block(hash, b"other bytes"), Err(SnapshotError::Damaged { .. })));
    assert!(matches!(snapshots.read_block(hash), Err(SnapshotError::Missing { .. })));
}

#[test]
fn block_named_by_no_snapshot_or_transfer_is_garbage() {
    let ((_folder, snapshots), (_other, other)) = (opened(), opened());
    let mut state = state(4_000);
    let mut manifests = Vec::new();
    for index in 1..=4 {
        state.insert(key(index * 900), filler(index, index, 500));
        manifests.push(build(&snapshots, index, &state).manifest);
    }
    let fetched = build(&other, 9, &State::from([(key(7), filler(7, 9, 500))])).manifest;
    for hash in snapshots.missing(&fetched).unwrap() {
        snapshots.put_block(hash, &other.read_block(hash).unwrap()).unwrap();
    }
    let collected =
        snapshots.collect_garbage(&manifests[2..], std::slice::from_ref(&fetched), &BTreeSet::new()).unwrap();
    assert_eq!(collected.manifests, 2);
    assert!(collected.blocks > 0);
    for manifest in [&manifests[2], &manifests[3], &fetched] {
        assert_eq!(snapshots.missing(manifest).unwrap(), vec![]);
    }
    assert!(!snapshots.missing(&manifests[0]).unwrap().is_empty());
    assert_eq!(read(&snapshots, &manifests[3]).unwrap(), state);
    assert_eq!(
        snapshots.collect_garbage(&manifests[2..], &[], &BTreeSet::new()).unwrap(),
        Collected { manifests: 0, blocks: fetched.blocks.len() }
    );
}

#[test]
fn damaged_manifest_is_garbage() {
    let (_folder, snapshots) = opened();
    let kept = [1, 2].map(|index| build(&snapshots, index, &state(100 * index)).manifest);
    build(&snapshots, 3, &state(300));
    flip(&snapshots.path_of(3), 20);
    snapshots.collect_garbage(&kept, &[], &BTreeSet::new()).unwrap();
    assert_eq!(snapshots.indices().unwrap(), [2, 1]);
}
