//! A failed disk is final and reported to all callbacks; a full disk is reported as full.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc;

use crate::groups::Gate;
use crate::support::*;
use reveille_raft::wal::{MemoryDisk, SECTOR_BYTES, Wal, WalError, WalFailure, WalOptions};

/// The operator must be told to free space.
fn is_disk_full(failure: &WalFailure) -> bool {
    failure.to_string().starts_with("the disk is full")
}

#[test]
fn failed_sync_is_never_retried() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    assert_eq!(append(&wal, vec![entry(1, 1, 100)]), WRITTEN);
    let failure = wal.health().failure();
    assert!(failure.borrow().is_none());

    disk.fail_syncs(ErrorKind::Other);
    let (answer, told) = append(&wal, vec![entry(1, 2, 100)]);
    let Err(WalError::Failed(first)) = answer else { panic!("answered {answer:?}") };
    assert_eq!(told, Some(Err(first.clone())));
    assert_eq!(failure.borrow().clone(), Some(first.clone()));
    assert!(!is_disk_full(&first));

    disk.heal();
    let image = disk.files();
    assert_eq!(append(&wal, vec![entry(1, 3, 100)]), (Err(first.clone().into()), Some(Err(first.clone()))));
    assert_eq!(save_vote(&wal, vote(9)), (Err(first.clone().into()), Some(Err(first))));
    assert_eq!(disk.files(), image, "a failed log wrote again");
}

#[test]
fn full_disk_is_reported_and_log_opens_again_with_room() {
    for space in (0..6000).step_by(SECTOR_BYTES / 2) {
        let disk = MemoryDisk::new();
        let (wal, _) = open(&disk, &inline());
        assert_eq!(append(&wal, vec![entry(1, 1, 100)]), WRITTEN);
        let before = content(&wal);
        disk.limit_space(space);
        let (answer, _) = append(&wal, vec![entry(1, 2, 6000)]);
        assert!(matches!(&answer, Err(WalError::Failed(failure)) if is_disk_full(failure)), "{answer:?}");
        drop(wal);
        disk.heal();
        let (wal, report) = open(&disk, &inline());
        assert_eq!((content(&wal), report.tail_truncated), (before, false));
        assert_eq!(append(&wal, vec![entry(1, 2, 6000)]), WRITTEN);
    }
}

#[tokio::test]
async fn every_pending_and_every_later_callback_gets_the_error_of_a_failed_write() {
    let disk = MemoryDisk::new();
    let gate = Gate::new(Arc::new(disk.clone()));
    let (wal, _) = Wal::open(Arc::new(gate.clone()), &WalOptions::new(NODE)).expect("opens");
    gate.close();
    let (told, heard) = mpsc::channel();
    let done = |told: &mpsc::Sender<Result<(), WalFailure>>| {
        let told = told.clone();
        Box::new(move |outcome| drop(told.send(outcome)))
    };
    for index in 1..=20 {
        wal.append(vec![entry(1, index, 50)], done(&told)).await.expect("accepted");
    }
    wal.vote(vote(3), done(&told)).await.expect("accepted");
    disk.fail_writes(ErrorKind::StorageFull);
    disk.fail_syncs(ErrorKind::StorageFull);
    let mut failure = wal.health().failure();
    gate.open();
    let first = failure.wait_for(Option::is_some).await.expect("told").clone().expect("a failure");
    assert!(is_disk_full(&first));
    for number in 1..=21 {
        assert_eq!(heard.recv(), Ok(Err(first.clone())), "callback {number}");
    }
    assert_eq!(wal.append(vec![entry(1, 21, 50)], done(&told)).await, Err(first.clone().into()));
    assert_eq!(heard.recv(), Ok(Err(first)));
}

#[test]
fn hole_or_too_large_entry_is_refused_without_harm() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    assert_eq!(append(&wal, vec![entry(1, 5, 10)]), WRITTEN);
    let image = disk.files();
    for entries in
        [vec![entry(1, 7, 10)], vec![entry(1, 5, 10)], vec![entry(1, 6, 3 << 20)], vec![entry(1, 6, 1), entry(1, 8, 1)]]
    {
        assert!(matches!(append(&wal, entries).0, Err(WalError::Refused(_))));
    }
    assert!(matches!(at_once(wal.truncate(Some(point(2, 5)))), Err(WalError::Refused(_))));
    assert_eq!(disk.files(), image);
    assert_eq!(append(&wal, vec![entry(1, 6, 10)]), WRITTEN);
    assert!(wal.health().failure().borrow().is_none());
}
