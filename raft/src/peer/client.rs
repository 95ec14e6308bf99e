//! Sends peer requests: [`PeerClient`] adds the header that names cluster, sender and addressee.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::GROUP;
use reveille_proto::peer::v1;

use super::{Destination, PeerError, Rejection, Rpc, Transport};
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::identity::Identity;

/// Sends any request to any peer, with this node as the sender.
#[derive(Clone)]
pub(crate) struct PeerClient {
    pub transport: Arc<dyn Transport>,
    pub identity: Arc<Identity>,
    pub fatal_errors: FatalErrorCell,
}

impl PeerClient {
    /// Sends a request and waits at most `limit` for the answer.
    pub async fn ask<R: Rpc>(&self, to: &Destination, request: R, limit: Duration) -> Result<R::Response, PeerError> {
        let cluster = self
            .identity
            .cluster()
            .ok_or_else(|| PeerError::Unreachable("this node does not belong to a cluster yet".to_owned()))?;
        let mut request = request.into_request();
        request.set_header(v1::Header {
            cluster: cluster.0.to_be_bytes().to_vec().into(),
            group: GROUP,
            from: self.identity.node().0,
            to: to.node.0,
        });
        let name = request.name().to_owned();
        let answer = self.transport.call(to, request, limit).await;
        if let Err(PeerError::Rejected(Rejection::Removed(why))) = &answer {
            self.stop_removed(why);
        }
        if answer.is_err() {
            metrics::counter!("reveille_peer_errors_total", "rpc" => name).increment(1);
        }
        R::from_response(answer?)
    }

    /// Stops this node for good: a member says that it was removed (P22).
    fn stop_removed(&self, why: &str) {
        if let Err(error) = self.identity.mark_removed(why) {
            tracing::error!(%error, "could not record that this node was removed: do not start it again");
        }
        self.fatal_errors.raise(FatalError::Removed(why.to_owned()));
    }
}
