//! Checks the header of a peer request: cluster, group and addressed node.

use reveille_ledger::ids::{GROUP, NodeId};

use super::{Rejection, Request};
use crate::identity::{ClusterId, Identity};

/// Returns the sender of a request that names this node and its cluster, and the cluster. A node without a cluster
/// accepts every cluster. Changes nothing.
pub(super) fn authenticate(identity: &Identity, request: &Request) -> Result<(NodeId, ClusterId), Rejection> {
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
        Some(ours) if ours != theirs => unauthorized(format!("node {own} belongs to cluster {ours}, not to {theirs}")),
        _ => Ok((NodeId(header.from), theirs)),
    }
}

/// Lets a node without a cluster join the cluster of the first accepted request. The caller knows the id of this node.
/// Ids are random, so an operator must have given the id to that cluster.
pub(super) fn join_cluster(identity: &Identity, cluster: ClusterId) -> Result<(), Rejection> {
    let joins = identity.cluster().is_none();
    // Another cluster may have been joined since the check.
    identity.join(cluster, false).map_err(|fatal_error| Rejection::Unavailable(fatal_error.to_string()))?;
    if joins {
        tracing::info!(%cluster, "this node joins the cluster that calls it");
    }
    Ok(())
}
