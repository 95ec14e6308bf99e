//! The openraft test suite for log storage, on a real disk and on one in memory.
//!
//! The suite needs a state machine as well; this one has only what the tests of the log require.

use std::io;
use std::sync::Arc;

use futures::{Stream, TryStreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError};
use parking_lot::Mutex;
use reveille_raft::openraft_traits::log_storage::LogStore;
use reveille_raft::types::{LogId, ReplyBytes, StoredMembership, TypeConfig};
use reveille_raft::wal::{Execution, MemoryDisk, WalOptions};
use tempfile::TempDir;

type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
type Snapshot = openraft::alias::SnapshotOf<TypeConfig, ()>;

#[derive(Clone, Default)]
struct Machine(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMeta>,
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.0.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.0.lock();
            state.applied = Some(entry.log_id);
            if let Some(membership) = entry.get_membership() {
                state.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            if let Some(responder) = responder {
                responder.send(ReplyBytes::default());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(self.0.lock().snapshot.clone().map(|meta| Snapshot { meta, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let mut state = self.0.lock();
        let meta = SnapshotMeta { last_log_id: state.applied, last_membership: state.membership.clone() };
        state.snapshot = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

struct OnDisk;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, _) = LogStore::open(&folder.path().join("wal"), &WalOptions::new(1)).expect("opens");
        Ok((folder, store, Machine::default()))
    }
}

/// Caches nothing, so that every read goes to the disk, and has segments so small that every batch begins one.
struct InMemory;

impl StoreBuilder<TypeConfig, LogStore, Machine> for InMemory {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError<TypeConfig>> {
        let options =
            WalOptions { segment_bytes: 1, cache_bytes: 0, execution: Execution::Inline, ..WalOptions::new(1) };
        let (store, _) = LogStore::open_on(Arc::new(MemoryDisk::new()), &options).expect("opens");
        Ok(((), store, Machine::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite_passes_on_a_real_disk() {
    Suite::test_all(OnDisk).await.expect("the suite passes");
}

#[tokio::test]
async fn openrafts_suite_passes_with_tiny_segments_and_no_cache() {
    Suite::test_all(InMemory).await.expect("the suite passes");
}
