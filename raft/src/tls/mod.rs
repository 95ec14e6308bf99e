//! Identity of nodes on the network: certificates of the cluster's own authority, TLS between peers and for clients.
//!
//! Each node has a key and a certificate for its name, which is made of node id and cluster id ([`node_name`]). Its
//! address is not in it. Both sides of a connection check chain and name of the other, and a request is accepted only
//! from the node that its certificate names. A member's key is also recorded in the membership: another key is refused,
//! even with a certificate of the authority.
//!
//! Every member holds the authority's key, so any member admits new nodes ([`JoinToken`]). Certificates between peers
//! do not expire: the trust ends with the membership, and a wrong clock or a long absence locks no member out.
//!
//! Files: `authority.rs` makes certificates, `folder.rs` stores them, `connection.rs` has the settings of TLS,
//! `node_tls.rs` is what a member uses now, and how it follows a rotation of the authority; `join_token.rs` admits
//! nodes, `joining.rs` is the joining node's side, `server.rs` and `client.rs` are the admin API's.

mod authority;
mod certificate_files;
mod client;
mod connection;
mod folder;
mod join_token;
mod joining;
mod node_tls;
mod pem;
#[cfg(test)]
mod rotation_tests;
mod server;
#[cfg(test)]
pub(crate) mod tests;

use reveille_ledger::ids::NodeId;

pub use authority::{Authority, KeyPin};
pub use certificate_files::CertificateFiles;
pub use client::{ClientTls, HandshakeError, ShownAuthority, fetch_authority, fingerprint};
pub(crate) use connection::PeerCertificate;
pub use join_token::{JoinToken, TokenError};
pub use joining::{AcceptedJoin, JoinError};
pub(crate) use node_tls::JoiningNode;
pub use node_tls::{Followed, NodeTls, TrustReport};
pub use pem::{TlsError, certificates, last_certificate};
pub use server::ServerTls;

use crate::identity::ClusterId;

/// Returns the name in a node's certificate.
pub(crate) fn node_name(cluster: ClusterId, node: NodeId) -> String {
    format!("n{:x}.{cluster}.reveille.internal", node.0)
}

/// A name in every node's certificate, for a joining node, which does not know the id of the node that it calls.
pub(crate) const ANY_NODE: &str = "node.reveille.internal";
