//! Brings parts of an audience onto the disks of a majority, from the members that have them (P20).
//!
//! Called when a part has come to this node, when a client asks whether it still has to be sent, and before a seal
//! is proposed. Asking again is how an upload goes on after a crash of any node: what one member has, the others take
//! over from it, and only what no member has is sent once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::{Hash, NodeId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::SealError;
use crate::node::context::NodeContext;
use crate::node::peer_messages::{self, HoldParts, TakePart};

/// How long a member may take to say what it has.
const HOLD_WITHIN: Duration = Duration::from_secs(5);
/// Once a majority has said it, the others are waited for no longer.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);
/// How long a member may take to take a part over.
const TAKE_WITHIN: Duration = Duration::from_secs(30);

/// Sees to it that a majority has these parts, synced, and keeps them for seven hours at least; answers those that no
/// member has.
///
/// # Errors
/// When a majority cannot be reached, or does not take a part.
pub async fn spread(context: &Arc<NodeContext>, parts: &[Hash]) -> Result<Vec<Hash>, SealError> {
    let voters = context.voters();
    let majority = voters.len() / 2 + 1;
    let lacking = ask_all(context, &voters, majority, parts).await?;
    let mut missing = Vec::new();
    for part in parts {
        let (lack, have): (Vec<_>, Vec<_>) = lacking.iter().partition(|(_, lacking)| lacking.contains(part));
        // This node first: what it has just been sent lies in its memory.
        let source = have.iter().map(|(node, _)| **node).min_by_key(|node| (*node != context.me.node, *node));
        let Some(source) = source else {
            missing.push(*part);
            continue;
        };
        let (mut taking, enough) = (JoinSet::new(), CancellationToken::new());
        for (node, _) in lack {
            let turn = CopySlot::of(context.parts.copies_to(*node), enough.clone());
            taking.spawn(take(Arc::clone(context), *node, turn, TakePart { part: *part, source }));
        }
        let (mut have, mut why) = (have.len(), "it does not answer".to_owned());
        while have < majority {
            match taking.join_next().await {
                Some(Ok(Ok(()))) => have += 1,
                Some(Ok(Err(error))) => why = error,
                Some(Err(panic)) => why = panic.to_string(),
                None => return Err(SealError::NotSpread { part: *part, have, voters: voters.len(), why }),
            }
        }
        // Who has begun goes on for itself, and no member waits for a slow one: what does not come by now
        // is fetched once the audience is sealed.
        enough.cancel();
        taking.detach_all();
    }
    Ok(missing)
}

/// What each member that answers lacks; a majority answers.
async fn ask_all(
    context: &Arc<NodeContext>,
    voters: &[NodeId],
    majority: usize,
    parts: &[Hash],
) -> Result<BTreeMap<NodeId, BTreeSet<Hash>>, SealError> {
    let mut asking = JoinSet::new();
    for node in voters {
        let (context, node, parts) = (Arc::clone(context), *node, parts.to_vec());
        asking.spawn(async move {
            let peer = context.replica.peer(node).ok_or_else(|| "it is no member".to_owned())?;
            let lacking =
                peer_messages::ask(&peer, HoldParts(parts), HOLD_WITHIN).await.map_err(|error| error.to_string())??;
            Ok::<_, String>((node, lacking.into_iter().collect()))
        });
    }
    let (mut lacking, mut why) = (BTreeMap::new(), "it does not answer".to_owned());
    loop {
        // A missing part here is reported for no other member: this node is busy with its own disk at times.
        let awaits_me = voters.contains(&context.me.node) && !lacking.contains_key(&context.me.node);
        let limit = if lacking.len() < majority || awaits_me { HOLD_WITHIN + OTHERS_WITHIN } else { OTHERS_WITHIN };
        match timeout(limit, asking.join_next()).await {
            Ok(Some(Ok(Ok((node, lacks))))) => drop(lacking.insert(node, lacks)),
            Ok(Some(Ok(Err(error)))) => why = error,
            Ok(Some(Err(panic))) => why = panic.to_string(),
            Ok(None) | Err(_) => break,
        }
    }
    let (answered, voters) = (lacking.len(), voters.len());
    if answered >= majority { Ok(lacking) } else { Err(SealError::TooFew { answered, voters, why }) }
}

/// One of the few copies that go to a node at once.
struct CopySlot {
    copies: Arc<Semaphore>,
    /// It was there at once.
    permit: Option<OwnedSemaphorePermit>,
    /// A majority has the part.
    enough: CancellationToken,
}

impl CopySlot {
    fn of(copies: Arc<Semaphore>, enough: CancellationToken) -> CopySlot {
        let permit = Arc::clone(&copies).try_acquire_owned().ok();
        CopySlot { copies, permit, enough }
    }

    /// None once it is needed no more.
    async fn come(self) -> Option<OwnedSemaphorePermit> {
        match self.permit {
            Some(permit) => Some(permit),
            // Closed never: it lives as long as the context.
            None => self.enough.run_until_cancelled(self.copies.acquire_owned()).await?.ok(),
        }
    }
}

async fn take(context: Arc<NodeContext>, node: NodeId, turn: CopySlot, question: TakePart) -> Result<(), String> {
    let _one_of = turn.come().await.ok_or_else(|| "others were quicker".to_owned())?;
    let peer = context.replica.peer(node).ok_or_else(|| "it is no member".to_owned())?;
    let taken = peer_messages::ask(&peer, question, TAKE_WITHIN).await.map_err(|error| error.to_string()).flatten();
    if let Err(why) = &taken
        && context.parts.is_to_be_told(node)
    {
        tracing::warn!(%node, part = ?question.part, why, "a member does not take parts of audiences over");
    }
    taken
}
