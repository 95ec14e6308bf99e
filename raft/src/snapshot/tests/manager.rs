//! Tests of the snapshot manager: builds and installations in one node.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_proto::peer::v1;

use super::*;
use crate::archive::ArchiveReader;
use crate::execution::Execution;
use crate::fatal_error::FatalErrorCell;
use crate::peer::Rejection;
use crate::snapshot::manager::{OFFER_KEPT, SnapshotManager};
use crate::snapshot::transfer::SnapshotReceiver;
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::position::AppliedPosition;
use crate::wire;

/// Returns the manager of a node whose state is that of an index, and the state.
pub(super) fn manager(folder: &Path, index: u64) -> (SnapshotManager, Arc<AppliedState>) {
    let applied_state = Arc::new(AppliedState::new(Ledger::new(), AppliedPosition::default(), FatalErrorCell::new()));
    reach(&applied_state, index);
    let folder = Snapshots::open(folder).unwrap();
    (SnapshotManager::new(folder, None, Arc::clone(&applied_state), Execution::Inline), applied_state)
}

/// Lets the state reach an index.
fn reach(applied_state: &AppliedState, index: u64) {
    applied_state.ledger.write().skip(index);
    let last = wire::to_log_id(&v1::LogId { term: 1, leader: 1, index });
    let level = applied_state.read(|ledger| ledger.head().level);
    *applied_state.position.lock() = AppliedPosition { last: Some(last), level, ..AppliedPosition::default() };
    applied_state.applied.send_replace(index);
}

#[test]
fn build_of_replaced_state_keeps_installed_snapshot() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((leader, _), (follower, state)) = (manager(one.path(), 9), manager(other.path(), 5));
    let sent = leader.build().unwrap();
    assert_eq!(follower.build().unwrap().index, 5);
    for hash in follower.folder().missing(&sent).unwrap() {
        follower.put_block(hash, &leader.folder().read_block(hash).unwrap()).unwrap();
    }
    follower.install(&sent).unwrap();

    // The apply thread has not replaced the state yet.
    assert_eq!(follower.build().unwrap(), sent);
    assert_eq!(follower.current(), Some(sent.clone()));
    assert_eq!(Snapshots::open(other.path()).unwrap().list().unwrap(), [sent]);

    // Nor does the former state decide which blocks of the installed one are missing.
    let of_installed = Hash([7; 32]);
    follower.folder().mark_missing(of_installed);
    let archive = ArchiveReader::new(Arc::clone(&state), Arc::new(follower));
    assert_eq!(archive.drop_unneeded_missing_blocks(), [of_installed]);
    assert_eq!(archive.unreadable(BTreeSet::new(), 1).unwrap(), [of_installed].into());
    reach(&state, 9);
    assert_eq!(archive.drop_unneeded_missing_blocks(), [], "the new state does not name it");
}

#[tokio::test(start_paused = true)]
async fn offer_that_is_never_installed_leaves_no_blocks() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((leader, leader_state), (follower, state)) = (manager(one.path(), 9), manager(other.path(), 5));
    let follower = Arc::new(follower);
    let receiver = SnapshotReceiver::new(Arc::clone(&follower));
    let build_at = |index| {
        reach(&state, index);
        follower.build().unwrap();
    };
    let send = async || {
        let manifest = leader.build().unwrap();
        let offer = v1::OfferSnapshotRequest { header: None, manifest: manifest.to_bytes().unwrap().into() };
        let missing = receiver.offer(offer).await.unwrap().missing;
        let missing: Vec<Hash> = missing.iter().map(|name| wire::to_hash(name).unwrap()).collect();
        assert!(!missing.is_empty());
        let blocks = missing.iter().map(|hash| leader.folder().read_block(*hash).unwrap().into()).collect();
        let blocks = v1::SendBlocksRequest { header: None, blocks };
        receiver.blocks(blocks.clone()).await.unwrap();
        (missing, blocks)
    };
    let has = |hashes: &[Hash]| hashes.iter().any(|hash| follower.folder().check_block(*hash).is_ok());

    // The leader died, and the follower got the entries from another one.
    let (offered, blocks) = send().await;
    build_at(6);
    assert!(has(&offered), "it may still be installed");
    for index in [10, 11, 12] {
        build_at(index);
    }
    assert!(!has(&offered), "the state has passed it");
    assert!(receiver.blocks(blocks).await.is_err(), "it must be offered again");

    // No other node has the entries, and no request comes.
    reach(&leader_state, 20);
    let (offered, blocks) = send().await;
    for index in [13, 14] {
        tokio::time::advance(OFFER_KEPT / 2).await;
        receiver.blocks(blocks.clone()).await.unwrap();
        build_at(index);
    }
    assert!(has(&offered) && !follower.has_leftovers());
    tokio::time::advance(OFFER_KEPT).await;
    assert!(follower.has_leftovers());
    build_at(15);
    assert!(!has(&offered) && !follower.has_leftovers());
}

#[tokio::test]
async fn offer_is_refused_while_another_one_reads_blocks() {
    let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((leader, _), (follower, _)) = (manager(folders.0.path(), 9), manager(folders.1.path(), 5));
    let receiver = SnapshotReceiver::new(Arc::new(follower));
    let manifest = leader.build().unwrap().to_bytes().unwrap();
    let offer = || receiver.offer(v1::OfferSnapshotRequest { header: None, manifest: manifest.clone().into() });
    let (first, second) = tokio::join!(offer(), offer());
    assert!(first.is_ok() && matches!(second, Err(Rejection::Unavailable(_))), "{second:?}");
    assert!(offer().await.is_ok(), "the first one has ended");
}

#[test]
fn peer_gets_newest_snapshot_and_makes_node_build_few() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, state) = manager(folder.path(), 5);
    let is_later = |made: Result<Manifest, SnapshotError>| matches!(made, Err(SnapshotError::NotNow(_)));
    assert!(is_later(manager.for_peer(6)), "the state does not reach it");
    assert_eq!(manager.for_peer(3).unwrap().index, 5, "the first one is made at once");
    reach(&state, 9);
    assert_eq!(manager.for_peer(5).unwrap().index, 5, "it reaches far enough");
    assert!(is_later(manager.for_peer(6)), "another one so soon");
    manager.build().unwrap();
    assert_eq!(manager.for_peer(6).unwrap().index, 9, "the node has made one for itself");
}

/// Requests that waited would take the threads on which the log is read.
#[test]
fn requests_of_peers_do_not_wait_for_a_build() {
    const PEERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let (manager, state) = manager(folder.path(), 5);
    let (sender, made) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let build_waits = state.ledger.write();
        for _ in 0..PEERS {
            scope.spawn(|| sender.send(manager.for_peer(5)).unwrap());
        }
        for _ in 1..PEERS {
            let refused = made.recv_timeout(Duration::from_secs(60));
            assert!(matches!(refused, Ok(Err(SnapshotError::NotNow(_)))), "{refused:?}");
        }
        drop(build_waits);
    });
    assert_eq!(made.recv().unwrap().unwrap().index, 5);
}
