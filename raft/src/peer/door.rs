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
        match request {
            Request::Greet(_) => self.recall.judge(from, header.life.as_ref())?,
            _ => self.recall.meet(from, header.life.as_ref())?,
        }
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

#[cfg(test)]
mod tests {
    use reveille_ledger::Ledger;

    use super::*;
    use crate::applied::{Core, Place};
    use crate::fault::FaultCell;

    /// A copy of a folder and the folder that it had last count to the same life. Whom the one greeted, before another
    /// peer refused it, must take the other.
    #[test]
    fn who_greets_is_let_in_and_only_who_takes_part_is_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Arc::new(Identity::open(folder.path(), NodeId(1)).expect("a new folder"));
        let faults = FaultCell::new();
        let core = Arc::new(Core::new(Ledger::new(), Place::default(), false, faults.clone()));
        let recall = Arc::new(Recall::new(Arc::clone(&identity), core, faults, v1::Life::default()));
        let doorman = Doorman { identity, recall };
        let header = |draw| {
            let life = Some(v1::Life { incarnation: 2, draw, ..v1::Life::default() });
            Some(v1::Header { cluster: vec![7; 16].into(), from: 2, to: 1, group: GROUP, life })
        };
        let greets = |draw| doorman.admit(&Request::Greet(v1::GreetRequest { header: header(draw) }));
        let asks =
            |draw| doorman.admit(&Request::ReadIndex(v1::ReadIndexRequest { header: header(draw), remaining_ms: 0 }));
        assert_eq!(greets(20), Ok(NodeId(2)), "a copy");
        assert_eq!(greets(21), Ok(NodeId(2)), "what is put in its place");
        assert_eq!(asks(21), Ok(NodeId(2)));
        assert!(matches!(greets(20), Err(Rejection::Outdated(_))), "another process of a life that took part");
        assert!(matches!(asks(20), Err(Rejection::Outdated(_))));
    }
}
