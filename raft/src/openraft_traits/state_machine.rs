//! openraft's state machine: entries go to the apply thread, snapshots to the snapshot manager.

use std::io;
use std::sync::Arc;

use futures::Stream;
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::fatal_error::FatalError;
use crate::snapshot::manager::{OpenraftSnapshot, SnapshotManager, SnapshotMeta, as_snapshot};
use crate::snapshot::{Manifest, SnapshotError};
use crate::state_machine::apply_thread::ApplyThread;
use crate::types::{LogId, StoredMembership, TypeConfig};

/// The state machine that openraft drives.
pub(crate) struct StateMachine {
    pub apply_thread: ApplyThread,
    pub snapshots: Arc<SnapshotManager>,
}

impl StateMachine {
    /// Raises the cause of a failed installation as a fatal error: openraft ends Raft without naming the cause.
    fn failed(&self, error: SnapshotError) -> io::Error {
        let fatal_error = match &error {
            SnapshotError::Fatal(fatal_error) => fatal_error.clone(),
            error => FatalError::State(error.to_string()),
        };
        self.apply_thread.applied_state().fatal_errors.raise(fatal_error);
        io::Error::other(error)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Manifest;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let position = self.apply_thread.applied_state().position.lock().clone();
        Ok((position.last, position.membership))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        self.apply_thread.apply(entries).await
    }

    /// With `force` openraft gets a new snapshot. Otherwise it gets the newest one that the scheduler made, if any.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        let made = self.snapshots.current();
        (force || made.is_some())
            .then(|| Builder { snapshots: Arc::clone(&self.snapshots), made: made.filter(|_| !force) })
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { snapshots: Arc::clone(&self.snapshots), made: None }
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, manifest: Manifest) -> Result<(), io::Error> {
        let installed = self.snapshots.blocking(move |snapshots| snapshots.install(&manifest)).await;
        let (ledger, position) = installed.map_err(|error| self.failed(error))?;
        self.apply_thread.replace(ledger, position).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<OpenraftSnapshot>, io::Error> {
        self.snapshots.current().map(as_snapshot).transpose()
    }
}

/// Gives openraft a snapshot: an existing one, or a new one.
pub(crate) struct Builder {
    snapshots: Arc<SnapshotManager>,
    made: Option<Manifest>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Manifest;

    async fn build_snapshot(&mut self) -> Result<OpenraftSnapshot, io::Error> {
        let manifest = match self.made.take() {
            Some(manifest) => manifest,
            None => self.snapshots.blocking(|snapshots| snapshots.build()).await.map_err(io::Error::other)?,
        };
        as_snapshot(manifest)
    }
}
