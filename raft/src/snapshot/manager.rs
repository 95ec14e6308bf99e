//! The snapshots of this replica: when they are made, what they contain, and which are still needed.
//!
//! A scheduler of this crate makes them off the async runtime and gives them to openraft after they are on disk and
//! verified. A failed snapshot is logged and tried again later. A restart loads the newest readable snapshot and
//! replays the log after it.
//!
//! Invariants: the log reaches back to the last snapshot but one, so a node can start if the last one is damaged. Bytes
//! of the archive leave the memory after a manifest that names them is durable, so no crash and no purge loses them.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::ids::Hash;
use reveille_ledger::storage::FrozenState;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Manifest, SnapshotError, Snapshots};
use crate::Raft;
use crate::crash;
use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::state_machine::applied_state::{AppliedState, record_lock_time};
use crate::state_machine::position::AppliedPosition;
use crate::state_machine::position::{assemble, check_level, decode_position, encode_position};
use crate::types::TypeConfig;
use crate::wal::WalHandle;

/// Number of snapshots that are kept: the newest may turn out to be damaged.
const KEPT: usize = 2;
/// A snapshot is also made when the log has grown by this many bytes. A restart reads the log of up to two snapshots.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A snapshot is also made when blocks of the archive of this size are in memory only.
const UNSAVED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Interval in which the size of the log and of unsaved blocks is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Interval of the snapshots after an address was erased. Three of them leave no older file.
const ERASED_EVERY: Duration = Duration::from_secs(10);
/// Pause after a failed snapshot.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Pause after a snapshot that a peer asked for: no peer keeps this node busy. Shorter than the time that a start
/// waits.
const MADE_FOR_PEER_EVERY: Duration = Duration::from_secs(30);

/// Time without a request after which a snapshot that is being received is given up. Longer than an installation: its
/// blocks must not vanish before.
pub(super) const OFFER_KEPT: Duration = Duration::from_secs(300);

/// openraft's snapshot, which contains only the manifest. The blocks stay on disk.
pub(crate) type OpenraftSnapshot = openraft::alias::SnapshotOf<TypeConfig, Manifest>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// Adds openraft's metadata to a manifest.
pub(crate) fn as_snapshot(manifest: Manifest) -> Result<OpenraftSnapshot, io::Error> {
    let position = decode_position(&manifest.meta).map_err(io::Error::other)?;
    let meta = SnapshotMeta { last_log_id: position.last, last_membership: position.membership };
    Ok(OpenraftSnapshot { meta, snapshot: manifest })
}

/// The stored state of this node: the state of its newest readable snapshot, or the empty state.
pub(crate) struct StoredState {
    pub folder: Snapshots,
    pub manifest: Option<Manifest>,
    pub ledger: Ledger,
    pub position: AppliedPosition,
}

impl StoredState {
    /// Loads the newest readable snapshot in `folder`; damaged ones are skipped with a log line. Blocks while it reads
    /// all rows.
    pub fn load(folder: &Path, highest_level: u32) -> Result<StoredState, FatalError> {
        let folder = Snapshots::open(folder).map_err(unreadable)?;
        for manifest in folder.list().map_err(unreadable)? {
            match read_state(&folder, &manifest, highest_level) {
                Ok((ledger, position)) => {
                    folder.find_missing(&ledger.archive_blocks(), || true).map_err(unreadable)?;
                    return Ok(StoredState { folder, manifest: Some(manifest), ledger, position });
                }
                Err(SnapshotError::Fatal(fatal_error)) => return Err(fatal_error),
                Err(error @ SnapshotError::Io { .. }) => return Err(unreadable(error)),
                Err(error) => tracing::warn!(index = manifest.index, %error, "a snapshot was skipped"),
            }
        }
        Ok(StoredState { folder, manifest: None, ledger: Ledger::new(), position: AppliedPosition::default() })
    }
}

