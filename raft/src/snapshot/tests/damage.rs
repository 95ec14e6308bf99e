//! Tests of damaged files: no damaged row is used, and no intact snapshot is discarded.

use reveille_ledger::storage::unpack_block;

use super::small_disk::SmallDisk;
use super::*;

#[test]
fn only_leftovers_of_a_crash_are_removed_at_open() {
    let (folder, snapshots) = opened();
    let state = state(2_000);
    let built = build(&snapshots, 1, &state);
    let root = folder.path().join("snapshots");
    let half = [root.join("00000000000000000002.manifest.7.tmp"), root.join("blocks").join("abc.8.tmp")];
    for path in &half {
        fs::write(path, b"half").unwrap();
    }
    let snapshots = Snapshots::open(&root).unwrap();
    assert!(half.iter().all(|path| !path.exists()));
    assert_eq!(read(&snapshots, &built.manifest).unwrap(), state);
    assert_eq!(snapshots.list().unwrap().len(), 1);
}

#[test]
fn crash_before_manifest_leaves_former_snapshot_and_garbage() {
    let (folder, snapshots) = opened();
    let former = build(&snapshots, 1, &state(2_000)).manifest;
    let cut_short = build(&snapshots, 2, &state(6_000));
    fs::remove_file(snapshots.path_of(2)).unwrap();
    let snapshots = Snapshots::open(&folder.path().join("snapshots")).unwrap();
    assert_eq!(newest(&snapshots).as_ref(), Some(&former));
    let collected = snapshots.collect_garbage(&[former], &[], &BTreeSet::new()).unwrap();
    assert_eq!(collected, Collected { manifests: 0, blocks: cut_short.new_blocks });
}

#[test]
fn damaged_block_is_found_and_former_snapshot_taken() {
    let (_folder, snapshots) = opened();
    let mut state = state(4_000);
    let first = build(&snapshots, 1, &state).manifest;
    state.insert(key(3_999), b"changed".to_vec());
    let second = build(&snapshots, 2, &state).manifest;
    let own: Vec<_> = second.blocks.iter().filter(|entry| !first.blocks.contains(entry)).collect();
    let path = block_path(&snapshots, *own[0]);
    let whole = fs::read(&path).unwrap();
    let harms: [&dyn Fn(); 4] = [
        &|| flip(&path, whole.len() / 2),
        &|| fs::write(&path, &whole[..whole.len() - 1]).unwrap(),
        &|| fs::write(&path, b"").unwrap(),
        &|| fs::remove_file(&path).unwrap(),
    ];
    for (number, harm) in harms.iter().enumerate() {
        fs::write(&path, &whole).unwrap();
        assert_eq!(newest(&snapshots).as_ref(), Some(&second));
        harm();
        assert_eq!(newest(&snapshots).as_ref(), Some(&first), "harm {number}");
        assert!(read(&snapshots, &second).is_err(), "harm {number}");
        assert!(snapshots.install(&second).is_err(), "harm {number}");
    }
    assert_eq!(snapshots.missing(&second).unwrap(), vec![own[0].hash]);
}

#[test]
fn damaged_compressed_file_never_returns_other_bytes() {
    let (_folder, snapshots) = opened();
    let state = (0..100).map(|number| (key(number), vec![7; 400])).collect();
    let block = build(&snapshots, 1, &state).manifest.blocks[0];
    let (path, content) = (block_path(&snapshots, block), snapshots.read_block(block.hash).unwrap());
    let whole = fs::read(&path).unwrap();
    assert!(content.len() as u64 == block.bytes && whole.len() < content.len() / 10, "{} bytes", whole.len());
    let is_damaged = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        match snapshots.read_block(block.hash) {
            Err(SnapshotError::Damaged { .. }) => true,
            // A flipped bit that zstd does not use is harmless.
            read => {
                assert_eq!(read.unwrap(), content);
                false
            }
        }
    };
    let flipped = (0..whole.len() * 8).filter(|bit| {
        let mut file = whole.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        is_damaged(&file)
    });
    assert!(flipped.count() > whole.len() * 4);
    assert!((0..whole.len()).all(|length| is_damaged(&whole[..length])));
    let claims_exabytes = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(u64::MAX / 2).to_le_bytes(), &whole[9..]].concat();
    assert!(is_damaged(&claims_exabytes));
}

