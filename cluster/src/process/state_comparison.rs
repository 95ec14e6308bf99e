//! Compares this replica's state with those of the other voters (P2, I11).
//!
//! Replicas hash their states at common indexes, and when nothing is applied. A node whose hash differs from that of a
//! majority has a state that no majority agreed on: by a bug, damaged memory, or a disk that lies. It stops before it
//! sends or grants anything more. Without such a majority all nodes go on, and those that see the difference report it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::Hash;
use tokio_util::sync::CancellationToken;

use super::context::NodeContext;
use super::descriptions::descriptions;

/// Interval of comparisons. The newest hashes of each node cover several intervals.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// Time without an applied entry after which the state is hashed, besides the common indexes.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// Limit of one node's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Hashes of one replica, by index.
type Checkpoints = BTreeMap<u64, Hash>;

/// Hashes and compares until this node has to stop, or until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    tokio::select! {
        () = compare(&context) => {}
        () = hash_when_quiet(&context) => {}
        () = stop.cancelled() => {}
    }
}

/// Hashes the state whenever no entry was applied for an interval.
async fn hash_when_quiet(context: &NodeContext) {
    let mut seen = 0;
    loop {
        seen = context.replica.take_checkpoint_when_quiet(seen);
        tokio::time::sleep(QUIET_FOR).await;
    }
}

/// Compares until this node has to stop.
async fn compare(context: &Arc<NodeContext>) {
    let mut differed = false;
    loop {
        tokio::time::sleep(COMPARE_EVERY).await;
        let voters = context.voters();
        let own = context.replica.checkpoints();
        if own.is_empty() || !voters.contains(&context.me.node) {
            continue;
        }
        let others = voters.iter().copied().filter(|node| *node != context.me.node);
        let described = descriptions(context, others, ANSWER_WITHIN).await;
        let others: Vec<Checkpoints> = described.into_values().map(|one| one.description.checkpoints).collect();
        differed = report_difference(differs(&own, &others), differed);
        if let Some(index) = differs_from_majority(&own, &others, voters.len()) {
            context.replica.stop_diverged(index);
            return;
        }
    }
}

/// Reports if this node and another voter differ: in the log when that begins, and as a gauge. Returns if they do.
fn report_difference(differs: Option<u64>, differed: bool) -> bool {
    if let Some(index) = differs
        && !differed
    {
        tracing::error!(
            index,
            "the state of this node and that of another voter differ at one log index: pause what sends, keep all \
             data folders, and report it"
        );
    }
    metrics::gauge!("reveille_state_differs").set(f64::from(u8::from(differs.is_some())));
    differs.is_some()
}

/// Returns the first index at which another voter has another hash than this node.
fn differs(own: &Checkpoints, others: &[Checkpoints]) -> Option<u64> {
    let differs = |(index, own): &(&u64, &Hash)| others.iter().any(|o| o.get(index).is_some_and(|hash| hash != *own));
    own.iter().find(differs).map(|(index, _)| *index)
}

/// Returns the first index at which a majority of the voters has one hash, and this node another one.
fn differs_from_majority(own: &Checkpoints, others: &[Checkpoints], voters: usize) -> Option<u64> {
    let is_outvoted = |(index, own): &(&u64, &Hash)| {
        let mut votes: BTreeMap<&Hash, usize> = BTreeMap::new();
        for hash in others.iter().filter_map(|other| other.get(index)).filter(|hash| hash != own) {
            *votes.entry(hash).or_default() += 1;
        }
        votes.into_values().any(|votes| votes > voters / 2)
    };
    own.iter().find(is_outvoted).map(|(index, _)| *index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoints<const N: usize>(hashes: [(u64, u8); N]) -> Checkpoints {
        hashes.into_iter().map(|(index, hash)| (index, Hash([hash; 32]))).collect()
    }

    #[test]
    fn only_node_against_majority_is_outvoted() {
        let own = checkpoints([(1, 1), (2, 2), (3, 3)]);
        let same = checkpoints([(1, 1), (2, 2)]);
        let other = checkpoints([(2, 9), (3, 9), (4, 9)]);
        let third = checkpoints([(2, 8), (3, 9)]);
        assert_eq!(differs_from_majority(&own, &[same, other.clone()], 3), None, "one of three differs");
        assert_eq!(differs_from_majority(&own, &[other.clone(), third], 3), Some(3), "two agree at index 3 only");
        assert_eq!(differs_from_majority(&own, &[other], 2), None, "one of two is no majority");
    }

    /// The third voter is down, or has yet another hash: no majority says which of the two is wrong.
    #[test]
    fn difference_without_majority_is_reported() {
        let own = checkpoints([(1, 1), (2, 2)]);
        let same = checkpoints([(1, 1), (2, 2), (3, 3)]);
        let other = checkpoints([(2, 9), (3, 9)]);
        for others in [vec![other.clone()], vec![other.clone(), same.clone()], vec![other, checkpoints([(2, 8)])]] {
            assert_eq!(differs_from_majority(&own, &others, 3), None);
            assert_eq!(differs(&own, &others), Some(2));
        }
        assert_eq!(differs(&own, &[same, Checkpoints::new()]), None);
    }
}
