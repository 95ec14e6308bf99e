//! Checks the header of a peer request: cluster, group and addressed node.

use std::sync::Arc;

use reveille_ledger::ids::{GROUP, NodeId};

use super::{Rejection, Request};
use crate::identity::{ClusterId, Identity};

/// Accepts requests of this node's cluster that name this node.
pub(crate) struct Authenticator {
    pub identity: Arc<Identity>,
}

impl Authenticator {
    /// Returns the sender of an accepted request. A node without a cluster joins the cluster of the first caller that
    /// knows its id. Ids are random, so an operator must have given the id to that cluster.
    pub fn authenticate(&self, request: &Request) -> Result<NodeId, Rejection> {
        let unauthorized = |text: String| Err(Rejection::Unauthorized(text));
        let Some(header) = request.header() else {
            return Err(Rejection::Malformed("field header is missing".to_owned()));
        };
        let own = self.identity.node();
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
        match self.identity.cluster() {
            Some(ours) if ours == theirs => {}
            Some(ours) => return unauthorized(format!("node {own} belongs to cluster {ours}, not to {theirs}")),
            None => {
                self.identity
                    .join(theirs, false)
                    .map_err(|fatal_error| Rejection::Unavailable(fatal_error.to_string()))?;
                tracing::info!(cluster = %theirs, "this node joins the cluster that calls it");
            }
        }
        Ok(NodeId(header.from))
    }
}
