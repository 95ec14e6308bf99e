//! Asks nodes to describe themselves, for status and for the comparison of states.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::NodeId;
use tokio::task::JoinSet;

use super::context::NodeContext;
use super::peer_messages::{self, Describe, Description};

/// A node's description of itself, and the offset of its clock from this node's.
pub struct Described {
    /// The description.
    pub description: Description,
    /// Offset of the node's wall clock from this node's in milliseconds, as exact as half the time of the answer.
    pub clock_offset_ms: i64,
}

/// Asks all given nodes for their descriptions, concurrently, each for at most `within`. An answer with another node id
/// is ignored: another node has taken over the address.
pub async fn descriptions(
    context: &Arc<NodeContext>,
    nodes: impl Iterator<Item = NodeId>,
    within: Duration,
) -> BTreeMap<NodeId, Described> {
    let mut asked = JoinSet::new();
    for node in nodes {
        let context = Arc::clone(context);
        asked.spawn(async move {
            let begun = Instant::now();
            let description = peer_messages::ask(&context.replica.peer(node)?, Describe, within).await.ok()?;
            if description.node != node {
                tracing::warn!(member = %node, other = %description.node, "another node answers at a member's address");
                return None;
            }
            let half_ms = i64::try_from(begun.elapsed().as_millis() / 2).unwrap_or_default();
            let clock_offset_ms = description.wall.plus_ms(half_ms).since_ms(context.clock.wall());
            Some((node, Described { description, clock_offset_ms }))
        });
    }
    asked.join_all().await.into_iter().flatten().collect()
}
