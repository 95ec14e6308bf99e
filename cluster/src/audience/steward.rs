//! Keeps the parts of a node in step with the ledger: what is needed and not here is fetched from a peer, what
//! is not needed is removed (P20). So a new member, one that was away, and one whose disk lies come to all parts
//! by the same road.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reveille_ledger::ids::{Hash, NodeId};
use tokio_util::sync::CancellationToken;

use super::NAMED_MAX;
use crate::node::context::NodeContext;
use crate::node::peer_messages::{self, FetchPart, PartPiece};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks between two that also remove parts that are not needed.
const LOOKS_A_CLEARING: u32 = 10;
/// A part that is not needed and younger may be on its way to a seal: of 1,024 parts none takes longer than 20 seconds.
const UNNEEDED_FOR: Duration = Duration::from_secs(8 * 3_600);
/// How long it waits to know all that was sealed before it takes anything away.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);
/// How long a piece of a part may take.
const PIECE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a piece.
pub const PIECE: usize = 1024 * 1024;
/// Bytes of a part that is taken over: 65,536 recipients of four KiB each.
const PART_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Goes on until `stop`.
pub async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let mut looks: u32 = 0;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        // A node that was cut off may not know what was sealed meanwhile. It takes nothing away.
        let clears = looks == 0 && context.replica.linearizable(Instant::now() + KNOWN_WITHIN).await.is_ok();
        looks = if clears { LOOKS_A_CLEARING } else { looks.saturating_sub(1) };
        let Some(lacking) = look(&context, clears).await else { continue };
        if lacking.is_empty() {
            continue;
        }
        // Claims wait for those of open runs.
        let open = open_parts(&context);
        let (first, others): (Vec<Hash>, Vec<Hash>) = lacking.into_iter().partition(|part| open.contains(part));
        for part in first.into_iter().chain(others).take(NAMED_MAX) {
            if stop.is_cancelled() {
                return;
            }
            fetch(&context, part).await;
        }
    }
}

/// The parts of audiences of open runs.
pub(crate) fn open_parts(context: &NodeContext) -> BTreeSet<Hash> {
    context.replica.read(|ledger| {
        let runs = ledger.open_pages().flat_map(|(_, page)| &page.runs);
        let audiences: BTreeSet<Hash> = runs.map(|run| run.audience).collect();
        audiences.iter().filter_map(|audience| ledger.seal(audience)).flat_map(|seal| seal.parts).collect()
    })
}

/// What is lacking here; none where that could not be found out.
async fn look(context: &Arc<NodeContext>, clears: bool) -> Option<Vec<Hash>> {
    let needed: BTreeSet<Hash> = context.replica.read(|ledger| ledger.seals().flat_map(|seal| seal.parts).collect());
    let own = Arc::clone(context);
    let looked = context.replica.blocking(move || {
        let parts = &own.parts;
        needed.iter().filter(|part| !parts.has(**part)).for_each(|part| parts.lack(*part));
        if let Err(error) = parts.keep_lacking(&needed) {
            tracing::warn!(%error, "a damaged part that is not needed cannot be removed");
        }
        if clears {
            match parts.remove_unneeded(&needed, UNNEEDED_FOR, SystemTime::now()) {
                Ok(0) => {}
                Ok(removed) => tracing::info!(removed, "removed parts of audiences that are not needed"),
                Err(error) => tracing::warn!(%error, "parts that are not needed cannot be removed"),
            }
        }
        parts.room.look_again();
        metrics::gauge!("reveille_parts_no_room").set(if parts.shortage().is_some() { 1.0 } else { 0.0 });
        parts.lacking()
    });
    let lacking = looked.await.ok()?;
    metrics::gauge!("reveille_parts_lacking").set(lacking.len() as f64);
    Some(lacking)
}

/// Takes a part over from the first peer that has it whole.
pub async fn fetch(context: &Arc<NodeContext>, part: Hash) {
    for node in context.voters().into_iter().filter(|node| *node != context.me.node) {
        match fetch_from(context, node, part).await {
            Ok(true) => return tracing::info!(?part, %node, "a part of an audience was fetched"),
            Ok(false) => {}
            // That is said of the volume, not of each part.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return,
            Err(error) => tracing::warn!(?part, %node, %error, "a part of an audience cannot be fetched"),
        }
    }
    tracing::debug!(?part, "no peer has this part of an audience now");
}

/// Takes a part over from this peer; false where it has none.
pub(crate) async fn fetch_from(context: &Arc<NodeContext>, node: NodeId, part: Hash) -> io::Result<bool> {
    let Some(peer) = context.replica.peer(node) else { return Ok(false) };
    let mut bytes = Vec::new();
    loop {
        let question = FetchPart { part, offset: bytes.len() as u64 };
        let piece = match peer_messages::ask(&peer, question, PIECE_WITHIN).await {
            Ok(piece) => piece,
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let Some(PartPiece { bytes: piece, total }) = piece else { return Ok(false) };
        if piece.is_empty() || total > PART_BYTES_MAX {
            return Err(io::Error::other(format!("{total} bytes are announced, {} have come", bytes.len())));
        }
        if bytes.is_empty() {
            // Before the rest of it has travelled for nothing.
            let own = Arc::clone(context);
            context.replica.blocking(move || own.parts.room_for(total)).await.map_err(io::Error::other)??;
        }
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 >= total {
            break;
        }
    }
    let own = Arc::clone(context);
    let kept = context.replica.blocking(move || own.parts.put(&bytes)).await.map_err(io::Error::other)??;
    if kept == part { Ok(true) } else { Err(io::Error::other("it sent another part")) }
}
