//! Tests of the snapshot manager: builds and installations in one node.

use std::sync::Arc;

use reveille_ledger::Ledger;
use reveille_proto::peer::v1;

use super::*;
use crate::execution::Execution;
use crate::fatal_error::FatalErrorCell;
use crate::snapshot::manager::SnapshotManager;
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::position::AppliedPosition;
use crate::wire;

/// Returns the manager of a node whose state is that of an index.
fn manager(folder: &Path, index: u64) -> SnapshotManager {
    let mut ledger = Ledger::new();
    ledger.skip(index);
    let last = wire::to_log_id(&v1::LogId { term: 1, leader: 1, index });
    let position = AppliedPosition { last: Some(last), level: ledger.head().level, ..AppliedPosition::default() };
    let applied_state = Arc::new(AppliedState::new(ledger, position, FatalErrorCell::new()));
    SnapshotManager::new(Snapshots::open(folder).unwrap(), None, applied_state, Execution::Inline)
}

#[test]
fn build_of_replaced_state_keeps_installed_snapshot() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (leader, follower) = (manager(one.path(), 9), manager(other.path(), 5));
    let sent = leader.build().unwrap();
    assert_eq!(follower.build().unwrap().index, 5);
    for hash in follower.missing(&sent).unwrap() {
        follower.put_block(hash, &leader.read_block(hash).unwrap()).unwrap();
    }
    follower.install(&sent).unwrap();

    // The apply thread has not replaced the state yet.
    assert_eq!(follower.build().unwrap(), sent);
    assert_eq!(follower.current(), Some(sent.clone()));
    assert_eq!(Snapshots::open(other.path()).unwrap().list().unwrap(), [sent]);
}
