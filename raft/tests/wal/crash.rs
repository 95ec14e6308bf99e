//! The last batch is half written: the log reopens to the content before it, and reports the truncation.

use std::time::Duration;

use crate::support::*;
use reveille_raft::wal::{MemoryDisk, SECTOR_BYTES};

/// A log whose last batch has several hundred kilobytes: the disk, the content without and with that batch, and the
/// batch's offset in its segment.
struct Torn {
    disk: MemoryDisk,
    before: Content,
    after: Content,
    start: usize,
}

fn log_with_a_large_last_batch() -> Torn {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    assert_eq!(save_vote(&wal, vote(4)), WRITTEN);
    assert_eq!(append(&wal, (1..=5).map(|index| entry(4, index, 900)).collect()), WRITTEN);
    assert_eq!(at_once(wal.commit(Some(point(4, 3)))), Ok(()));
    assert_eq!(at_once(wal.truncate(Some(point(4, 4)))), Ok(()));
    let before = content(&wal);
    let start = newest(&disk).1.len();
    assert_eq!(append(&wal, (5..=16).map(|index| entry(6, index, 25_000)).collect()), WRITTEN);
    Torn { after: content(&wal), disk, before, start }
}

/// Opens a disk image that must have the content before the last batch. The log then works as if the batch had never
/// begun.
fn reopens_to_the_prefix(torn: &Torn, image: Vec<u8>, what: &str) {
    let name = newest(&torn.disk).0;
    let disk = with_file(&torn.disk, &name, image);
    let (wal, report) = open(&disk, &inline());
    assert_eq!(content(&wal), torn.before, "{what}");
    assert!(report.tail_truncated, "{what}: not reported");
    let cut = report.truncated_now.expect("a cut");
    assert_eq!((cut.file.as_str(), cut.offset), (name.as_str(), torn.start as u64), "{what}");
    assert_eq!(disk.files().get(&cut.copy).map(|copy| copy.len() as u64), Some(cut.bytes), "{what}");
}

#[test]
fn cut_at_every_512_bytes_of_its_last_batch_the_log_reopens_to_the_prefix() {
    let torn = log_with_a_large_last_batch();
    let image = newest(&torn.disk).1;
    assert!(image.len() - torn.start > 300_000);
    for end in (torn.start + SECTOR_BYTES..image.len()).step_by(SECTOR_BYTES) {
        reopens_to_the_prefix(&torn, image[..end].to_vec(), &format!("cut at byte {end}"));
    }
}

#[test]
fn cut_within_a_sector_the_log_reopens_to_the_prefix() {
    let torn = log_with_a_large_last_batch();
    let image = newest(&torn.disk).1;
    let near_start = torn.start + 1..torn.start + SECTOR_BYTES;
    let near_end = image.len() - SECTOR_BYTES + 1..image.len();
    for end in near_start.chain(near_end).step_by(7) {
        reopens_to_the_prefix(&torn, image[..end].to_vec(), &format!("cut at byte {end}"));
    }
}

#[test]
fn cut_between_two_batches_there_is_nothing_to_report() {
    let torn = log_with_a_large_last_batch();
    let (name, image) = newest(&torn.disk);
    let (wal, report) = open(&with_file(&torn.disk, &name, image[..torn.start].to_vec()), &inline());
    assert_eq!(content(&wal), torn.before);
    assert!(!report.tail_truncated);
}

#[test]
fn zeroed_from_every_512_bytes_of_its_last_batch_on_the_log_reopens_to_the_prefix() {
    let torn = log_with_a_large_last_batch();
    let image = newest(&torn.disk).1;
    for from in (torn.start..image.len()).step_by(SECTOR_BYTES) {
        let mut zeroed = image.clone();
        zeroed[from..].fill(0);
        if zeroed != image {
            reopens_to_the_prefix(&torn, zeroed, &format!("zeroed from byte {from}"));
        }
    }
}

