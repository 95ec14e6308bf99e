//! Finds blocks of the archive that no member has (P24): their loss keeps backups and new voters away until an operator
//! accepts it. Called for an operator only.
//!
//! All members must say that they cannot read a block. One that the target of backups has is stored on this node again,
//! from where the others fetch it. What is lost is only found here: the ledger decides what follows from it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::Hash;
use reveille_ledger::{ArchivePart, ArchivePartKey};
use tokio::task::JoinSet;

use crate::backup::archive_block;
use crate::process::context::NodeContext;
use crate::process::peer_messages::{self, FindUnreadableBlocks};

/// Maximum wait for a member that reads its blocks. Most of them are missing, so there is little to read.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// A part of the archive with blocks that no asked member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// Key of the part.
    pub key: ArchivePartKey,
    /// The part.
    pub part: ArchivePart,
    /// Those of its blocks.
    pub blocks: BTreeSet<Hash>,
}

/// What is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveLoss {
    /// The parts. If each member lacks more than 1,024 blocks, only the first ones are found.
    pub parts: Vec<LostPart>,
    /// Members, and the target of backups, that may have the blocks and did not say so: each with the reason.
    pub silent: Vec<String>,
}

/// Asks all members, and stores what the target of backups has.
pub async fn find(context: &Arc<NodeContext>) -> ArchiveLoss {
    let (known, _) = ask_members(context, BTreeSet::new()).await;
    let named: BTreeSet<Hash> = known.into_iter().flatten().collect();
    if named.is_empty() {
        return ArchiveLoss::default();
    }
    let (answers, mut silent) = ask_members(context, named.clone()).await;
    let mut lost = named;
    lost.retain(|block| answers.iter().all(|unreadable| unreadable.contains(block)));
    match restore_from_backup(context, lost.clone()).await {
        Ok(left) => lost = left,
        Err(error) => silent.push(format!("the target of backups: {error}")),
    }
    let parts = context.replica.read(|ledger| ledger.parts().clone());
    let parts = parts.iter().filter_map(|(key, part)| {
        let blocks: BTreeSet<Hash> =
            part.all_blocks().map(|block| block.hash).filter(|hash| lost.contains(hash)).collect();
        (!blocks.is_empty()).then(|| LostPart { key: *key, part: part.clone(), blocks })
    });
    ArchiveLoss { parts: parts.collect(), silent }
}

/// Returns what each member that answered cannot read, of these blocks and of the first others that it lacks; and the
/// members that did not answer.
async fn ask_members(context: &Arc<NodeContext>, blocks: BTreeSet<Hash>) -> (Vec<BTreeSet<Hash>>, Vec<String>) {
    let applied = context.replica.read(|ledger| ledger.head().applied);
    let mut asked = JoinSet::new();
    for (node, member) in context.replica.members() {
        let (peer, request) = (context.replica.peer(node), FindUnreadableBlocks { applied, blocks: blocks.clone() });
        asked.spawn(async move {
            let silent = |why: String| format!("{}: {why}", member.name);
            let peer = peer.ok_or_else(|| silent("it has no address".to_owned()))?;
            let answer = peer_messages::ask(&peer, request, ASKED_WITHIN).await;
            answer.map_err(|error| silent(error.to_string()))?.map_err(silent)
        });
    }
    let (mut answers, mut silent) = (Vec::new(), Vec::new());
    for answer in asked.join_all().await {
        match answer {
            Ok(unreadable) => answers.push(unreadable),
            Err(why) => silent.push(why),
        }
    }
    silent.sort();
    (answers, silent)
}

/// Stores the blocks that the target of backups has. Returns the others.
async fn restore_from_backup(context: &Arc<NodeContext>, lost: BTreeSet<Hash>) -> io::Result<BTreeSet<Hash>> {
    let Some(plan) = &context.backups else { return Ok(lost) };
    let (own, target) = (Arc::clone(context), Arc::clone(&plan.target));
    let restoring = context.replica.blocking(move || {
        let mut left = BTreeSet::new();
        for hash in lost {
            match archive_block(&*target, hash)? {
                Some(bytes) => {
                    own.replica.put_block(hash, &bytes)?;
                    tracing::info!(%hash, "a block of the archive that all members had lost is restored from a backup");
                }
                None => drop(left.insert(hash)),
            }
        }
        Ok(left)
    });
    restoring.await.map_err(io::Error::other)?
}
