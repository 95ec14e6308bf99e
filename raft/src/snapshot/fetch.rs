//! Fetches a snapshot from a peer, for a node that starts without one that its log continues: the own ones are damaged
//! or lost. A leader sends snapshots by itself only to a node whose log lags (`transfer`), and this node's does not.
//!
//! Called before Raft runs. Vote and log stay, so the node keeps every promise: its votes, and the entries that it
//! acknowledged. What its log purged was committed, so a snapshot that ends at or after the purge has all of it. Any
//! peer can send it, also without a leader: a snapshot has committed entries only.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use reveille_ledger::ids::Hash;
use reveille_proto::peer::v1;

use super::manager::SnapshotManager;
use super::transfer::{BLOCKS_LIMIT, BLOCKS_MAX, OFFER_LIMIT, read_some, unavailable};
use super::{Manifest, SnapshotError, Snapshots};
use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::peer::client::PeerClient;
use crate::peer::log_interval::LogInterval;
use crate::peer::{Destination, Rejection};
use crate::wire;

/// Pause after every peer was asked.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Fetches a snapshot into `folder` from the first peer that sends one.
pub(crate) struct SnapshotFetch<'a> {
    pub client: &'a PeerClient,
    pub peers: &'a [Destination],
    pub folder: Arc<Snapshots>,
    pub execution: Execution,
    /// Log index that the snapshot must reach.
    pub at_least: u64,
}

impl SnapshotFetch<'_> {
    /// Asks the peers in turn. Fails if none of them sent anything for `patience`, or if this node was removed from the
    /// cluster.
    pub async fn run(self, patience: Duration) -> Result<(), FatalError> {
        let (logged, mut heard) = (LogInterval::new(), Instant::now());
        loop {
            let mut reasons = Vec::new();
            for peer in self.peers {
                match self.fetch_from(peer, &mut heard).await {
                    Ok(index) => {
                        tracing::info!(%peer, index, "a snapshot was fetched");
                        return Ok(());
                    }
                    Err(error) => reasons.push(format!("{peer}: {error}")),
                }
                if let Some(fatal_error) = self.client.fatal_errors.get() {
                    return Err(fatal_error);
                }
            }
            let reasons = reasons.join("; ");
            if heard.elapsed() >= patience {
                return Err(FatalError::State(format!(
                    "this node has no readable snapshot that reaches entry {}, and no other node sent one ({reasons}); \
                     start the nodes that are down, and then this one",
                    self.at_least
                )));
            }
            if logged.is_due() {
                tracing::warn!(reasons, "no other node has sent a snapshot yet; this node asks again");
            }
            tokio::time::sleep(ASK_EVERY.min(patience)).await;
        }
    }

    /// Fetches the newest snapshot of a peer. Blocks that came before a failure are kept for the next peer. Returns the
    /// log index of the snapshot.
    async fn fetch_from(&self, peer: &Destination, heard: &mut Instant) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let request = v1::FetchSnapshotRequest { header: None, at_least: self.at_least };
        let answer = self.client.ask(peer, request, OFFER_LIMIT).await?;
        let manifest = Arc::new(Manifest::from_bytes(&answer.manifest)?);
        if manifest.index < self.at_least {
            return Err(format!("its snapshot ends at entry {}", manifest.index).into());
        }
        let wanted = Arc::clone(&manifest);
        let mut missing = VecDeque::from(self.blocking(move |folder| folder.missing(&wanted)).await?);
        tracing::info!(%peer, index = manifest.index, blocks = missing.len(), "fetching a snapshot");
        while !missing.is_empty() {
            let hashes = missing.iter().take(BLOCKS_MAX).map(|hash| Bytes::copy_from_slice(&hash.0)).collect();
            let request = v1::FetchBlocksRequest { header: None, hashes };
            let blocks = self.client.ask(peer, request, BLOCKS_LIMIT).await?.blocks;
            if blocks.is_empty() || blocks.len() > missing.len() {
                return Err(format!("it sent {} of {} blocks", blocks.len(), missing.len()).into());
            }
            let sent: Vec<_> = missing.drain(..blocks.len()).zip(blocks).collect();
            let put = |folder: &Snapshots, (hash, block): &(Hash, Bytes)| folder.put_block(*hash, block);
            self.blocking(move |folder| sent.iter().try_for_each(|sent| put(folder, sent))).await?;
            *heard = Instant::now();
        }
        let index = manifest.index;
        self.blocking(move |folder| folder.install(&manifest)).await?;
        Ok(index)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshots) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, SnapshotError> {
        let folder = Arc::clone(&self.folder);
        self.execution.blocking(move || work(&folder)).await.unwrap_or(Err(SnapshotError::Panicked))
    }
}

/// Answers a peer that fetches a snapshot with the manifest of the newest one. Makes one if that does not reach far
/// enough, but not often.
pub(crate) async fn send_manifest(
    snapshots: &Arc<SnapshotManager>,
    request: v1::FetchSnapshotRequest,
) -> Result<v1::FetchSnapshotResponse, Rejection> {
    let index = request.at_least;
    let manifest = snapshots.blocking(move |snapshots| snapshots.for_peer(index)).await.map_err(unavailable)?;
    Ok(v1::FetchSnapshotResponse { manifest: manifest.to_bytes().map_err(unavailable)?.into() })
}

/// Answers a peer that fetches blocks with the first of them. A block that no snapshot here needs any more may be gone:
/// then the peer asks for the newest snapshot again.
pub(crate) async fn send_blocks(
    snapshots: &Arc<SnapshotManager>,
    request: v1::FetchBlocksRequest,
) -> Result<v1::FetchBlocksResponse, Rejection> {
    let mut hashes = request.hashes.iter().map(|hash| wire::to_hash(hash)).collect::<Result<VecDeque<_>, _>>()?;
    let read = snapshots.blocking(move |snapshots| read_some(snapshots, &mut hashes)).await;
    Ok(v1::FetchBlocksResponse { blocks: read.map_err(unavailable)? })
}
