//! Brings parts of an audience onto the disks of a majority, from members that have them (P20).
//!
//! Called when this node has received a part, when a client asks if it must still send a part, and before a seal is
//! proposed. Calling it again continues an upload after a crash of any node: members fetch what another member has, and
//! the client sends only the parts that no member has.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::{Hash, NodeId};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::process::context::NodeContext;
use crate::process::peer_messages::{self, FindMissingParts, PullPart};

/// Maximum time in which a member answers which parts it has.
const HOLD_WITHIN: Duration = Duration::from_secs(5);
/// Time to wait for the other members after a majority has answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);
/// Maximum time in which a member fetches a part.
const TAKE_WITHIN: Duration = Duration::from_secs(30);

/// Time for which a node relies on the answer that a majority has an attachment.
const CONFIRMED_FOR: Duration = Duration::from_secs(3_600);

/// Reason why a majority does not have files that a seal or a content names, or is not known to have them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    /// Too few members have a file.
    #[error("file {file:?} is on {have} of {voters} members, which is no majority: {why}")]
    NoMajority {
        /// The file: a part of an audience, or an attachment.
        file: Hash,
        /// Members that have it.
        have: usize,
        /// Members that vote.
        voters: usize,
        /// Answer of one of the others.
        why: String,
    },
    /// Too few members answer.
    #[error("{answered} of {voters} members say which files they have, which is no majority: {why}")]
    TooFew {
        /// Members that answer.
        answered: usize,
        /// Members that vote.
        voters: usize,
        /// Answer of one of the others.
        why: String,
    },
}

/// Copies these parts between members until a majority has each of them synced, and keeps them for at least seven
/// hours. Returns the parts that no member has.
///
/// # Errors
/// Fails if a majority cannot be reached, or does not take a part.
pub async fn spread(context: &Arc<NodeContext>, parts: &[Hash]) -> Result<Vec<Hash>, SpreadError> {
    let voters = context.voters();
    let majority = voters.len() / 2 + 1;
    let missing_at = ask_all(context, &voters, majority, parts).await?;
    let mut missing = Vec::new();
    for part in parts {
        let (lack, have): (Vec<_>, Vec<_>) = missing_at.iter().partition(|(_, missing_at)| missing_at.contains(part));
        // Prefer this node: a part that it has just received is in its memory.
        let source = have.iter().map(|(node, _)| **node).min_by_key(|node| (*node != context.me.node, *node));
        let Some(source) = source else {
            missing.push(*part);
            continue;
        };
        let mut taking = JoinSet::new();
        for (node, _) in lack {
            taking.spawn(take(Arc::clone(context), *node, PullPart { part: *part, source }));
        }
        let (mut have, mut why) = (have.len(), "it does not answer".to_owned());
        while have < majority {
            match taking.join_next().await {
                Some(Ok(Ok(()))) => have += 1,
                Some(Ok(Err(error))) => why = error,
                Some(Err(panic)) => why = panic.to_string(),
                None => return Err(SpreadError::NoMajority { file: *part, have, voters: voters.len(), why }),
            }
        }
        // The others continue, and none waits for a slow one. Each member takes a few parts at a time. A part that has
        // not arrived by the seal is fetched after it.
        taking.detach_all();
    }
    Ok(missing)
}

/// A majority of these voters had a file then, by the monotonic clock of this node.
#[derive(Debug)]
pub(super) struct Confirmed {
    at: Duration,
    voters: Vec<NodeId>,
}

/// Like [`spread()`], for attachments, which many messages share. What the present voters confirmed less than
/// [`CONFIRMED_FOR`] ago is not asked for again, so a file is kept for at least six hours.
///
/// # Errors
/// The same errors as [`spread()`].
pub async fn spread_attachments(context: &Arc<NodeContext>, files: &[Hash]) -> Result<Vec<Hash>, SpreadError> {
    let (now, voters, known) = (context.clock.monotonic(), context.voters(), &context.files.confirmed);
    let is_valid = |confirmed: &Confirmed| confirmed.voters == voters && now < confirmed.at + CONFIRMED_FOR;
    let asked = files.iter().copied().filter(|file| !known.known(*file).is_some_and(|confirmed| is_valid(&confirmed)));
    let asked: Vec<Hash> = asked.collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let missing = spread(context, &asked).await?;
    for file in asked.into_iter().filter(|file| !missing.contains(file)) {
        known.remove(file);
        let Ok(_) = known.get(file, || Ok::<_, Infallible>((Confirmed { at: now, voters: voters.clone() }, 1)));
    }
    Ok(missing)
}

/// Returns which parts each answering member lacks. Fails if fewer than `majority` answer.
pub(super) async fn ask_all(
    context: &Arc<NodeContext>,
    voters: &[NodeId],
    majority: usize,
    parts: &[Hash],
) -> Result<BTreeMap<NodeId, BTreeSet<Hash>>, SpreadError> {
    let mut asking = JoinSet::new();
    for node in voters {
        let (context, node, parts) = (Arc::clone(context), *node, parts.to_vec());
        asking.spawn(async move {
            let peer = context.replica.peer(node).ok_or_else(|| "it is not a member".to_owned())?;
            let missing_at = peer_messages::ask(&peer, FindMissingParts(parts), HOLD_WITHIN)
                .await
                .map_err(|error| error.to_string())??;
            Ok::<_, String>((node, missing_at.into_iter().collect()))
        });
    }
    let (mut missing_at, mut why) = (BTreeMap::new(), "it does not answer".to_owned());
    loop {
        // Wait longer for this node, which may be busy with its disk: no other member reports what is missing here.
        let awaits_me = voters.contains(&context.me.node) && !missing_at.contains_key(&context.me.node);
        let limit = if missing_at.len() < majority || awaits_me { HOLD_WITHIN + OTHERS_WITHIN } else { OTHERS_WITHIN };
        match timeout(limit, asking.join_next()).await {
            Ok(Some(Ok(Ok((node, lacks))))) => drop(missing_at.insert(node, lacks)),
            Ok(Some(Ok(Err(error)))) => why = error,
            Ok(Some(Err(panic))) => why = panic.to_string(),
            Ok(None) | Err(_) => break,
        }
    }
    let (answered, voters) = (missing_at.len(), voters.len());
    if answered >= majority { Ok(missing_at) } else { Err(SpreadError::TooFew { answered, voters, why }) }
}

async fn take(context: Arc<NodeContext>, node: NodeId, request: PullPart) -> Result<(), String> {
    let peer = context.replica.peer(node).ok_or_else(|| "it is not a member".to_owned())?;
    peer_messages::ask(&peer, request, TAKE_WITHIN).await.map_err(|error| error.to_string()).flatten()
}
