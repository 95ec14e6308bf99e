//! Transfer of a snapshot from the leader to a follower whose log lacks purged entries: manifest, missing blocks,
//! install.
//!
//! Nothing changes on the follower before the last step. An interrupted transfer leaves blocks, which the next transfer
//! reuses. The archive is not sent: the follower fetches the blocks that it lacks after the installation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::bytes::Bytes;
use reveille_ledger::ids::Hash;
use reveille_proto::peer::v1;

use crate::Raft;
use crate::crash;
use crate::peer::client::PeerClient;
use crate::peer::{Destination, PeerError, Rejection};
use crate::snapshot::manager::{PinnedSnapshot, SnapshotManager, as_snapshot};
use crate::snapshot::{Manifest, SnapshotError};
use crate::types::Vote;
use crate::wire;

/// Limit of an offer: the follower first reads all blocks that it has.
const OFFER_LIMIT: Duration = Duration::from_secs(60);
/// Limit of one block, including the sync on the follower's disk.
const BLOCK_LIMIT: Duration = Duration::from_secs(10);
/// Limit of the installation: the follower reads the whole state.
const INSTALL_LIMIT: Duration = Duration::from_secs(120);

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
    for hash in &answer.missing {
        let name = wire::to_hash(hash)?;
        let content = snapshots.blocking(move |snapshots| snapshots.read_block(name)).await.map_err(local_error)?;
        let block = v1::SendBlockRequest { header: None, hash: hash.clone(), content: content.into() };
        client.ask(to, block, BLOCK_LIMIT).await?;
        crash::point("snapshot.send-block");
    }
    let install = v1::InstallSnapshotRequest { header: None, vote: Some(wire::from_vote(&vote)), manifest };
    let answer = client.ask(to, install, INSTALL_LIMIT).await?;
    Ok(wire::to_required_vote(answer.vote)?)
}

/// Receives snapshots from leaders, one at a time: a new offer replaces the former.
pub(crate) struct SnapshotReceiver {
    snapshots: Arc<SnapshotManager>,
    offered: Mutex<Option<Offered>>,
}

struct Offered {
    pinned: Arc<PinnedSnapshot>,
    /// Blocks that this node requested. No other block is accepted.
    requested: BTreeSet<Hash>,
}

fn unavailable(error: impl std::fmt::Display) -> Rejection {
    Rejection::Unavailable(error.to_string())
}

fn to_manifest(bytes: &[u8]) -> Result<Manifest, Rejection> {
    Manifest::from_bytes(bytes).map_err(|error| Rejection::Malformed(error.to_string()))
}

impl SnapshotReceiver {
    pub fn new(snapshots: Arc<SnapshotManager>) -> SnapshotReceiver {
        SnapshotReceiver { snapshots, offered: Mutex::new(None) }
    }

    pub async fn offer(&self, request: v1::OfferSnapshotRequest) -> Result<v1::OfferSnapshotResponse, Rejection> {
        let pinned = Arc::new(self.snapshots.pin(to_manifest(&request.manifest)?));
        let manifest = Arc::clone(&pinned.manifest);
        let missing =
            self.snapshots.blocking(move |snapshots| snapshots.missing(&manifest)).await.map_err(unavailable)?;
        crash::point("snapshot.offer");
        let names = missing.iter().map(|hash| Bytes::copy_from_slice(&hash.0)).collect();
        *self.offered.lock() = Some(Offered { pinned, requested: missing.into_iter().collect() });
        Ok(v1::OfferSnapshotResponse { missing: names })
    }

    pub async fn block(&self, request: v1::SendBlockRequest) -> Result<v1::SendBlockResponse, Rejection> {
        let hash = wire::to_hash(&request.hash)?;
        let is_requested = self.offered.lock().as_ref().is_some_and(|offered| offered.requested.contains(&hash));
        if !is_requested {
            return Err(unavailable("no block of this name was requested: offer the snapshot again"));
        }
        let content = request.content;
        self.snapshots.blocking(move |snapshots| snapshots.put_block(hash, &content)).await.map_err(unavailable)?;
        Ok(v1::SendBlockResponse {})
    }

    pub async fn install(
        &self,
        raft: &Raft,
        request: v1::InstallSnapshotRequest,
    ) -> Result<v1::InstallSnapshotResponse, Rejection> {
        let vote = wire::to_required_vote(request.vote)?;
        let manifest = to_manifest(&request.manifest)?;
        let pinned = self.offered.lock().as_ref().map(|offered| Arc::clone(&offered.pinned));
        let Some(pinned) = pinned.filter(|pinned| *pinned.manifest == manifest) else {
            return Err(unavailable("this snapshot was not offered: offer it again"));
        };
        // Check every block first: a failed installation ends Raft.
        let whole = Arc::clone(&pinned.manifest);
        let missing = self.snapshots.blocking(move |snapshots| snapshots.missing(&whole)).await.map_err(unavailable)?;
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
