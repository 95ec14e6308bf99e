//! Seals a generated audience: every member writes its parts, and the seal is known when a majority has each of them on
//! disk (P20). The caller proposes the seal.
//!
//! Each member makes the parts itself from the recipe, so only hashes are transferred. Members that do not answer are
//! ignored if the others are a majority. They fetch the parts later (see `steward`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use reveille_ledger::ids::{Hash, NodeId};
use tokio::task::JoinSet;

use super::Recipe;
use crate::node::context::NodeContext;
use crate::node::peer_messages::{self, MakePart};

/// Maximum time in which a member writes one part: some megabytes must be made and synced.
const PART_WITHIN: Duration = Duration::from_secs(10);
/// Number of requests for a part to a member before the member is ignored.
const TRIES: u32 = 2;
/// Interval of progress reports.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Reason why an audience could not be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Too few members wrote a part.
    #[error("part {number} is on {wrote} of {voters} members, which is no majority: {why}")]
    NoMajority {
        /// Number of the part.
        number: u32,
        /// Number of members that have it.
        wrote: usize,
        /// Number of members that vote.
        voters: usize,
        /// Error of one of the other members.
        why: String,
    },
    /// Too few members have an uploaded part.
    #[error("part {part:?} is on {have} of {voters} members, which is no majority: {why}")]
    NotSpread {
        /// Hash of the part.
        part: Hash,
        /// Number of members that have it.
        have: usize,
        /// Number of members that vote.
        voters: usize,
        /// Error of one of the other members.
        why: String,
    },
    /// Too few members answered which parts they have.
    #[error("{answered} of {voters} members say which parts they have, which is no majority: {why}")]
    TooFew {
        /// Number of members that answered.
        answered: usize,
        /// Number of members that vote.
        voters: usize,
        /// Error of one of the other members.
        why: String,
    },
}

/// Makes the members write the parts. Returns their hashes after a majority has each of them. `tell` receives the
/// number of parts that the fastest majority has written.
pub async fn seal(
    context: &Arc<NodeContext>,
    recipe: &Recipe,
    mut tell: impl FnMut(u32),
) -> Result<Vec<Hash>, SealError> {
    let voters = context.voters();
    let majority = voters.len() / 2 + 1;
    let mut writing = JoinSet::new();
    let mut done: Vec<Arc<AtomicU32>> = Vec::new();
    for node in &voters {
        let progress = Arc::new(AtomicU32::new(0));
        done.push(Arc::clone(&progress));
        writing.spawn(write_all(Arc::clone(context), *node, recipe.clone(), progress));
    }
    let mut wrote: BTreeMap<(u32, Hash), usize> = BTreeMap::new();
    let mut why = "it has not answered".to_owned();
    let mut clock = tokio::time::interval(TELL_EVERY);
    loop {
        let ended = tokio::select! {
            ended = writing.join_next() => ended,
            _ = clock.tick() => {
                let mut counts: Vec<u32> = done.iter().map(|one| one.load(Ordering::Relaxed)).collect();
                counts.sort_unstable_by(|one, other| other.cmp(one));
                tell(counts.get(majority - 1).copied().unwrap_or_default());
                continue;
            }
        };
        match ended {
            None => break,
            Some(Ok((hashes, failed))) => {
                (0..).zip(hashes).for_each(|part| *wrote.entry(part).or_default() += 1);
                why = failed.unwrap_or(why);
            }
            Some(Err(panic)) => why = panic.to_string(),
        }
    }
    let part = |number: u32| {
        let of = wrote.range((number, Hash([0; 32]))..=(number, Hash([255; 32])));
        let (hash, count) =
            of.max_by_key(|(_, count)| **count).map_or((Hash([0; 32]), 0), |((_, hash), n)| (*hash, *n));
        let (wrote, voters, why) = (count, voters.len(), why.clone());
        if count >= majority { Ok(hash) } else { Err(SealError::NoMajority { number, wrote, voters, why }) }
    };
    (0..recipe.parts()).map(part).collect()
}

/// Requests each part from one member in turn. Ends early with the error if the member does not write one.
async fn write_all(
    context: Arc<NodeContext>,
    node: NodeId,
    recipe: Recipe,
    done: Arc<AtomicU32>,
) -> (Vec<Hash>, Option<String>) {
    let mut hashes = Vec::new();
    for number in 0..recipe.parts() {
        match write_one(&context, node, &recipe, number).await {
            Ok(hash) => hashes.push(hash),
            Err(why) => {
                tracing::warn!(%node, number, why, "a member does not write a part of an audience");
                return (hashes, Some(why));
            }
        }
        done.store(number + 1, Ordering::Relaxed);
    }
    (hashes, None)
}

async fn write_one(context: &NodeContext, node: NodeId, recipe: &Recipe, number: u32) -> Result<Hash, String> {
    let mut last = "it is no member".to_owned();
    for _ in 0..TRIES {
        let Some(peer) = context.replica.peer(node) else { break };
        let Recipe { seed, rows, columns } = recipe.clone();
        match peer_messages::ask(&peer, MakePart { seed, rows, columns, number }, PART_WITHIN).await {
            Ok(Ok(hash)) => return Ok(hash),
            // An error of the member's disk will not go away at once.
            Ok(Err(refusal)) => return Err(refusal),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}