#[test]
fn with_any_one_sector_of_its_last_batch_zeroed_the_log_reopens_to_the_prefix() {
    let torn = log_with_a_large_last_batch();
    let (name, image) = newest(&torn.disk);
    let mut zero_by_right = 0;
    for from in (torn.start..image.len()).step_by(SECTOR_BYTES) {
        let mut zeroed = image.clone();
        zeroed[from..from + SECTOR_BYTES].fill(0);
        if zeroed == image {
            zero_by_right += 1;
            let (wal, report) = open(&with_file(&torn.disk, &name, zeroed), &inline());
            assert_eq!((content(&wal), report.tail_truncated), (torn.after.clone(), false));
        } else {
            reopens_to_the_prefix(&torn, zeroed, &format!("sector at byte {from} zeroed"));
        }
    }
    assert!(zero_by_right > 100, "payloads of zeros were meant to be part of this");
}

#[test]
fn after_a_cut_the_log_says_so_at_every_opening_until_the_node_has_caught_up() {
    let torn = log_with_a_large_last_batch();
    let (name, image) = newest(&torn.disk);
    let disk = with_file(&torn.disk, &name, image[..image.len() - 1].to_vec());
    let (wal, report) = open(&disk, &inline());
    assert!(report.tail_truncated && report.truncated_now.is_some());
    assert_eq!(append(&wal, vec![entry(8, 5, 40)]), WRITTEN);
    drop(wal);

    let disk = disk.crash(1);
    let (wal, report) = open(&disk, &inline());
    assert!(report.tail_truncated && report.truncated_now.is_none(), "a second start must not forget the cut");
    assert_eq!(content(&wal).entries.len(), 5);
    wal.health().remove_mark().expect("forgets the mark");
    wal.health().remove_mark().expect("may be said twice");
    drop(wal);

    let (_, report) = open(&disk.crash(2), &inline());
    assert!(!report.tail_truncated);
}

#[test]
fn second_torn_tail_begins_the_wait_anew() {
    let torn = log_with_a_large_last_batch();
    let (name, image) = newest(&torn.disk);
    let disk = with_file(&torn.disk, &name, image[..image.len() - 1].to_vec());
    let (wal, _) = open(&disk, &inline());
    wal.health().record_wait(Duration::from_secs(59), false).expect("recorded");
    assert_eq!(append(&wal, vec![entry(8, 5, 4_000)]), WRITTEN);
    drop(wal);

    let (name, image) = newest(&disk);
    let disk = with_file(&disk, &name, image[..image.len() - 1].to_vec());
    let (_, report) = open(&disk, &inline());
    assert!(report.truncated_now.is_some(), "the batch from a leader is torn");
    assert_eq!(report.waited, Duration::ZERO);
    assert_eq!(open(&disk.crash(1), &inline()).1.waited, Duration::ZERO);
}

#[test]
fn new_segment_with_torn_head_is_begun_again() {
    let disk = MemoryDisk::new();
    let options = reveille_raft::wal::WalOptions { segment_bytes: 2000, ..inline() };
    let (wal, _) = open(&disk, &options);
    assert_eq!(append(&wal, vec![entry(1, 1, 3000)]), WRITTEN);
    let before = content(&wal);
    let first = newest(&disk).0;
    assert_eq!(append(&wal, vec![entry(1, 2, 10)]), WRITTEN);
    let (second, image) = newest(&disk);
    assert_ne!(first, second);
    for end in 0..SECTOR_BYTES {
        let disk = with_file(&disk, &second, image[..end].to_vec());
        let (wal, report) = open(&disk, &options);
        assert_eq!((content(&wal), report.tail_truncated), (before.clone(), end > 0));
        assert_eq!(append(&wal, vec![entry(1, 2, 10)]), WRITTEN);
        drop(wal);
        assert_eq!(content(&open(&disk, &options).0).entries.len(), 2);
    }
}

/// Linux forgets data that a failed sync did not write. The next process reads it from the page cache and believes it,
/// so it must first make it durable.
#[test]
fn reopened_log_survives_next_power_cut() {
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        let (wal, _) = open(&disk, &inline());
        assert_eq!(append(&wal, (1..=3).map(|index| entry(1, index, 600)).collect()), WRITTEN);
        disk.fail_syncs(std::io::ErrorKind::Other);
        assert!(append(&wal, vec![entry(1, 4, 3000)]).0.is_err());
        drop(wal);
        disk.heal();
        let (wal, _) = open(&disk, &inline());
        let believed = content(&wal);
        assert_eq!(believed.entries.len(), 4);
        drop(wal);
        let (wal, report) = open(&disk.crash(seed), &inline());
        assert_eq!((content(&wal), report.tail_truncated), (believed, false), "seed {seed}");
    }
}
