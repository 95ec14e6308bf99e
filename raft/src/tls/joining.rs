//! The joining node's side: it proves the token to a member, and gets its certificate and the authority.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1::peer_service_client::PeerServiceClient;
use reveille_proto::peer::v1::{JoinRequest, JoinResponse};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::authority::Authority;
use super::client::HandshakeError;
use super::connection::{connect, joining_connector};
use super::folder::TlsFolder;
use super::node_tls::public_key;
use super::{ANY_NODE, JoinToken, NodeTls, TlsError};
use crate::peer::connect_error;

/// Limit of connection and handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Reason why a node was not admitted.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No member answered. The node may be admitted already: the same token may be used again.
    #[error("no answer from {address}: {cause}")]
    NoAnswer {
        /// Peer address in the token.
        address: String,
        /// Description of the failure.
        cause: String,
    },
    /// The cluster refuses the node.
    #[error("the cluster does not admit this node: {0}")]
    Refused(String),
    /// Keys or certificates cannot be made, read or written.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A node that was admitted. It is a member when [`AcceptedJoin::store`] has returned.
pub struct AcceptedJoin {
    folder: TlsFolder,
    node: NodeId,
    /// The present one, and that of a rotation.
    authorities: (Authority, Option<Authority>),
    certificate_pem: String,
}

impl AcceptedJoin {
    /// Asks the member that made the token to admit this node. Repeated with the same data folder and the same token,
    /// it has the same result.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn request(
        data_dir: &Path,
        token: &JoinToken,
        name: &str,
        address: &str,
        limit: Duration,
    ) -> Result<AcceptedJoin, JoinError> {
        let folder = TlsFolder::create(data_dir)?;
        let key = folder.node_key()?;
        let request = JoinRequest {
            header: None,
            token: token.to_string(),
            key: public_key(&key)?.into_bytes().into(),
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let answer = timeout(limit, PeerServiceClient::new(channel(token)?).join(request)).await;
        let no_answer = |cause: String| JoinError::NoAnswer { address: token.address.clone(), cause };
        let JoinResponse { certificate, authority, next_authority } = match answer {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) => {
                return Err(JoinError::Refused(status.message().to_owned()));
            }
            Ok(Err(status)) => return Err(no_answer(connect_error(&status))),
            Err(_) => return Err(no_answer(format!("nothing within {} s", limit.as_secs()))),
        };
        let read = |text: &str| Authority::from_pem(token.cluster, text);
        let next = (!next_authority.is_empty()).then(|| read(&next_authority)).transpose()?;
        let authorities = (read(&authority)?, next);
        let (present, next) = &authorities;
        if present.id() != token.authority && next.as_ref().is_none_or(|next| next.id() != token.authority) {
            return Err(JoinError::Refused("the answer is about another cluster".to_owned()));
        }
        Ok(AcceptedJoin { folder, node: token.node, authorities, certificate_pem: certificate })
    }

    /// Stores certificates and keys. The caller has stored the ids of node and cluster.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn store(self) -> Result<NodeTls, TlsError> {
        NodeTls::store(self.folder, self.node, self.authorities, self.certificate_pem)
    }
}

/// Returns a channel to the member in the token, whose certificate the authority in the token must have issued.
pub(super) fn channel(token: &JoinToken) -> Result<Channel, JoinError> {
    let (connector, address) = (joining_connector(token.authority)?, token.address.clone());
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| JoinError::NoAnswer { address: address.clone(), cause: error.to_string() })?;
    let connecting = tower::service_fn(move |_| {
        let (connector, address) = (connector.clone(), address.clone());
        async move {
            let stream = TcpStream::connect(&address).await?;
            let connected = connect(&connector, ANY_NODE.to_owned(), stream).await;
            connected.map(TokioIo::new).map_err(|error| io::Error::other(HandshakeError::from(error)))
        }
    });
    Ok(endpoint.connect_timeout(CONNECT_LIMIT).connect_with_connector_lazy(connecting))
}
