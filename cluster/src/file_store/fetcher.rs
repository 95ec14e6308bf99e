//! Updates the parts and attachments of a node to the ledger: missing files are fetched from a peer, and files that are
//! not needed are removed (P20). So a new member, a member that was away, and one with a faulty disk all get their
//! files in the same way. Blocks of the archive that the node cannot read are fetched likewise (P24).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reveille_ledger::ids::{Hash, NodeId};
use tokio_util::sync::CancellationToken;

use super::lost::find_lost;
use crate::process::context::NodeContext;
use crate::process::limits::NAMED_MAX;
use crate::process::peer_messages::{self, FetchFile, FilePiece, PeerFile};

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Number of checks between two that also remove parts.
const CHECKS_PER_REMOVAL: u32 = 10;
/// Minimum age of a file before it is removed if it is not needed. A younger one may be needed for a seal or a content:
/// of 1,024 parts none takes longer than 20 seconds.
const UNNEEDED_FOR: Duration = Duration::from_secs(8 * 3_600);
/// Maximum wait for the state of all seals before a removal.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time to fetch one piece of a file.
const PIECE_WITHIN: Duration = Duration::from_secs(10);
/// Size of a piece in bytes.
pub const PIECE: usize = 1024 * 1024;
/// Maximum size of a fetched file in bytes: a part of 65,536 recipients of 4 KiB each.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Checks and fetches parts until `stop`.
pub async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let (mut checks_left, mut known, mut is_short): (u32, BTreeSet<Hash>, bool) = (0, BTreeSet::new(), false);
    let (mut open_files, mut other_files, mut archive) = (Turn::default(), Turn::default(), Turn::default());
    while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
        // A node that was cut off may not know the latest seals, so it removes nothing.
        let removes = checks_left == 0 && context.replica.linearizable(Instant::now() + KNOWN_WITHIN).await.is_ok();
        checks_left = if removes { CHECKS_PER_REMOVAL } else { checks_left.saturating_sub(1) };
        if removes {
            // What was there may have vanished from the disk.
            known.clear();
        }
        let Some(missing) = check_parts(&context, removes, &mut known, &mut is_short).await else { continue };
        let own = Arc::clone(&context);
        let missing_blocks = context.replica.blocking(move || own.replica.drop_unneeded_missing_blocks());
        let blocks = missing_blocks.await.unwrap_or_default();
        let lost = context.files.lost();
        if missing.is_empty() && blocks.is_empty() {
            context.files.set_lost(lost);
            continue;
        }
        // Claims wait for the parts of open runs, so fetch these first.
        let open = open_parts(&context);
        let asked = missing.into_iter().filter(|part| !lost.contains(part));
        let (first, others): (Vec<Hash>, Vec<Hash>) = asked.partition(|part| open.contains(part));
        let parts: Vec<Hash> = open_files.next(first).into_iter().chain(other_files.next(others)).collect();
        let files = parts.iter().copied().map(PeerFile::AudiencePart);
        let mut fetched = 0;
        for file in files.chain(archive.next(blocks).into_iter().map(PeerFile::ArchiveBlock)) {
            if stop.is_cancelled() {
                return;
            }
            fetched += u32::from(fetch(&context, file).await);
        }
        // Those that are lost are not asked for one by one.
        let still_missing: BTreeSet<Hash> = context.files.missing().into_iter().collect();
        let unfetched = parts.into_iter().chain(lost).filter(|part| still_missing.contains(part));
        let unfetched: Vec<Hash> = unfetched.collect();
        context.files.set_lost(find_lost(&context, &unfetched).await);
        if fetched > 0 {
            tracing::info!(files = fetched, "files that this node lacked were fetched from other nodes");
        }
    }
}

/// Takes turns among missing files: those that no peer has do not keep the others from being asked for.
#[derive(Default)]
struct Turn {
    /// The last file that was asked for.
    last: Option<Hash>,
}

impl Turn {
    /// Returns at most [`NAMED_MAX`] of these files, which are in order. The first is the one after the last turn.
    fn next(&mut self, mut missing: Vec<Hash>) -> Vec<Hash> {
        let done = missing.partition_point(|file| Some(*file) <= self.last);
        missing.rotate_left(done);
        missing.truncate(NAMED_MAX);
        self.last = missing.last().copied();
        missing
    }
}

/// Returns the files that open runs need. Those of messages for later are not among them: there may be a million.
pub(crate) fn open_parts(context: &NodeContext) -> BTreeSet<Hash> {
    let now = context.ledger_time(context.replica.read(|ledger| ledger.head().now));
    context.replica.read(|ledger| {
        // Most often no file is needed, but there may be a million open runs, and this is asked every second.
        if ledger.needed_files().next().is_none() {
            return BTreeSet::new();
        }
        let runs = || ledger.started_pages(now).flat_map(|(_, page)| &page.runs);
        let audiences: BTreeSet<Hash> = runs().map(|run| run.audience).filter(|hash| ledger.is_seal(hash)).collect();
        let contents: BTreeSet<Hash> = runs().map(|run| run.content).filter(|hash| ledger.has_files(hash)).collect();
        let parts = audiences.iter().filter_map(|audience| ledger.seal(audience)).flat_map(|seal| seal.parts);
        parts.chain(contents.iter().flat_map(|content| ledger.attached_files(content))).collect()
    })
}

