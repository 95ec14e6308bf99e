//! Leadership goes where an operator wants it, asked from any node.

use std::sync::Arc;
use std::time::Instant;

use reveille_ledger::ids::NodeId;

use crate::barrier::leader;
use crate::site::Site;

/// Why leadership did not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// Nobody leads.
    #[error("no leader is known")]
    NoLeader,
    /// The leader does not do it.
    #[error("{0}")]
    Refused(String),
}

/// Has the leader hand over to `to`; done at once when it leads already.
pub async fn to(site: &Arc<Site>, to: NodeId, deadline: Instant) -> Result<(), HandoverError> {
    let current = leader(site).ok_or(HandoverError::NoLeader)?;
    if current == to {
        return Ok(());
    }
    let peer = site.replica.peer(current).ok_or(HandoverError::NoLeader)?;
    let answer = peer.hand_over(to, deadline.saturating_duration_since(Instant::now())).await;
    answer.map_err(|hiccup| HandoverError::Refused(hiccup.to_string()))?.map_err(HandoverError::Refused)
}