fn unreadable(error: SnapshotError) -> FatalError {
    FatalError::State(error.to_string())
}

fn no_state(what: String) -> SnapshotError {
    SnapshotError::damaged(format!("its rows make no state: {what}"))
}

fn read_state(
    folder: &Snapshots,
    manifest: &Manifest,
    highest_level: u32,
) -> Result<(Ledger, AppliedPosition), SnapshotError> {
    let rows = folder.read(manifest)?;
    let position = decode_position(&manifest.meta).map_err(no_state)?;
    check_level(&position, highest_level)?;
    let state = assemble(position, rows).map_err(no_state)?;
    if state.0.state_hash() != manifest.state_hash {
        return Err(no_state("their hash is not that of the state it was made of".to_owned()));
    }
    Ok(state)
}

/// Builds, installs and serves snapshots. Blocking calls go through [`SnapshotManager::blocking`].
pub(crate) struct SnapshotManager {
    folder: Snapshots,
    applied_state: Arc<AppliedState>,
    execution: Execution,
    /// Build and install exclude each other. Otherwise a build of the old state would remove the snapshot that is being
    /// installed.
    changing: Mutex<()>,
    /// The newest verified snapshots, newest first, at most [`KEPT`]. The log reaches back to the oldest of them.
    kept: Mutex<Vec<Manifest>>,
    /// Log index that the oldest kept snapshot is to reach: something before it is damaged on this disk.
    replaced_through: AtomicU64,
    /// Snapshots that are being sent or received. Garbage collection keeps their blocks.
    in_transfer: Mutex<Vec<InTransfer>>,
    /// True if the last garbage collection kept blocks only for a transfer, or if there was none since the start.
    kept_for_transfer: AtomicBool,
    /// End of the last snapshot that was made for a peer. Locked while one is made.
    made_for_peer: Mutex<Option<Instant>>,
}

/// A snapshot that is being sent or received.
struct InTransfer {
    manifest: Arc<Manifest>,
    /// Time of the last request about it. `None`: this node sends it.
    requested: Option<time::Instant>,
}

/// Keeps the blocks of a snapshot from garbage collection until it is dropped.
pub struct PinnedSnapshot {
    snapshots: Arc<SnapshotManager>,
    /// The snapshot.
    pub manifest: Arc<Manifest>,
}

impl PinnedSnapshot {
    /// Records a request about a snapshot that is being received. Returns false if it was given up: its blocks may be
    /// removed.
    pub(crate) fn renew(&self) -> bool {
        let mut in_transfer = self.snapshots.in_transfer.lock();
        let own = in_transfer.iter_mut().find(|one| Arc::ptr_eq(&one.manifest, &self.manifest));
        let Some(own) = own else { return false };
        own.requested = Some(time::Instant::now());
        true
    }
}

impl Drop for PinnedSnapshot {
    fn drop(&mut self) {
        self.snapshots.in_transfer.lock().retain(|one| !Arc::ptr_eq(&one.manifest, &self.manifest));
    }
}

impl SnapshotManager {
    /// `loaded` is the snapshot from which `applied_state` was loaded. `None`: there was none.
    pub fn new(
        folder: Snapshots,
        loaded: Option<Manifest>,
        applied_state: Arc<AppliedState>,
        execution: Execution,
    ) -> SnapshotManager {
        let kept = Mutex::new(loaded.into_iter().collect());
        let (changing, in_transfer, replaced_through) = (Mutex::new(()), Mutex::new(Vec::new()), AtomicU64::new(0));
        // A transfer before the start may have left blocks.
        let kept_for_transfer = AtomicBool::new(true);
        SnapshotManager {
            folder,
            applied_state,
            execution,
            changing,
            kept,
            replaced_through,
            in_transfer,
            kept_for_transfer,
            made_for_peer: Mutex::new(None),
        }
    }

    /// Returns the log index of the newest snapshot; 0 if there is none.
    fn newest_index(&self) -> u64 {
        self.kept.lock().first().map_or(0, |manifest| manifest.index)
    }

