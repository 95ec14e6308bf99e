//! A running log finds damage of what is on its disk, and lets a purge remove a damaged segment.

use crate::support::*;
use reveille_raft::FileDamage;
use reveille_raft::wal::{CheckedTo, Disk, MemoryDisk, Wal};

/// Checks all segments.
fn check(wal: &Wal) -> Result<(), FileDamage> {
    let health = wal.health();
    for number in health.segments() {
        let mut from = Some(CheckedTo::default());
        while let Some(at) = from {
            from = health.check_segment(number, at)?.next;
        }
    }
    Ok(())
}

fn log() -> (MemoryDisk, Wal) {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    (1..=4).for_each(|index| assert_eq!(append(&wal, vec![entry(1, index, 700)]), WRITTEN));
    (disk, wal)
}

fn flip(disk: &MemoryDisk, name: &str, at: usize) {
    let byte = disk.files()[name][at] ^ (1 << (at % 8));
    disk.open(name).expect("a segment").write_at(at as u64, &[byte]).expect("written");
}

#[test]
fn every_flipped_byte_of_running_log_is_found() {
    let (disk, wal) = log();
    let (name, image) = newest(&disk);
    assert_eq!(check(&wal), Ok(()));
    for at in 0..image.len() {
        flip(&disk, &name, at);
        let damage = check(&wal).expect_err("found");
        assert!(damage.to_string().starts_with("at byte "), "{damage}");
        flip(&disk, &name, at);
    }
    assert_eq!(check(&wal), Ok(()));
}

#[test]
fn large_segment_is_checked_in_pieces() {
    let (_disk, wal) = log();
    (5..=9).for_each(|index| assert_eq!(append(&wal, vec![entry(1, index, 600_000)]), WRITTEN));
    let (health, mut from, mut pieces) = (wal.health(), Some(CheckedTo::default()), 0);
    while let Some(at) = from {
        from = health.check_segment(1, at).expect("intact").next;
        pieces += 1;
    }
    assert_eq!(pieces, 3);
}

#[test]
fn damaged_segment_is_ended_and_purged() {
    let (disk, wal) = log();
    let (name, _) = newest(&disk);
    flip(&disk, &name, 700);
    wal.health().end_segment(1);
    assert_eq!(append(&wal, vec![entry(1, 5, 10)]), WRITTEN);
    assert_eq!(append(&wal, vec![entry(1, 6, 10)]), WRITTEN);
    assert_eq!(wal.health().segments(), [1, 2], "one new segment");
    assert_eq!(at_once(wal.purge(point(1, 4))), Ok(()));
    assert_eq!((wal.health().segments(), check(&wal)), (vec![2], Ok(())));
    drop(wal);
    open(&disk, &inline());
}
