//! Damage is no torn write: the log refuses to open, names the place, and says how to rejoin.

use crate::support::*;
use reveille_raft::wal::{MemoryDisk, OpenError, SECTOR_BYTES, WalOptions};

/// Returns a log with several batches in one segment, and the batches' offsets.
fn log_of_several_batches() -> (MemoryDisk, Vec<usize>) {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    let mut starts = vec![0];
    for index in 1..=6 {
        starts.push(newest(&disk).1.len());
        assert_eq!(append(&wal, vec![entry(1, index, 2000)]), WRITTEN);
    }
    (disk, starts)
}

fn place(error: &OpenError) -> (String, u64) {
    match error {
        OpenError::Damaged { file, offset, .. } => (file.clone(), *offset),
        other => panic!("another error: {other}"),
    }
}

#[test]
fn flipped_bit_in_the_middle_refuses_to_start_and_names_the_place() {
    let (disk, starts) = log_of_several_batches();
    let (name, image) = newest(&disk);
    let (from, to) = (starts[3], starts[4]);
    for at in from..to {
        let mut flipped = image.clone();
        flipped[at] ^= 1 << (at % 8);
        let (file, offset) = place(&refused(&with_file(&disk, &name, flipped)));
        assert_eq!(file, name);
        assert!((from..to).contains(&(offset as usize)), "byte {at} flipped, byte {offset} named");
    }
}

#[test]
fn flipped_bit_in_last_batch_refuses_to_start() {
    let (disk, starts) = log_of_several_batches();
    let (name, image) = newest(&disk);
    for at in starts[6]..image.len() {
        let mut flipped = image.clone();
        flipped[at] ^= 1 << (at % 8);
        place(&refused(&with_file(&disk, &name, flipped)));
    }
}

#[test]
fn zeroed_sector_before_last_batch_refuses_to_start() {
    let (disk, starts) = log_of_several_batches();
    let (name, image) = newest(&disk);
    for at in (0..starts[6]).step_by(SECTOR_BYTES) {
        let mut zeroed = image.clone();
        zeroed[at..at + SECTOR_BYTES].fill(0);
        if zeroed == image {
            continue;
        }
        let error = refused(&with_file(&disk, &name, zeroed));
        let batch = starts.iter().rev().find(|start| **start <= at).copied();
        assert_eq!(place(&error), (name.clone(), batch.unwrap_or_default() as u64));
        assert!(error.to_string().contains("says that it was synced"), "{error}");
    }
}

#[test]
fn damage_error_names_place_kind_and_consequence() {
    let (disk, starts) = log_of_several_batches();
    let (name, mut image) = newest(&disk);
    image[starts[2]] ^= 1;
    let text = refused(&with_file(&disk, &name, image)).to_string();
    for part in [name.as_str(), &format!("byte {}", starts[2]), "expected", "found", "must not start with it"] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

/// Returns a log of several segments, none of them purged.
fn log_of_several_segments() -> (MemoryDisk, Vec<String>) {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &WalOptions { segment_bytes: 3000, ..inline() });
    (1..=12).for_each(|index| assert_eq!(append(&wal, vec![entry(1, index, 1500)]), WRITTEN));
    let names: Vec<String> = disk.files().into_keys().collect();
    assert!(names.len() >= 4);
    (disk, names)
}

#[test]
fn missing_segment_before_the_last_refuses_to_start() {
    let (disk, names) = log_of_several_segments();
    for name in &names[..names.len() - 1] {
        place(&refused(&without_file(&disk, name)));
    }
}

#[test]
fn truncated_segment_before_the_last_refuses_to_start() {
    let (disk, names) = log_of_several_segments();
    let image = disk.files()[&names[1]].clone();
    for end in (0..image.len()).step_by(SECTOR_BYTES / 2) {
        let error = refused(&with_file(&disk, &names[1], image[..end].to_vec()));
        // A cut between two batches is found in the next segment, whose header knows of more.
        assert!(names[1..=2].contains(&place(&error).0), "cut at {end}: {error}");
    }
}

#[test]
fn log_of_other_node_does_not_open() {
    let (disk, _) = log_of_several_batches();
    let error = try_open(&disk, &WalOptions { identity: 8, ..inline() }).err();
    assert!(matches!(error, Some(OpenError::Foreign { expected: 8, found: NODE, .. })));
}

#[test]
fn log_of_newer_version_is_reported() {
    let (disk, starts) = log_of_several_batches();
    let (name, mut image) = newest(&disk);
    let header = &mut image[starts[4]..starts[4] + 64];
    header[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&checksum.to_le_bytes());
    let error = refused(&with_file(&disk, &name, image));
    assert!(matches!(error, OpenError::TooNew { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn foreign_files_are_left_alone() {
    let (disk, _) = log_of_several_batches();
    let disk = with_file(&disk, "notes.wal", b"not a segment".to_vec());
    let (wal, _) = open(&disk, &inline());
    assert_eq!(content(&wal).entries.len(), 6);
    assert!(disk.files().contains_key("notes.wal"));
}
