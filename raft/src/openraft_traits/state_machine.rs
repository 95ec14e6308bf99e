//! openraft's face of the state: applying goes to the machine's thread, snapshots to the archive.

use std::io;
use std::sync::Arc;

use futures::Stream;
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::fault::Fault;
use crate::snapshot::Manifest;
use crate::snapshot::manager::{Archive, ArchiveError, OpenraftSnapshot, SnapshotMeta, as_snapshot};
use crate::state_machine::apply_thread::Machine;
use crate::types::{LogId, StoredMembership, TypeConfig};

/// What openraft applies to.
pub(crate) struct StateMachine {
    pub machine: Machine,
    pub archive: Arc<Archive>,
}

impl StateMachine {
    /// What openraft can not go on without: its error ends Raft, and this says why.
    fn failed(&self, error: ArchiveError) -> io::Error {
        let fault = match &error {
            ArchiveError::Fault(fault) => fault.clone(),
            error => Fault::State(error.to_string()),
        };
        self.machine.core().faults.raise(fault);
        io::Error::other(error)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Manifest;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let place = self.machine.core().place.lock().clone();
        Ok((place.last, place.membership))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        self.machine.apply(entries).await
    }

    /// `force`: openraft can not go on without one. Otherwise it is given what the scheduler has made.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        let made = self.archive.current();
        (force || made.is_some()).then(|| Builder { archive: Arc::clone(&self.archive), made: made.filter(|_| !force) })
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { archive: Arc::clone(&self.archive), made: None }
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, manifest: Manifest) -> Result<(), io::Error> {
        let installed = self.archive.blocking(move |archive| archive.install(&manifest)).await;
        let (ledger, place) = installed.map_err(|error| self.failed(error))?;
        self.machine.replace(ledger, place).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<OpenraftSnapshot>, io::Error> {
        self.archive.current().map(as_snapshot).transpose()
    }
}

/// Gives openraft a snapshot: one that is there already, or one that is made now.
pub(crate) struct Builder {
    archive: Arc<Archive>,
    made: Option<Manifest>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Manifest;

    async fn build_snapshot(&mut self) -> Result<OpenraftSnapshot, io::Error> {
        let manifest = match self.made.take() {
            Some(manifest) => manifest,
            None => self.archive.blocking(|archive| archive.build()).await.map_err(io::Error::other)?,
        };
        as_snapshot(manifest)
    }
}
