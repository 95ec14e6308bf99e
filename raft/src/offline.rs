//! Data folders of nodes that do not run: the first folder of a cluster that begins with a state, and what the folder
//! of a lost node has.
//!
//! The commands `restore` and `recover` call it. A folder that is read stays as it is: its log is opened in memory,
//! because opening a log repairs its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use reveille_ledger::Ledger;
use reveille_ledger::command::Entry;
use reveille_ledger::ids::{Hash, NodeId};

use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::files::{LOG_FOLDER, SNAPSHOTS_FOLDER};
use crate::identity::{ClusterId, Identity};
use crate::membership::{Member, members, peer_node};
use crate::replica::check_continued;
use crate::snapshot::manager::StoredState;
use crate::snapshot::{SnapshotError, Snapshots};
use crate::state_machine::apply_thread::apply_entry;
use crate::state_machine::position::{AppliedPosition, encode_position};
use crate::types::{Membership, StoredMembership, decode_membership, to_log_id, to_point};
use crate::wal::{EntryRecord, LogPoint, MemoryDisk, PayloadKind, VoteRecord, Wal, WalOptions};

/// Bytes of entries that are read at once.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The snapshots of a new data folder, whose node begins a cluster with a state.
pub struct FirstFolder(Snapshots);

impl FirstFolder {
    /// Makes the folder of snapshots in a new data folder.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn create(data_dir: &Path) -> Result<FirstFolder, SnapshotError> {
        Snapshots::open(&data_dir.join(SNAPSHOTS_FOLDER)).map(FirstFolder)
    }

    /// Stores a block of the archive.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn put_archive_block(&self, hash: Hash, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.0.put_block(hash, bytes)
    }

    /// Writes the state as the first snapshot. `member` is the only member of the cluster.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn finish(self, (node, member): (NodeId, &Member), ledger: &Ledger) -> Result<(), SnapshotError> {
        let index = ledger.head().applied;
        // As the entry of a first membership: before any leadership.
        let last = Some(to_log_id(LogPoint { term: 0, leader: 0, index }));
        let nodes = BTreeMap::from([(node.0, peer_node(member))]);
        let membership = Membership::new(vec![BTreeSet::from([node.0])], nodes);
        let membership = membership.map_err(|error| SnapshotError::damaged(error.to_string()))?;
        let membership = StoredMembership::new(last, membership);
        let position = AppliedPosition { last, membership, level: ledger.head().level };
        self.0.build(index, encode_position(&position)?, &ledger.freeze()).map(drop)
    }
}

/// What the folder of a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderReport {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Name of the node, as the last membership has it.
    pub name: String,
    /// Its last log entry. `None`: it has none.
    pub last: Option<LogPoint>,
    /// Its last vote.
    pub vote: Option<VoteRecord>,
    /// Index of its newest readable snapshot; 0 if there is none.
    pub snapshot_index: u64,
    /// True if the node votes, as the last membership has it.
    pub votes: bool,
    /// Members with a vote, as the last membership has them.
    pub voters: usize,
    /// True if the end of the log was torn by a power cut: what was half written there was never answered.
    pub torn: bool,
}

/// The folder of a node that does not run. It is locked.
pub struct OfflineFolder {
    identity: Identity,
    snapshots: Snapshots,
    ledger: Ledger,
    report: FolderReport,
}

impl OfflineFolder {
    /// Reads a folder: its newest snapshot and all entries after it, with those that no majority may have had.
    /// `highest_level` is the highest ledger level that is applied.
    ///
    /// # Errors
    /// [`FatalError`]: a node runs in it, or it is not whole.
    pub fn open(data_dir: &Path, node: NodeId, highest_level: u32) -> Result<OfflineFolder, FatalError> {
        let log_folder = data_dir.join(LOG_FOLDER);
        if !log_folder.is_dir() {
            return Err(FatalError::Foreign(format!("{} has no log", data_dir.display())));
        }
        let identity = Identity::open(data_dir, node)?;
        let no_cluster = || FatalError::Foreign(format!("{} belongs to no cluster", data_dir.display()));
        let cluster = identity.cluster().ok_or_else(no_cluster)?;
        let options = WalOptions { execution: Execution::Inline, ..WalOptions::new(node.0) };
        let disk = in_memory(&log_folder).map_err(|error| FatalError::folder("read", &log_folder, error))?;
        let (log, opened) = Wal::open(Arc::new(disk), &options)?;
        let state = log.state();
        let stored = StoredState::load(&data_dir.join(SNAPSHOTS_FOLDER), highest_level)?;
        check_continued(&state, &stored)?;
        let StoredState { folder: snapshots, manifest, mut ledger, position } = stored;
        let mut membership = position.membership;
        let mut next = position.last.map_or(0, |last| last.index + 1);
        let end = state.last.map_or(0, |last| last.index + 1);
        while next < end {
            let read = log.reader().plan(next..end, READ_BYTES_MAX).read();
            let entries = read.map_err(|error| FatalError::Log(error.to_string()))?;
            for record in &entries {
                apply(&mut ledger, record, highest_level)?;
                if record.kind == PayloadKind::Membership {
                    let read = decode_membership(&record.bytes);
                    let read = read.map_err(|error| FatalError::Log(error.to_string()))?;
                    membership = StoredMembership::new(Some(to_log_id(record.point)), read);
                }
            }
            let after = entries.last().map_or(next, |record| record.point.index + 1);
            if after == next {
                return Err(FatalError::Log(format!("entry {next} is missing")));
            }
            next = after;
        }
        let known = members(&membership);
        let of_snapshot = position.last.as_ref().map(to_point);
        let report = FolderReport {
            cluster,
            node,
            name: known.get(&node).map(|member| member.name.clone()).unwrap_or_default(),
            last: state.last.or(of_snapshot),
            vote: state.vote,
            snapshot_index: manifest.map_or(0, |manifest| manifest.index),
            votes: known.get(&node).is_some_and(|member| member.votes),
            voters: known.values().filter(|member| member.votes).count(),
            torn: opened.tail_truncated,
        };
        Ok(OfflineFolder { identity, snapshots, ledger, report })
    }

    /// Returns what the folder has.
    pub fn report(&self) -> &FolderReport {
        &self.report
    }

    /// Returns the state after its last entry.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns a block of the archive, uncompressed.
    ///
    /// # Errors
    /// [`SnapshotError`]: it is missing or damaged.
    pub fn archive_block(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        self.snapshots.read_block(hash)
    }
}

impl Drop for OfflineFolder {
    fn drop(&mut self) {
        self.identity.release();
    }
}

/// Applies an entry, as the apply thread of a node does.
fn apply(ledger: &mut Ledger, record: &EntryRecord, highest: u32) -> Result<(), FatalError> {
    let index = record.point.index;
    if index > ledger.head().applied + 1 {
        return Err(FatalError::Log(format!("entry {} is missing", ledger.head().applied + 1)));
    }
    let entry = (record.kind == PayloadKind::Normal).then(|| Entry::from_bytes(&record.bytes)).transpose();
    let entry = entry.map_err(|error| FatalError::Unreadable { index, detail: error.to_string() })?;
    apply_entry(ledger, index, entry.as_ref(), highest).map(drop)
}

/// Copies the files of a log into memory.
fn in_memory(folder: &Path) -> std::io::Result<MemoryDisk> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // The log writes only names that are UTF-8.
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        files.insert(name.to_owned(), std::fs::read(&path)?);
    }
    Ok(MemoryDisk::with(files))
}
