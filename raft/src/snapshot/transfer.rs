//! Transfer of a snapshot from the leader to a follower whose log lacks purged entries: manifest, missing blocks,
//! install.
//!
//! Nothing changes on the follower before the last step. An interrupted transfer leaves blocks, which the next transfer
//! reuses, until it is given up. The archive is not sent: the follower fetches the blocks that it lacks after the
//! installation.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::bytes::Bytes;
use reveille_ledger::ids::Hash;
use reveille_proto::peer::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Raft;
use crate::crash;
use crate::peer::client::PeerClient;
use crate::peer::{Destination, PeerError, Rejection};
use crate::snapshot::manager::{PinnedSnapshot, SnapshotManager, as_snapshot};
use crate::snapshot::{Manifest, SnapshotError};
use crate::types::Vote;
use crate::wire;

/// Limit of an offer, because the follower first reads all blocks that it has. Also the limit of a request for a
/// snapshot, because the peer may have to make the snapshot first.
pub(super) const OFFER_LIMIT: Duration = Duration::from_secs(60);
/// Limit of one request with blocks, including the syncs on the follower's disk.
pub(super) const BLOCKS_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of blocks in one request.
pub(super) const BLOCKS_MAX: usize = 64;
/// A request with at least this many bytes is full. Its last block has at most 1 MiB.
const BLOCKS_BYTES: usize = 1024 * 1024;
/// Limit of the installation: the follower reads the whole state.
const INSTALL_LIMIT: Duration = Duration::from_secs(120);
const NOT_OFFERED: &str = "this snapshot was not offered, or is not waited for any more: offer it again";
const READING: &str = "this node still checks its blocks for an earlier offer; offer the snapshot again later";

fn local_error(error: SnapshotError) -> PeerError {
    PeerError::Unreachable(format!("the snapshot cannot be sent: {error}"))
}

/// Sends a snapshot of this node. Returns the follower's vote after the installation.
pub(crate) async fn send(
    client: &PeerClient,
    snapshots: &Arc<SnapshotManager>,
    to: &Destination,
    vote: Vote,
    manifest: Manifest,
) -> Result<Vote, PeerError> {
    let pinned = snapshots.pin(manifest);
    let manifest: Bytes = pinned.manifest.to_bytes().map_err(local_error)?.into();

    let offer = v1::OfferSnapshotRequest { header: None, manifest: manifest.clone() };
    let answer = client.ask(to, offer, OFFER_LIMIT).await?;
    tracing::info!(%to, index = pinned.manifest.index, blocks = answer.missing.len(), "sending a snapshot");
    let mut missing = answer.missing.iter().map(|name| wire::to_hash(name)).collect::<Result<VecDeque<_>, _>>()?;
    while !missing.is_empty() {
        let read = snapshots.blocking(move |snapshots| Ok((read_some(snapshots, &mut missing)?, missing)));
        let (blocks, rest) = read.await.map_err(local_error)?;
        client.ask(to, v1::SendBlocksRequest { header: None, blocks }, BLOCKS_LIMIT).await?;
        missing = rest;
        crash::point("snapshot.send-block");
    }
    let install = v1::InstallSnapshotRequest { header: None, vote: Some(wire::from_vote(&vote)), manifest };
    let answer = client.ask(to, install, INSTALL_LIMIT).await?;
    Ok(wire::to_required_vote(answer.vote)?)
}

/// Reads the first of these blocks, for one request, and removes their names.
pub(super) fn read_some(snapshots: &SnapshotManager, names: &mut VecDeque<Hash>) -> Result<Vec<Bytes>, SnapshotError> {
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    while blocks.len() < BLOCKS_MAX
        && bytes < BLOCKS_BYTES
        && let Some(name) = names.pop_front()
    {
        let block = snapshots.folder().read_block(name)?;
        bytes += block.len();
        blocks.push(block.into());
    }
    Ok(blocks)
}

/// Receives snapshots from leaders, one at a time: a new offer replaces the former.
pub(crate) struct SnapshotReceiver {
    snapshots: Arc<SnapshotManager>,
    offered: Mutex<Option<Offered>>,
    /// Permit of the one request that reads all blocks.
    reading: Arc<Semaphore>,
}

