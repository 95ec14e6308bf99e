//! Reads the archive for operators. Blocks that this node cannot read are fetched from another node first (P24).

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::{ArchivePart, ArchivePartKey, Ledger};
use reveille_raft::ArchiveError;

use crate::file_store::fetch;
use crate::process::context::NodeContext;
use crate::process::peer_messages::PeerFile;

/// Returns the part that has this run or its summary, opened. With a tenant only parts that may have its runs are
/// opened. `None`: no part has it.
pub async fn archived(
    context: &Arc<NodeContext>,
    run: RunId,
    tenant: Option<&str>,
) -> Result<Option<(ArchivePartKey, Arc<Ledger>)>, ArchiveError> {
    repaired(context, || context.replica.archived(run, tenant)).await
}

/// Opens a part. `None`: its retention has ended since it was listed.
pub async fn open_part(context: &Arc<NodeContext>, key: ArchivePartKey) -> Result<Option<Arc<Ledger>>, ArchiveError> {
    repaired(context, || context.replica.open_part(key)).await
}

/// Reads. After damage it repairs that part, at most once each, and reads again.
async fn repaired<T, Reading: Future<Output = Result<T, ArchiveError>>>(
    context: &Arc<NodeContext>,
    read: impl Fn() -> Reading,
) -> Result<T, ArchiveError> {
    let mut repaired = BTreeSet::new();
    loop {
        match read().await {
            Err(ArchiveError::Damaged { part, .. }) if repaired.insert(part) => fetch_blocks(context, part).await,
            read => return read,
        }
    }
}

/// Fetches the blocks of a part that this node cannot read.
async fn fetch_blocks(context: &Arc<NodeContext>, part: ArchivePartKey) {
    let of_part: BTreeSet<Hash> = context.replica.read(|ledger| {
        let part = ledger.parts().get(&part);
        part.into_iter().flat_map(ArchivePart::all_blocks).map(|block| block.hash).collect()
    });
    for block in context.replica.missing_blocks().into_iter().filter(|block| of_part.contains(block)) {
        fetch(context, PeerFile::ArchiveBlock(block)).await;
    }
}