/// Returns the missing files. `None` if the check failed. Of the attachments that open runs do not need it looks only
/// for those that are not `known`, and adds them: there may be very many. With `removes` it also removes files that are
/// not needed. Logs when space runs out, and when there is space again.
async fn check_parts(
    context: &Arc<NodeContext>,
    removes: bool,
    known: &mut BTreeSet<Hash>,
    is_short: &mut bool,
) -> Option<Vec<Hash>> {
    let mut looked_for = open_parts(context);
    looked_for.extend(context.replica.read(|ledger| ledger.seals().flat_map(|seal| seal.parts).collect::<Vec<_>>()));
    let needed: Vec<Hash> = context.replica.read(|ledger| ledger.needed_files().collect());
    let needed: BTreeSet<Hash> = needed.into_iter().collect();
    looked_for.extend(needed.difference(known));
    known.clone_from(&needed);
    let own = Arc::clone(context);
    let checked = context.replica.blocking(move || {
        let parts = &own.files;
        looked_for.iter().filter(|part| !parts.has(**part)).for_each(|part| parts.mark_missing(*part));
        if let Err(error) = parts.forget_unneeded_missing(&needed) {
            tracing::warn!(%error, "a damaged part that is not needed cannot be removed");
        }
        if removes {
            match parts.remove_unneeded(&needed, UNNEEDED_FOR, SystemTime::now()) {
                Ok(0) => {}
                Ok(removed) => {
                    tracing::info!(removed, "removed parts of audiences and attachments that are not needed")
                }
                Err(error) => tracing::warn!(%error, "parts that are not needed cannot be removed"),
            }
        }
        (parts.missing(), parts.shortage())
    });
    let (missing, shortage) = checked.await.ok()?;
    match &shortage {
        Some(why) if !*is_short => {
            tracing::warn!(%why, "no room for parts of audiences: imports wait, nothing is lost; free space there");
        }
        None if *is_short => tracing::info!("there is room for parts of audiences again"),
        _ => {}
    }
    *is_short = shortage.is_some();
    metrics::gauge!("reveille_parts_no_room").set(u8::from(*is_short));
    metrics::gauge!("reveille_files_missing").set(missing.len() as f64);
    Some(missing)
}

/// Fetches a file from the first peer that has it intact. Returns false if none has.
pub async fn fetch(context: &Arc<NodeContext>, file: PeerFile) -> bool {
    for node in context.voters().into_iter().filter(|node| *node != context.me.node) {
        match fetch_from(context, node, file).await {
            Ok(true) => {
                tracing::debug!(?file, %node, "a file was fetched");
                return true;
            }
            Ok(false) => {}
            // The shortage is logged once for the volume, not for each file.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return false,
            Err(error) => tracing::warn!(?file, %node, %error, "a file cannot be fetched"),
        }
    }
    tracing::debug!(?file, "no peer has this file now");
    false
}

/// Fetches a file from this peer. Returns false if the peer does not have it.
pub(crate) async fn fetch_from(context: &Arc<NodeContext>, node: NodeId, file: PeerFile) -> io::Result<bool> {
    let Some(peer) = context.replica.peer(node) else { return Ok(false) };
    let mut bytes = Vec::new();
    loop {
        let request = FetchFile { file, offset: bytes.len() as u64 };
        let piece = match peer_messages::ask(&peer, request, PIECE_WITHIN).await {
            Ok(piece) => piece,
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let Some(FilePiece { bytes: piece, total }) = piece else { return Ok(false) };
        if piece.is_empty() || total > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("{total} bytes are announced, {} have come", bytes.len())));
        }
        if bytes.is_empty() {
            // Check the space before the rest is transferred.
            let own = Arc::clone(context);
            context.replica.blocking(move || own.files.room_for(total)).await.map_err(io::Error::other)??;
        }
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 >= total {
            break;
        }
    }
    let own = Arc::clone(context);
    let keep = move || match file {
        PeerFile::AudiencePart(part) if own.files.put(&bytes)? != part => Err(io::Error::other("it sent another part")),
        PeerFile::AudiencePart(_) => Ok(()),
        PeerFile::ArchiveBlock(block) => own.replica.put_block(block, &bytes),
    };
    context.replica.blocking(keep).await.map_err(io::Error::other)??;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_after_many_that_no_peer_has_is_asked_for() {
        let missing: BTreeSet<Hash> = (0..=NAMED_MAX).map(|number| Hash::of(&number.to_be_bytes())).collect();
        let missing: Vec<Hash> = missing.into_iter().collect();
        let (first, last) = (missing[0], missing[NAMED_MAX]);
        let mut turn = Turn::default();
        assert!(!turn.next(missing.clone()).contains(&last));
        let second = turn.next(missing.clone());
        assert_eq!((second.len(), second[..2].to_vec()), (NAMED_MAX, vec![last, first]));
        // A file that came, or is needed no more, changes nothing.
        assert_eq!(turn.next(vec![first, last]), [last, first]);
        assert_eq!(turn.next(Vec::new()), []);
    }
}