#[derive(Clone)]
struct Offered {
    pinned: Arc<PinnedSnapshot>,
    /// Blocks that this node requested. No other block is accepted.
    requested: Arc<BTreeSet<Hash>>,
}

pub(super) fn unavailable(error: impl std::fmt::Display) -> Rejection {
    Rejection::Unavailable(error.to_string())
}

fn to_manifest(bytes: &[u8]) -> Result<Manifest, Rejection> {
    Manifest::from_bytes(bytes).map_err(|error| Rejection::Malformed(error.to_string()))
}

impl SnapshotReceiver {
    pub fn new(snapshots: Arc<SnapshotManager>) -> SnapshotReceiver {
        SnapshotReceiver { snapshots, offered: Mutex::new(None), reading: Arc::new(Semaphore::new(1)) }
    }

    pub async fn offer(&self, request: v1::OfferSnapshotRequest) -> Result<v1::OfferSnapshotResponse, Rejection> {
        // First: the pins of refused offers would keep blocks.
        let permit = self.permit_read()?;
        let pinned = Arc::new(self.snapshots.pin_offered(to_manifest(&request.manifest)?));
        let missing = self.missing(Arc::clone(&pinned.manifest), permit).await?;
        crash::point("snapshot.offer");
        let names = missing.iter().map(|hash| Bytes::copy_from_slice(&hash.0)).collect();
        *self.offered.lock() = Some(Offered { pinned, requested: Arc::new(missing.into_iter().collect()) });
        Ok(v1::OfferSnapshotResponse { missing: names })
    }

    /// Returns the offered snapshot for a request about it.
    fn offered(&self) -> Result<Offered, Rejection> {
        let offered = self.offered.lock().clone().filter(|offered| offered.pinned.renew());
        offered.ok_or_else(|| unavailable(NOT_OFFERED))
    }

    fn permit_read(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        Arc::clone(&self.reading).try_acquire_owned().map_err(|_| unavailable(READING))
    }

    /// Returns the blocks that this node lacks. A read that hangs keeps its permit: the leader offers again after each
    /// time-out, and every retry would take one more thread.
    async fn missing(&self, manifest: Arc<Manifest>, permit: OwnedSemaphorePermit) -> Result<Vec<Hash>, Rejection> {
        let read = move |snapshots: &SnapshotManager| {
            let _held = permit;
            snapshots.folder().missing(&manifest)
        };
        self.snapshots.blocking(read).await.map_err(unavailable)
    }

    pub async fn blocks(&self, request: v1::SendBlocksRequest) -> Result<v1::SendBlocksResponse, Rejection> {
        let requested = self.offered()?.requested;
        let put = move |snapshots: &SnapshotManager| {
            request.blocks.iter().map(|block| (Hash::of(block), block)).try_for_each(|(name, block)| {
                match requested.contains(&name) {
                    true => snapshots.put_block(name, block),
                    false => Err(SnapshotError::damaged(format!("block {name} was not requested"))),
                }
            })
        };
        self.snapshots.blocking(put).await.map_err(unavailable)?;
        Ok(v1::SendBlocksResponse {})
    }

    pub async fn install(
        &self,
        raft: &Raft,
        request: v1::InstallSnapshotRequest,
    ) -> Result<v1::InstallSnapshotResponse, Rejection> {
        let vote = wire::to_required_vote(request.vote)?;
        let manifest = to_manifest(&request.manifest)?;
        let pinned = self.offered()?.pinned;
        if *pinned.manifest != manifest {
            return Err(unavailable(NOT_OFFERED));
        }
        // Check every block first: a failed installation ends Raft.
        let missing = self.missing(Arc::clone(&pinned.manifest), self.permit_read()?).await?;
        if !missing.is_empty() {
            return Err(unavailable(format!("{} blocks are missing: offer the snapshot again", missing.len())));
        }
        let snapshot = as_snapshot(manifest).map_err(|error| Rejection::Malformed(error.to_string()))?;
        let installed = tokio::time::timeout(INSTALL_LIMIT, raft.install_full_snapshot(vote, snapshot)).await;
        let answer = installed.map_err(unavailable)?.map_err(unavailable)?;
        self.offered.lock().take_if(|offered| Arc::ptr_eq(&offered.pinned, &pinned));
        Ok(v1::InstallSnapshotResponse { vote: Some(wire::from_vote(&answer.vote)) })
    }
}