    /// Returns the snapshots that a start may use, and whose blocks are needed.
    pub fn kept(&self) -> Vec<Manifest> {
        self.kept.lock().clone()
    }

    /// Lets new snapshots replace those that are kept, and so the log behind them.
    pub fn replace_kept(&self) {
        self.replaced_through.fetch_max(*self.applied_state.applied.borrow(), Ordering::Relaxed);
    }

    /// Returns true if new snapshots must replace those that are kept.
    fn must_replace(&self) -> bool {
        let oldest = self.kept.lock().get(KEPT - 1).map_or(0, |manifest| manifest.index);
        oldest < self.replaced_through.load(Ordering::Relaxed)
    }

    /// Returns the snapshot files, which check themselves.
    pub fn folder(&self) -> &Snapshots {
        &self.folder
    }

    /// Returns the newest snapshot, if any.
    pub fn current(&self) -> Option<Manifest> {
        self.kept.lock().first().cloned()
    }

    /// Returns a snapshot that reaches log index `index`, for a peer: the newest one, else a new one. Makes one at a
    /// time, and then none for [`MADE_FOR_PEER_EVERY`].
    pub fn for_peer(&self, index: u64) -> Result<Manifest, SnapshotError> {
        if let Some(newest) = self.current().filter(|newest| newest.index >= index) {
            return Ok(newest);
        }
        if *self.applied_state.applied.borrow() < index {
            return Err(SnapshotError::NotNow(format!("its state ends before entry {index}")));
        }
        let made = self.made_for_peer.try_lock();
        let mut made = made.ok_or_else(|| SnapshotError::NotNow("it makes a snapshot; ask again".to_owned()))?;
        if made.is_some_and(|at| at.elapsed() < MADE_FOR_PEER_EVERY) {
            return Err(SnapshotError::NotNow("it made a snapshot a moment ago; ask again".to_owned()));
        }
        let built = self.build();
        *made = Some(Instant::now());
        built
    }

    /// Keeps the blocks of this snapshot from garbage collection until the result is dropped.
    pub fn pin(self: &Arc<Self>, manifest: Manifest) -> PinnedSnapshot {
        self.keep(manifest, None)
    }

    /// As [`SnapshotManager::pin`], for a snapshot that is being received. It is given up when this node has a newer
    /// one, and [`OFFER_KEPT`] after the last request: its sender may have died.
    pub fn pin_offered(self: &Arc<Self>, manifest: Manifest) -> PinnedSnapshot {
        self.keep(manifest, Some(time::Instant::now()))
    }

    fn keep(self: &Arc<Self>, manifest: Manifest, requested: Option<time::Instant>) -> PinnedSnapshot {
        let manifest = Arc::new(manifest);
        self.in_transfer.lock().push(InTransfer { manifest: Arc::clone(&manifest), requested });
        PinnedSnapshot { snapshots: Arc::clone(self), manifest }
    }

    fn give_up_offers(&self) {
        let newest = self.newest_index();
        let is_awaited = |one: &InTransfer, at: time::Instant| one.manifest.index > newest && at.elapsed() < OFFER_KEPT;
        self.in_transfer.lock().retain(|one| one.requested.is_none_or(|at| is_awaited(one, at)));
    }

    /// True if the folder may have blocks that nothing needs, and the next garbage collection removes them.
    pub(super) fn has_leftovers(&self) -> bool {
        self.give_up_offers();
        self.kept_for_transfer.load(Ordering::Relaxed) && self.in_transfer.lock().is_empty()
    }

