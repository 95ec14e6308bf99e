//! The folder `tls` in a node's data folder: key and certificate of the node, certificate and key of the authority.
//!
//! The node's key is written first, and a joining node that is interrupted uses it again. The node's certificate is
//! written last: a folder that has it is complete. All files are PEM, readable by their owner only. Neither the ledger
//! nor a snapshot contains a key.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1::JoinResponse;

use super::authority::{Authority, KeyPin, NodeKey};
use super::join_token::{JoinToken, TokenError};
use crate::files;
use crate::identity::ClusterId;

const FOLDER: &str = "tls";
const NODE_KEY: &str = "node.key";
const NODE_CERTIFICATE: &str = "node.crt";
const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY_CERTIFICATE: &str = "ca.crt";

/// Reason why keys or certificates cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or folder cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system. It is not a `source`, because the message contains it already.
        error: io::Error,
    },
    /// A key or a certificate is not valid.
    #[error("a key or certificate is not valid: {0}")]
    Library(String),
}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> TlsError {
        TlsError::Library(error.to_string())
    }
}

impl From<rustls::pki_types::pem::Error> for TlsError {
    fn from(error: rustls::pki_types::pem::Error) -> TlsError {
        TlsError::Library(error.to_string())
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        TlsError::Library(error.to_string())
    }
}

/// Keys and certificates of a member. Cheap to clone.
#[derive(Clone)]
pub struct NodeTls {
    pub(super) authority: Arc<Authority>,
    pub(super) certificate_pem: Arc<str>,
    pub(super) key_pem: Arc<str>,
    pin: KeyPin,
}

impl NodeTls {
    /// Makes the authority of a new cluster, and key and certificate of its first node.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn create(data_dir: &Path, cluster: ClusterId, node: NodeId) -> Result<NodeTls, TlsError> {
        let folder = TlsFolder::create(data_dir)?;
        let authority = Authority::create(cluster)?;
        let key = folder.node_key()?;
        let certificate_pem = authority.issue(node, &public_key(&key)?)?;
        folder.store(&authority, &certificate_pem)?;
        NodeTls::new(authority, certificate_pem, &key)
    }

    /// Reads keys and certificates of a node. `None`: the folder has no certificate, so the node was not admitted to a
    /// cluster with an authority.
    ///
    /// # Errors
    /// [`TlsError`] if a file is missing or not valid.
    pub fn read(data_dir: &Path, cluster: ClusterId) -> Result<Option<NodeTls>, TlsError> {
        let folder = TlsFolder(data_dir.join(FOLDER));
        let Some(certificate_pem) = folder.read(NODE_CERTIFICATE)? else { return Ok(None) };
        let required = |name| folder.read(name)?.ok_or_else(|| folder.failed(name, ErrorKind::NotFound.into()));
        let authority = Authority::from_pem(cluster, required(AUTHORITY_CERTIFICATE)?, &required(AUTHORITY_KEY)?)?;
        let key = KeyPair::from_pem(&required(NODE_KEY)?)?;
        NodeTls::new(authority, certificate_pem, &key).map(Some)
    }

    pub(super) fn new(authority: Authority, certificate_pem: String, key: &KeyPair) -> Result<NodeTls, TlsError> {
        let pin = public_key(key)?.pin();
        let (certificate_pem, key_pem) = (certificate_pem.into(), key.serialize_pem().into());
        Ok(NodeTls { authority: Arc::new(authority), certificate_pem, key_pem, pin })
    }

    /// Returns the cluster's authority.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// Returns the hash of this node's public key.
    pub fn pin(&self) -> KeyPin {
        self.pin
    }

    /// Checks a join token and the new node's public key (65 bytes). The token may have expired.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) fn check(&self, token: &str, key: &[u8]) -> Result<AdmittedNode, TokenError> {
        let token: JoinToken = token.parse()?;
        token.check(&self.authority)?;
        let key = NodeKey::from_bytes(key.to_vec()).ok_or(TokenError::BadKey)?;
        Ok(AdmittedNode { node: token.node, key, expires_at_s: token.expires_at_s })
    }

    /// Issues the certificate of an admitted node.
    ///
    /// # Errors
    /// [`TlsError::Library`] if the library refuses the key.
    pub(crate) fn admit(&self, admitted: &AdmittedNode) -> Result<JoinResponse, TlsError> {
        Ok(JoinResponse {
            certificate: self.authority.issue(admitted.node, &admitted.key)?,
            authority: self.authority.certificate_pem().to_owned(),
            authority_key: self.authority.key_pem(),
        })
    }

    /// Makes a token that admits one node. `address` is the peer address of a member; the token is valid until
    /// `expires_at_s` (Unix time).
    pub fn join_token(&self, node: NodeId, address: &str, expires_at_s: u64) -> JoinToken {
        JoinToken::new(&self.authority, node, address.to_owned(), expires_at_s)
    }
}

/// A node with a join token of this cluster.
pub(crate) struct AdmittedNode {
    /// Its id, as the token says.
    pub node: NodeId,
    key: NodeKey,
    expires_at_s: u64,
}

impl AdmittedNode {
    /// Returns true if the token is over at this Unix time.
    pub fn is_expired(&self, now_s: u64) -> bool {
        now_s >= self.expires_at_s
    }

    /// Returns the hash of its public key.
    pub fn pin(&self) -> KeyPin {
        self.key.pin()
    }
}

/// Returns the public key of a pair.
pub(super) fn public_key(pair: &KeyPair) -> Result<NodeKey, TlsError> {
    NodeKey::from_bytes(pair.public_key_raw().to_vec())
        .ok_or_else(|| TlsError::Library("the node's key is not of the curve P-256".to_owned()))
}

/// The folder `tls`.
pub(super) struct TlsFolder(PathBuf);

impl TlsFolder {
    /// Creates the folder, if it does not exist.
    pub fn create(data_dir: &Path) -> Result<TlsFolder, TlsError> {
        let folder = TlsFolder(data_dir.join(FOLDER));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder.0);
        // The key must survive a power cut: without it the node could not repeat its request.
        let synced = made.and_then(|()| File::open(data_dir)?.sync_all());
        synced.map_err(|error| TlsError::File { path: folder.0.clone(), error })?;
        Ok(folder)
    }

    /// Returns the node's key. Makes and stores it, if there is none.
    pub fn node_key(&self) -> Result<KeyPair, TlsError> {
        if let Some(pem) = self.read(NODE_KEY)? {
            return Ok(KeyPair::from_pem(&pem)?);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        self.write(NODE_KEY, &key.serialize_pem())?;
        Ok(key)
    }

    /// Stores everything but the node's key.
    pub fn store(&self, authority: &Authority, certificate_pem: &str) -> Result<(), TlsError> {
        self.write(AUTHORITY_KEY, &authority.key_pem())?;
        self.write(AUTHORITY_CERTIFICATE, authority.certificate_pem())?;
        self.write(NODE_CERTIFICATE, certificate_pem)
    }

    fn read(&self, name: &str) -> Result<Option<String>, TlsError> {
        match std::fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TlsError> {
        let replaced = files::replace(&self.0, name, text.as_bytes(), files::PRIVATE);
        replaced.map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, error: io::Error) -> TlsError {
        TlsError::File { path: self.0.join(name), error }
    }
}
