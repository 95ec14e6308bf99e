//! How an audience comes to be sealed: every member writes its parts, and when a majority has each of them on disk
//! the seal is known (P20). The caller proposes it.
//!
//! Each member makes the parts for itself from the recipe, so nothing but hashes travels. Members that do not answer
//! are done without, as long as the others are a majority; they fetch the parts later (see `steward`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use reveille_ledger::ids::{Hash, NodeId};
use tokio::task::JoinSet;

use super::Recipe;
use crate::node::context::NodeContext;
use crate::node::peer_messages::{self, MakePart};

/// How long one part may take a member: it is some megabytes to be made and synced.
const PART_WITHIN: Duration = Duration::from_secs(10);
/// How often a member is asked for a part before it is done without.
const TRIES: u32 = 2;
/// How often progress is reported.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Why an audience could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Too few members wrote a part.
    #[error("part {number} is on {wrote} of {voters} members, which is no majority: {why}")]
    NoMajority {
        /// The part.
        number: u32,
        /// Members that have it.
        wrote: usize,
        /// Members that vote.
        voters: usize,
        /// What one of the others said.
        why: String,
    },
    /// Too few members have an uploaded part.
    #[error("part {part:?} is on {have} of {voters} members, which is no majority: {why}")]
    NotSpread {
        /// The part.
        part: Hash,
        /// Members that have it.
        have: usize,
        /// Members that vote.
        voters: usize,
        /// What one of the others said.
        why: String,
    },
    /// Too few members can be asked.
    #[error("{answered} of {voters} members say which parts they have, which is no majority: {why}")]
    TooFew {
        /// Members that answer.
        answered: usize,
        /// Members that vote.
        voters: usize,
        /// What one of the others said.
        why: String,
    },
}

/// Has the members write the parts, and answers their hashes once a majority has each of them. `tell` hears how
/// many parts the quickest majority has.
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

/// Asks one member for each part in turn; ends early, and says why, where it does not write one.
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
            // What it says of its disk will not be otherwise in a moment.
            Ok(Err(refusal)) => return Err(refusal),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}
