//! Which requests of peers are let in.

use std::sync::Arc;

use reveille_ledger::ids::{GROUP, NodeId};

use super::{Rejection, Request};
use crate::identity::{ClusterId, Identity};

/// Knows which callers belong to the cluster.
pub(crate) struct Authenticator {
    pub identity: Arc<Identity>,
}

impl Authenticator {
    /// Who speaks, if it is one of ours and means this node. A node without a cluster joins the one that
    /// calls it by its id: ids are drawn at random, so whoever knows it was told.
    pub fn authenticate(&self, request: &Request) -> Result<NodeId, Rejection> {
        let stranger = |text: String| Err(Rejection::Unauthorized(text));
        let Some(header) = request.header() else {
            return Err(Rejection::Malformed("field header is missing".to_owned()));
        };
        let own = self.identity.node();
        if header.to != own.0 {
            return stranger(format!("this is node {own}, not {}: its address was another's", NodeId(header.to)));
        }
        if header.group != GROUP {
            return stranger(format!("no group {} here", header.group));
        }
        let Ok(cluster) = <[u8; 16]>::try_from(header.cluster.as_ref()) else {
            return Err(Rejection::Malformed("field header.cluster has not 16 bytes".to_owned()));
        };
        let theirs = ClusterId(u128::from_be_bytes(cluster));
        match self.identity.cluster() {
            Some(ours) if ours == theirs => {}
            Some(ours) => return stranger(format!("node {own} belongs to cluster {ours}, not to {theirs}")),
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
