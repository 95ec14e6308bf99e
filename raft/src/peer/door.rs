//! Where requests of peers arrive: who is let in, and who answers before Raft runs.
//!
//! The port is open as soon as the state is, so that nodes that start together can greet each other while each
//! waits out its promises. Until then whoever asks for more is told to come again.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use reveille_ledger::ids::{GROUP, NodeId};
use reveille_proto::peer::v1;

use super::dispatch::Dispatch;
use super::recall::Recall;
use super::{Handler, Rejection, Request, Response};
use crate::identity::{ClusterId, Identity};

/// Knows who belongs to the cluster, and who must not take part.
pub(crate) struct Doorman {
    pub identity: Arc<Identity>,
    pub recall: Arc<Recall>,
}

impl Doorman {
    /// Who speaks, if it is one of ours and means this node. A node without a cluster joins the one that
    /// calls it by its id: ids are drawn at random, so whoever knows it was told.
    pub fn admit(&self, request: &Request) -> Result<NodeId, Rejection> {
        let stranger = |text: String| Err(Rejection::Stranger(text));
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
                self.identity.join(theirs, false).map_err(|fault| Rejection::NotNow(fault.to_string()))?;
                tracing::info!(cluster = %theirs, "this node joins the cluster that calls it");
            }
        }
        if self.recall.is_outdated() {
            return Err(Rejection::NotNow("the data folder of this node is too old: it takes no part".to_owned()));
        }
        let from = NodeId(header.from);
        self.recall.meet(from, header.life.as_ref())?;
        Ok(from)
    }
}

/// What the transport hands requests to, from the first moment.
pub(crate) struct Door {
    pub doorman: Arc<Doorman>,
    /// Set once, when Raft runs.
    pub behind: OnceLock<Dispatch>,
}

#[async_trait]
impl Handler for Door {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        if let Some(dispatch) = self.behind.get() {
            return dispatch.handle(request).await;
        }
        let Request::Greet(_) = request else {
            return Err(Rejection::NotNow("this node is starting".to_owned()));
        };
        self.doorman.admit(&request)?;
        Ok(Response::Greet(v1::GreetResponse {}))
    }
}
