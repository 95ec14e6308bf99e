//! A network in memory whose links can be cut in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_raft::peer::{Destination, Handler, PeerError, Request, Response, Transport};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Changes a response on its way.
type Change = Arc<dyn Fn(Response) -> Response + Send + Sync>;

#[derive(Default)]
struct State {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    /// Nodes that are switched off: no other node receives what they send.
    off: BTreeSet<NodeId>,
    /// Links on which nothing arrives, requests or responses. Messages wait, as in TCP.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Requests of the first node that do not reach the second. They fail at once, as at a closed port.
    lost_requests: BTreeSet<(NodeId, NodeId, String)>,
    /// Requests of these nodes whose responses are lost.
    unheard: BTreeSet<(NodeId, String)>,
    /// Responses of these nodes that arrive changed.
    changed: BTreeMap<(NodeId, String), Change>,
    /// Number of requests sent to a node, including those that it did not receive.
    requests: BTreeMap<(NodeId, String), u64>,
}

/// The network, shared by all nodes' transports.
#[derive(Clone, Default)]
pub struct Network {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Network {
    pub fn address_of(node: NodeId) -> String {
        format!("memory-{node}")
    }

    pub fn transport(&self, node: NodeId) -> Arc<MemoryTransport> {
        Arc::new(MemoryTransport { network: self.clone(), node })
    }

    /// Cuts the link from the first node to the second.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.state.lock().cut.insert((from, to));
    }

    /// Cuts all links between this node and the others.
    pub fn isolate(&self, node: NodeId, others: impl IntoIterator<Item = NodeId>) {
        for other in others.into_iter().filter(|other| *other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Loses this request from the first node to the second; all others pass.
    pub fn lose_requests(&self, from: NodeId, to: NodeId, name: &str) {
        self.state.lock().lost_requests.insert((from, to, name.to_owned()));
    }

    /// Loses the responses to this request of this node, after the request was executed.
    pub fn lose_answers(&self, node: NodeId, name: &str) {
        self.state.lock().unheard.insert((node, name.to_owned()));
    }

    /// Replaces this node's responses to a request, as if it had answered from another state.
    pub fn change_answers(
        &self,
        node: NodeId,
        name: &str,
        change: impl Fn(Response) -> Response + Send + Sync + 'static,
    ) {
        self.state.lock().changed.insert((node, name.to_owned()), Arc::new(change));
    }

    /// Restores all links. Messages that waited arrive now.
    pub fn heal(&self) {
        {
            let mut state = self.state.lock();
            state.cut.clear();
            state.lost_requests.clear();
            state.unheard.clear();
            state.changed.clear();
        }
        self.changed.notify_waiters();
    }

    pub fn switch_off(&self, node: NodeId) {
        self.state.lock().off.insert(node);
        self.changed.notify_waiters();
    }

    pub fn switch_on(&self, node: NodeId) {
        self.state.lock().off.remove(&node);
    }

    /// Returns the number of these requests sent to a node, including those that it did not receive.
    pub fn requests(&self, node: NodeId, name: &str) -> u64 {
        self.state.lock().requests.get(&(node, name.to_owned())).copied().unwrap_or(0)
    }

    fn record(&self, to: NodeId, name: &str) {
        *self.state.lock().requests.entry((to, name.to_owned())).or_default() += 1;
    }

    /// Waits until the link is open. Returns false if one of the two nodes is off.
    async fn way(&self, from: NodeId, to: NodeId) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                if state.off.contains(&from) || state.off.contains(&to) {
                    return false;
                }
                if !state.cut.contains(&(from, to)) {
                    return true;
                }
            }
            changed.await;
        }
    }
}

pub struct MemoryTransport {
    network: Network,
    node: NodeId,
}

impl MemoryTransport {
    async fn carry(&self, to: &Destination, request: Request) -> Result<Response, PeerError> {
        let unreachable = || PeerError::Unreachable(format!("{to} does not run"));
        if !self.network.way(self.node, to.node).await {
            return Err(unreachable());
        }
        let name = request.name().to_owned();
        if self.network.state.lock().lost_requests.contains(&(self.node, to.node, name.clone())) {
            return Err(PeerError::Unreachable(format!("{to} cannot be asked")));
        }
        let handler = self.network.state.lock().handlers.get(&to.address).cloned().ok_or_else(unreachable)?;
        let answer = handler.handle(request).await;
        // The request was executed, but the response may still be lost.
        let unheard = self.network.state.lock().unheard.contains(&(self.node, name.clone()));
        if unheard || !self.network.way(to.node, self.node).await {
            return Err(PeerError::Lost(format!("{to} was not heard")));
        }
        let change = self.network.state.lock().changed.get(&(to.node, name)).cloned();
        let answer = answer?;
        Ok(match change {
            Some(change) => change(answer),
            None => answer,
        })
    }
}

#[async_trait]
impl Transport for MemoryTransport {
    async fn serve(&self, handler: Arc<dyn Handler>, stop: CancellationToken) -> io::Result<()> {
        let address = Network::address_of(self.node);
        self.network.state.lock().handlers.insert(address.clone(), handler);
        let network = self.network.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            network.state.lock().handlers.remove(&address);
        });
        Ok(())
    }

    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError> {
        self.network.record(to.node, request.name());
        let carried = tokio::time::timeout(limit, self.carry(to, request)).await;
        carried.unwrap_or_else(|_| Err(PeerError::Lost(format!("{to} does not answer"))))
    }
}