    /// Runs a blocking closure as the replica's [`Execution`] selects. Fails with `Panicked` if it panicked.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&SnapshotManager) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, SnapshotError> {
        let snapshots = Arc::clone(self);
        self.execution.blocking(move || work(&snapshots)).await.unwrap_or(Err(SnapshotError::Panicked))
    }

    /// Makes a snapshot of the applied state, and collects garbage. The apply thread waits only while the state is
    /// frozen. Returns the newest snapshot instead if the state is older: then it was just installed, and will replace
    /// the state.
    pub fn build(&self) -> Result<Manifest, SnapshotError> {
        self.build_and_read(|_| ()).map(|(manifest, ())| manifest)
    }

    /// As [`SnapshotManager::build`], for a copy of the whole state elsewhere. Also returns what `read` finds in the
    /// same state, and keeps the blocks of the snapshot. Blocks of the archive stay only as long as the newest state
    /// names them.
    pub fn build_pinned<T>(
        self: &Arc<Self>,
        read: impl FnOnce(&Ledger) -> T,
    ) -> Result<(PinnedSnapshot, T), SnapshotError> {
        let (manifest, found) = self.build_and_read(|ledger| (ledger.head().applied, read(ledger)))?;
        match found {
            (index, found) if index == manifest.index => Ok((self.pin(manifest), found)),
            _ => Err(SnapshotError::damaged("another snapshot was installed meanwhile; try again")),
        }
    }

    fn build_and_read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Result<(Manifest, T), SnapshotError> {
        let _changing = self.changing.lock();
        crash::point("snapshot.build-start");
        let (position, state, found) = self.freeze(read)?;
        let index = position.last.map_or(0, |id| id.index);
        if let Some(newest) = self.current().filter(|newest| newest.index > index) {
            return Ok((newest, found));
        }
        self.applied_state.wait_for_log()?;
        let built = self.folder.build(index, encode_position(&position)?, &state)?;
        crash::point("snapshot.build-end");
        {
            let mut kept = self.kept.lock();
            kept.retain(|former| former.index < index);
            kept.insert(0, built.manifest.clone());
            kept.truncate(KEPT);
        }
        self.collect(&state.archive().map(|frozen| frozen.block.hash).collect());
        self.forget_saved(&state);
        tracing::info!(
            index,
            rows = built.manifest.rows,
            bytes = built.manifest.total_bytes(),
            new_bytes = built.new_bytes,
            "snapshot made"
        );
        Ok((built.manifest, found))
    }

    /// Drops the blocks of the archive from memory that a durable snapshot now has. `state` still holds them, so the
    /// lock is not held while they are freed.
    fn forget_saved(&self, state: &FrozenState) {
        if state.has_unsaved() {
            let mut ledger = self.applied_state.ledger.write();
            let begun = Instant::now();
            ledger.forget_saved(state);
            record_lock_time("snapshot", begun);
        }
    }

    fn freeze<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Result<(AppliedPosition, FrozenState, T), SnapshotError> {
        let ledger = self.applied_state.ledger.read();
        self.applied_state.check_whole()?;
        let position = self.applied_state.position.lock().clone();
        let begun = Instant::now();
        let (state, found) = (ledger.freeze(), read(&ledger));
        record_lock_time("snapshot", begun);
        Ok((position, state, found))
    }

    /// Makes a snapshot whose blocks are all on this disk the newest one of this node. Returns its state.
    pub fn install(&self, manifest: &Manifest) -> Result<(Ledger, AppliedPosition), SnapshotError> {
        let _changing = self.changing.lock();
        crash::point("snapshot.install-before-rename");
        self.folder.install(manifest)?;
        crash::point("snapshot.install-after-rename");
        let state = read_state(&self.folder, manifest, self.applied_state.highest_level)?;
        // Older snapshots are useless: openraft purges the log up to the installed one.
        *self.kept.lock() = vec![manifest.clone()];
        self.collect(&state.0.archive_blocks());
        Ok(state)
    }

    /// As [`Snapshots::find_missing`], with the blocks that the state at log index `applied` names. Changes nothing
    /// after a newer snapshot was installed: its state names others.
    pub fn find_missing(&self, archive: &BTreeSet<Hash>, applied: u64) -> Result<(), SnapshotError> {
        self.folder.find_missing(archive, || self.newest_index() <= applied)
    }

    /// As [`Snapshots::forget_unneeded_missing`], in the way of [`SnapshotManager::find_missing`].
    pub fn forget_unneeded_missing(&self, archive: &BTreeSet<Hash>, applied: u64) {
        self.folder.forget_unneeded_missing(archive, || self.newest_index() <= applied);
    }

    pub fn put_block(&self, hash: Hash, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.folder.put_block(hash, bytes)?;
        crash::point("snapshot.take-block");
        Ok(())
    }

    /// Removes old snapshots and blocks, except for these blocks of the archive. A failure is only logged: garbage
    /// costs nothing but disk space.
    fn collect(&self, archive: &BTreeSet<Hash>) {
        self.give_up_offers();
        let in_transfer: Vec<Manifest> =
            self.in_transfer.lock().iter().map(|pinned| Manifest::clone(&pinned.manifest)).collect();
        let kept = self.kept.lock().clone();
        let is_kept = |pinned: &Manifest| kept.iter().any(|manifest| manifest.index == pinned.index);
        self.kept_for_transfer.store(!in_transfer.iter().all(is_kept), Ordering::Relaxed);
        if let Err(error) = self.folder.collect_garbage(&kept, &in_transfer, archive) {
            tracing::warn!(%error, "old snapshots were not removed");
        }
    }
}

