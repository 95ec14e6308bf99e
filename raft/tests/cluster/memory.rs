//! A network in memory whose links can be cut in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_raft::peer::{Destination, Handler, PeerError, Rejection, Request, Response, Transport};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct State {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    /// Links on which requests and responses do not arrive.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Links on which requests do not arrive.
    deaf: BTreeSet<(NodeId, NodeId)>,
}

/// The network, shared by all nodes' transports.
#[derive(Clone, Default)]
pub struct MemoryNetwork {
    state: Arc<Mutex<State>>,
}

impl MemoryNetwork {
    pub fn address_of(node: NodeId) -> String {
        format!("memory-{node}")
    }

    pub fn transport(&self, node: NodeId) -> Arc<MemoryTransport> {
        Arc::new(MemoryTransport { network: self.clone(), node })
    }

    /// Cuts all links between this node and the others.
    pub fn isolate(&self, node: NodeId, others: impl IntoIterator<Item = NodeId>) {
        let mut state = self.state.lock();
        for other in others.into_iter().filter(|other| *other != node) {
            state.cut.extend([(node, other), (other, node)]);
        }
    }

    /// Loses the requests from each first node to the second one. Responses still arrive.
    pub fn lose_requests(&self, links: &[(NodeId, NodeId)]) {
        self.state.lock().deaf.extend(links);
    }

    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        state.deaf.clear();
    }

    fn is_deaf(&self, from: NodeId, to: NodeId) -> bool {
        self.state.lock().deaf.contains(&(from, to))
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.state.lock().cut.contains(&(from, to))
    }
}

pub struct MemoryTransport {
    network: MemoryNetwork,
    node: NodeId,
}

#[async_trait]
impl Transport for MemoryTransport {
    async fn serve(&self, handler: Arc<dyn Handler>, stop: CancellationToken) -> io::Result<()> {
        let address = MemoryNetwork::address_of(self.node);
        self.network.state.lock().handlers.insert(address.clone(), handler);
        let network = self.network.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            network.state.lock().handlers.remove(&address);
        });
        Ok(())
    }

    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError> {
        let lost = || PeerError::Lost("the link is cut".to_owned());
        let handler = self.network.state.lock().handlers.get(&to.address).cloned();
        let Some(handler) = handler else { return Err(PeerError::Unreachable(format!("{to} does not run"))) };
        if self.network.is_cut(self.node, to.node) || self.network.is_deaf(self.node, to.node) {
            tokio::time::sleep(limit).await;
            return Err(lost());
        }
        let answer: Result<Response, Rejection> =
            tokio::time::timeout(limit, handler.handle(request)).await.map_err(|_| lost())?;
        // If the response's link was cut meanwhile, the request was executed and its response is lost.
        if self.network.is_cut(to.node, self.node) {
            return Err(lost());
        }
        Ok(answer?)
    }
}
