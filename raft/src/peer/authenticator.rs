//! Checks the header of a peer request: cluster, group and addressed node.

use reveille_ledger::ids::{GROUP, NodeId};

use super::{Rejection, Request};
use crate::identity::{ClusterId, Identity};

/// Returns the sender of a request of this node's cluster that names this node. A node without a cluster joins the
/// cluster of the first caller that knows its id. Ids are random, so an operator must have given the id to that
/// cluster.
pub(super) fn authenticate(identity: &Identity, request: &Request) -> Result<NodeId, Rejection> {
    let unauthorized = |text: String| Err(Rejection::Unauthorized(text));
    let Some(header) = request.header() else {
        return Err(Rejection::Malformed("field header is missing".to_owned()));
    };
    let own = identity.node();
    if header.to != own.0 {
        return unauthorized(format!(
            "this is node {own}, not {}: the address belonged to it before",
            NodeId(header.to)
        ));
    }
    if header.group != GROUP {
        return unauthorized(format!("no group {} here", header.group));
    }
    let Ok(cluster) = <[u8; 16]>::try_from(header.cluster.as_ref()) else {
        return Err(Rejection::Malformed("field header.cluster has not 16 bytes".to_owned()));
    };
    let theirs = ClusterId(u128::from_be_bytes(cluster));
    match identity.cluster() {
        Some(ours) if ours == theirs => {}
        Some(ours) => return unauthorized(format!("node {own} belongs to cluster {ours}, not to {theirs}")),
        None => {
            identity.join(theirs, false).map_err(|fatal_error| Rejection::Unavailable(fatal_error.to_string()))?;
            tracing::info!(cluster = %theirs, "this node joins the cluster that calls it");
        }
    }
    Ok(NodeId(header.from))
}