/// True if files of this node are older than the last erasure of an address.
fn holds_erased(snapshots: &SnapshotManager, log: &WalHandle) -> bool {
    let erased = snapshots.applied_state.read(|ledger| ledger.head().erased_index);
    let in_log = || log.counters().lowest_index.is_some_and(|lowest| lowest <= erased);
    let in_snapshot = || snapshots.kept.lock().iter().any(|manifest| manifest.index < erased);
    erased > 0 && (in_log() || in_snapshot() || snapshots.has_leftovers())
}

/// Makes a snapshot when one of these holds: `every` entries were applied since the last one; the log or the unsaved
/// archive is too large; a damaged file must be replaced; a file is older than an erasure. Then purges the log up to
/// the oldest kept snapshot.
pub(crate) async fn run(
    snapshots: Arc<SnapshotManager>,
    raft: Raft,
    log: WalHandle,
    every: u64,
    stop: CancellationToken,
) {
    let mut applied = snapshots.applied_state.applied.subscribe();
    let mut log_bytes = log.counters().bytes;
    let mut last_made: Option<Instant> = None;
    while !stop.is_cancelled() {
        let since = snapshots.newest_index();
        let due = since.saturating_add(every);
        let entries_due = tokio::time::timeout(CHECK_EVERY, applied.wait_for(|applied| *applied >= due)).await.is_ok();
        let bytes_due = log.counters().bytes.saturating_sub(log_bytes) >= LOG_BYTES_MAX
            || snapshots.applied_state.read(Ledger::unsaved_bytes) >= UNSAVED_BYTES_MAX
            || snapshots.must_replace();
        let erases = last_made.is_none_or(|made| made.elapsed() >= ERASED_EVERY) && holds_erased(&snapshots, &log);
        if !(entries_due || (bytes_due || erases) && *applied.borrow() > since) || stop.is_cancelled() {
            continue;
        }
        last_made = Some(Instant::now());
        match snapshots.blocking(|snapshots| snapshots.build()).await {
            Ok(_) => {
                log_bytes = log.counters().bytes;
                let oldest = snapshots.kept.lock().get(KEPT - 1).map(|manifest| manifest.index);
                let Ok(()) = raft.trigger().snapshot().await else { return };
                if let Some(oldest) = oldest
                    && raft.trigger().purge_log(oldest).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                metrics::counter!("reveille_snapshot_failures_total").increment(1);
                tracing::error!(%error, "no snapshot was made; the log grows until one is");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}