#[test]
fn damaged_bytes_are_not_confused_with_a_disk_that_refuses() {
    let (_folder, snapshots) = opened();
    let manifest = build(&snapshots, 1, &state(2_000)).manifest;
    let path = block_path(&snapshots, manifest.blocks[0]);
    flip(&path, 10);
    assert!(matches!(read(&snapshots, &manifest), Err(SnapshotError::Damaged { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(read(&snapshots, &manifest), Err(SnapshotError::Missing { .. })));
    fs::create_dir(&path).unwrap();
    assert!(matches!(read(&snapshots, &manifest), Err(SnapshotError::Io { .. })));
    assert!(matches!(snapshots.verify(&manifest), Err(SnapshotError::Io { .. })));
}

/// Each read of the file fails with EIO, as on a disk with a bad sector.
fn make_unreadable(path: &Path) {
    fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", path).unwrap();
}

#[test]
fn bad_sector_is_damage_and_file_is_written_again() {
    let (_folder, snapshots) = opened();
    let former = build(&snapshots, 1, &state(2_000)).manifest;
    build(&snapshots, 2, &state(2_100));
    make_unreadable(&snapshots.path_of(2));
    assert_eq!(snapshots.list().unwrap(), std::slice::from_ref(&former), "a manifest");

    let hash = former.blocks[0].hash;
    let content = snapshots.read_block(hash).unwrap();
    make_unreadable(&block_path(&snapshots, former.blocks[0]));
    assert!(matches!(read(&snapshots, &former), Err(SnapshotError::Damaged { .. })));
    assert_eq!(snapshots.missing(&former).unwrap(), [hash], "it is fetched again");
    snapshots.put_block(hash, &content).unwrap();
    assert_eq!(read(&snapshots, &former).unwrap(), state(2_000));
    make_unreadable(&block_path(&snapshots, former.blocks[0]));
    build(&snapshots, 3, &state(2_000));
    assert_eq!(read(&snapshots, &former).unwrap(), state(2_000), "the next snapshot wrote it");
}

#[test]
fn damaged_block_is_rewritten_by_next_build_and_by_fetch() {
    let ((_one, one), (_other, other)) = (opened(), opened());
    let state = state(4_000);
    let manifest = build(&one, 1, &state).manifest;
    flip(&block_path(&one, manifest.blocks[1]), 99);
    let again = build(&one, 2, &state);
    assert_eq!(again.new_blocks, 1);
    assert_eq!(newest(&one), Some(again.manifest.clone()));

    build(&other, 1, &state);
    let hash = manifest.blocks[2].hash;
    flip(&block_path(&other, manifest.blocks[2]), 99);
    assert_eq!(other.missing(&manifest).unwrap(), vec![hash]);
    other.put_block(hash, &one.read_block(hash).unwrap()).unwrap();
    assert_eq!(read(&other, &manifest).unwrap(), state);
}

#[test]
fn manifest_with_flipped_bit_or_cut_is_refused() {
    let (_folder, snapshots) = opened();
    let manifest = build(&snapshots, 3, &state(3_000)).manifest;
    let bytes = manifest.to_bytes().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::from_bytes(&flipped).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(Manifest::from_bytes(&bytes[..length]).is_err(), "cut to {length}");
    }
    let mut newer = bytes[..bytes.len() - 4].to_vec();
    newer[4] = 2;
    newer.extend_from_slice(&crc32c::crc32c(&newer).to_le_bytes());
    assert!(Manifest::from_bytes(&newer).is_err_and(|error| error.to_string().ends_with("reads format 1")));

    build(&snapshots, 2, &state(10));
    flip(&snapshots.path_of(3), 20);
    assert_eq!(newest(&snapshots).map(|found| found.index), Some(2));
}

#[test]
fn manifest_in_file_of_another_index_is_damaged() {
    let (_folder, snapshots) = opened();
    build(&snapshots, 3, &state(10));
    assert!(snapshots.check_manifest(3).is_ok());
    fs::rename(snapshots.path_of(3), snapshots.path_of(4)).unwrap();
    assert!(matches!(snapshots.check_manifest(4), Err(SnapshotError::Damaged { .. })));
    assert_eq!(newest(&snapshots), None);
}

#[test]
fn manifest_with_wrong_row_count_is_found_while_reading() {
    let (_folder, snapshots) = opened();
    let mut manifest = build(&snapshots, 1, &state(4_000)).manifest;
    manifest.blocks[0].rows += 1;
    assert!(matches!(read(&snapshots, &manifest), Err(SnapshotError::Damaged { .. })));
}

#[test]
fn bytes_that_are_no_block_are_refused_without_a_panic() {
    let row = [&8_u64.to_le_bytes()[..], b"12345678", &u64::MAX.to_le_bytes()[..]].concat();
    for bytes in [b"".to_vec(), b"RVC".to_vec(), b"RVC1\x01".to_vec(), [b"RVC1".as_slice(), &row].concat()] {
        assert!(unpack_block(&bytes).is_err(), "{bytes:?}");
    }
}

/// A peer or a backup may send a small file that unpacks to gigabytes.
#[test]
fn block_file_is_not_unpacked_beyond_the_size_of_a_block() {
    let zeros = vec![0; 5 << 20];
    let fitting = &zeros[..4 << 20];
    let named = |bytes: &[u8], file: &[u8]| content_of_block(Hash::of(bytes), file).map(|content| content.len());
    assert_eq!(named(fitting, &zstd::bulk::compress(fitting, 1).unwrap()).unwrap(), fitting.len());
    let announced = zstd::bulk::compress(&zeros, 1).unwrap();
    assert!(announced.len() < 1_000 && named(&zeros, &announced).is_err());
    // A stream announces no size.
    assert!(named(&zeros, &zstd::encode_all(&zeros[..], 1).unwrap()).is_err());
    // The first frame announces less than the file has.
    let two = [zstd::bulk::compress(b"small", 1).unwrap(), announced].concat();
    assert!(named(&[b"small".as_slice(), &zeros].concat(), &two).is_err());
}

#[test]
fn full_disk_is_reported_and_former_snapshot_kept() {
    let Some(disk) = SmallDisk::mount(6) else { return };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let snapshots = Snapshots::open(folder.path()).unwrap();
    let former = build(&snapshots, 1, &state(1_000)).manifest;
    let error = snapshots.build(2, vec![], &frozen(&state(50_000))).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { .. }), "{error}");
    assert_eq!(newest(&snapshots).as_ref(), Some(&former));
    assert_eq!(snapshots.blocks.hashes().unwrap().len(), former.blocks.len(), "its room is free again");
    build(&snapshots, 2, &state(2_000));
}
