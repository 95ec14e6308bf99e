//! Keys and certificates of a member as they are now, and how they follow a rotation of the authority (P22).
//!
//! The folder is changed first, durably, then what connections use; a node that says that it trusts or uses an
//! authority does so after a crash too. Each change is one step forward: [`NodeTls::follow`] may be given a state that
//! is older than what the folder has followed already, as after a restart, and then changes nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rcgen::KeyPair;
use reveille_ledger::ids::{AuthorityId, NodeId, Time};
use reveille_ledger::{AuthorityState, RotationPhase};
use reveille_proto::peer::v1::JoinResponse;
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use super::authority::{Authority, KeyPin, NodeKey};
use super::connection::{PeerCertificate, PeerConfig, connect, has_issued};
use super::folder::TlsFolder;
use super::join_token::{JoinToken, TokenError};
use super::{TlsError, node_name};
use crate::identity::ClusterId;

/// An authority that this process has made is kept for this time, until the entry that names it is applied.
const PREPARED_FOR: Duration = Duration::from_secs(60);

/// Keys and certificates of a member. Cheap to clone; all clones change together.
#[derive(Clone)]
pub struct NodeTls(Arc<Shared>);

struct Shared {
    folder: TlsFolder,
    cluster: ClusterId,
    node: NodeId,
    key: NodeKey,
    key_pem: String,
    current: RwLock<Arc<Current>>,
    /// Held while the folder changes: when this process made the authority of a rotation that no entry names yet.
    prepared_at: Mutex<Option<Instant>>,
}

/// What connections use.
struct Current {
    /// Higher after each change.
    generation: u64,
    present: Arc<Authority>,
    next: Option<Arc<Authority>>,
    /// True if the node's certificate is one of `next`.
    uses_next: bool,
    certificate_pem: String,
    peer: PeerConfig,
}

impl Current {
    fn used(&self) -> &Arc<Authority> {
        self.next.as_ref().filter(|_| self.uses_next).unwrap_or(&self.present)
    }

    fn trusted(&self) -> impl Iterator<Item = &Arc<Authority>> {
        std::iter::once(&self.present).chain(&self.next)
    }
}

/// Which authorities a node trusts, and which has issued its certificate.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TrustReport {
    /// The authorities that it trusts.
    pub trusts: Vec<AuthorityId>,
    /// The authority of its certificate.
    pub uses: AuthorityId,
}

/// How far a node has followed a state of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It has done all.
    Done,
    /// This process has made an authority, and no entry names it yet.
    Prepared,
    /// It has to fetch this authority from another member, if the state is not an old one.
    Lacks(AuthorityId),
    /// It has to discard this authority, if the state is not an old one.
    Surplus(AuthorityId),
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
        NodeTls::store(folder, node, (authority, None), certificate_pem)
    }

    /// Stores what makes a node a member: the present authority, the one of a rotation, and its certificate.
    pub(super) fn store(
        folder: TlsFolder,
        node: NodeId,
        (present, next): (Authority, Option<Authority>),
        certificate_pem: String,
    ) -> Result<NodeTls, TlsError> {
        folder.store_present(&present)?;
        next.as_ref().map(|next| folder.store_next(next)).transpose()?;
        folder.store_certificate(&certificate_pem)?;
        NodeTls::of(folder, node, (present, next), certificate_pem)
    }

    /// Reads keys and certificates of a node. `None`: the folder has no certificate, so the node was not admitted to a
    /// cluster with an authority.
    ///
    /// # Errors
    /// [`TlsError`] if a file is missing or not valid.
    pub fn read(data_dir: &Path, cluster: ClusterId, node: NodeId) -> Result<Option<NodeTls>, TlsError> {
        let folder = TlsFolder::of(data_dir);
        let Some(certificate_pem) = folder.certificate()? else { return Ok(None) };
        let authorities = (folder.present(cluster)?, folder.next(cluster)?);
        NodeTls::of(folder, node, authorities, certificate_pem).map(Some)
    }

    fn of(
        folder: TlsFolder,
        node: NodeId,
        (present, next): (Authority, Option<Authority>),
        certificate_pem: String,
    ) -> Result<NodeTls, TlsError> {
        let pair = folder.node_key()?;
        let (key, key_pem) = (public_key(&pair)?, pair.serialize_pem());
        let uses_next = next.as_ref().map(|next| has_issued(next, &certificate_pem)).transpose()? == Some(true);
        let used = next.as_ref().filter(|_| uses_next).unwrap_or(&present);
        let peer = PeerConfig::new(&certificate_pem, &key_pem, used, std::iter::once(&present).chain(&next))?;
        let cluster = present.cluster();
        let (present, next) = (Arc::new(present), next.map(Arc::new));
        let current = Current { generation: 0, present, next, uses_next, certificate_pem, peer };
        let (current, prepared_at) = (RwLock::new(Arc::new(current)), Mutex::default());
        Ok(NodeTls(Arc::new(Shared { folder, cluster, node, key, key_pem, current, prepared_at })))
    }

    /// Returns the authority that every member trusts, which clients know.
    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.current().present)
    }

    /// Returns the hash of this node's public key.
    pub fn pin(&self) -> KeyPin {
        self.0.key.pin()
    }

    /// Returns the authorities of this node.
    pub fn report(&self) -> TrustReport {
        let current = self.current();
        let trusts = current.trusted().map(|authority| authority.id()).collect();
        TrustReport { trusts, uses: current.used().id() }
    }

    /// Returns an authority with its key, for another member.
    pub fn authority_file(&self, id: AuthorityId) -> Option<String> {
        let current = self.current();
        let mut trusted = current.trusted();
        trusted.find(|authority| authority.id() == id).map(|authority| authority.to_pem())
    }

    /// Makes the authority of a rotation, unless there is one. Returns the ids of the present and the next one. The
    /// caller proposes the entry that names it.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn prepare_next(&self) -> Result<(AuthorityId, AuthorityId), TlsError> {
        let mut prepared_at = self.0.prepared_at.lock();
        let current = self.current();
        let next = match &current.next {
            Some(next) => next.id(),
            None => {
                let next = current.present.successor()?;
                let id = next.id();
                self.0.folder.store_next(&next)?;
                self.put(&current, Arc::clone(&current.present), Some(Arc::new(next)), None)?;
                id
            }
        };
        *prepared_at = Some(Instant::now());
        Ok((current.present.id(), next))
    }

    /// Performs this node's part of an authority rotation. Ignores a state older than the last one that it followed.
    ///
    /// # Errors
    /// [`TlsError`]: the folder cannot be written.
    pub fn follow(&self, state: Option<&AuthorityState>) -> Result<Followed, TlsError> {
        let mut prepared_at = self.0.prepared_at.lock();
        let mut current = self.current();
        if let Some(state) = state.filter(|state| state.present != current.present.id()) {
            let Some(next) = current.next.clone().filter(|next| next.id() == state.present) else {
                return Ok(Followed::Lacks(state.present));
            };
            let certificate = self.certificate_of(&current, &next)?;
            self.0.folder.put_next_in_place()?;
            current = self.put(&current, next, None, certificate)?;
        }
        match (state.and_then(|state| state.rotation), current.next.clone()) {
            (None, None) => Ok(Followed::Done),
            (None, Some(_)) if prepared_at.is_some_and(|at| at.elapsed() < PREPARED_FOR) => Ok(Followed::Prepared),
            (None, Some(next)) => Ok(Followed::Surplus(next.id())),
            (Some(rotation), Some(next)) if next.id() == rotation.next => {
                *prepared_at = None;
                if rotation.phase == RotationPhase::Using && !current.uses_next {
                    let certificate = self.certificate_of(&current, &next)?;
                    self.put(&current, Arc::clone(&current.present), Some(next), certificate)?;
                }
                Ok(Followed::Done)
            }
            (Some(rotation), _) => Ok(Followed::Lacks(rotation.next)),
        }
    }

    /// Stores an authority of the ledger, as another member has sent it.
    ///
    /// # Errors
    /// [`TlsError`] if it is another authority, or cannot be stored.
    pub fn store_next(&self, id: AuthorityId, text: &str) -> Result<(), TlsError> {
        let _changing = self.0.prepared_at.lock();
        let next = Authority::from_pem(self.0.cluster, text)?;
        if next.id() != id {
            return Err(TlsError::Library("a member has sent another authority".to_owned()));
        }
        let current = self.current();
        if current.uses_next || current.trusted().any(|authority| authority.id() == id) {
            return Ok(());
        }
        self.0.folder.store_next(&next)?;
        self.put(&current, Arc::clone(&current.present), Some(Arc::new(next)), None).map(drop)
    }

    /// Removes the authority of a rotation that was aborted. Keeps it while it is being prepared or is already in use.
    ///
    /// # Errors
    /// [`TlsError`] if the folder cannot be written.
    pub fn discard_next(&self, id: AuthorityId) -> Result<(), TlsError> {
        let mut prepared_at = self.0.prepared_at.lock();
        let current = self.current();
        let is_prepared = prepared_at.is_some_and(|at| at.elapsed() < PREPARED_FOR);
        if is_prepared || current.uses_next || current.next.as_ref().is_none_or(|next| next.id() != id) {
            return Ok(());
        }
        *prepared_at = None;
        self.0.folder.remove_next()?;
        self.put(&current, Arc::clone(&current.present), None, None).map(drop)
    }

    /// Stores this node's certificate of `next`. `None`: it has it already.
    fn certificate_of(&self, current: &Current, next: &Authority) -> Result<Option<String>, TlsError> {
        if current.uses_next {
            return Ok(None);
        }
        let certificate = next.issue(self.0.node, &self.0.key)?;
        self.0.folder.store_certificate(&certificate)?;
        Ok(Some(certificate))
    }

    /// Replaces what connections use. `certificate`: a new one of `next`, or of `present` without one.
    fn put(
        &self,
        former: &Current,
        present: Arc<Authority>,
        next: Option<Arc<Authority>>,
        certificate: Option<String>,
    ) -> Result<Arc<Current>, TlsError> {
        let uses_next = next.is_some() && (certificate.is_some() || former.uses_next);
        let certificate_pem = certificate.unwrap_or_else(|| former.certificate_pem.clone());
        let used = next.as_ref().filter(|_| uses_next).unwrap_or(&present);
        let trusted = std::iter::once(&present).chain(&next).map(|authority| &**authority);
        let peer = PeerConfig::new(&certificate_pem, &self.0.key_pem, used, trusted)?;
        let generation = former.generation + 1;
        let current = Arc::new(Current { generation, present, next, uses_next, certificate_pem, peer });
        *self.0.current.write() = Arc::clone(&current);
        Ok(current)
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.0.current.read())
    }

    /// Checks a join token and the new node's public key (65 bytes). The token may have expired.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) fn check(&self, token: &str, key: &[u8]) -> Result<JoiningNode, TokenError> {
        let (token, current) = (token.parse::<JoinToken>()?, self.current());
        if !current.trusted().any(|authority| token.check(authority).is_ok()) {
            return Err(TokenError::Foreign);
        }
        let key = NodeKey::from_bytes(key.to_vec()).ok_or(TokenError::BadKey)?;
        Ok(JoiningNode { node: token.node, key, expires_at_s: token.expires_at_s })
    }

    /// Issues the certificate of an admitted node. `None`: this node has not yet the authority of the rotation, which
    /// the new node needs.
    ///
    /// # Errors
    /// [`TlsError::Library`] if the library refuses the key.
    pub(crate) fn issue_certificate(
        &self,
        joining: &JoiningNode,
        state: Option<&AuthorityState>,
    ) -> Result<Option<JoinResponse>, TlsError> {
        let current = self.current();
        let rotation = state.and_then(|state| state.rotation);
        if rotation.is_some_and(|rotation| current.trusted().all(|authority| authority.id() != rotation.next)) {
            return Ok(None);
        }
        Ok(Some(JoinResponse {
            certificate: current.used().issue(joining.node, &joining.key)?,
            authority: current.present.to_pem(),
            next_authority: current.next.as_ref().map(|next| next.to_pem()).unwrap_or_default(),
        }))
    }

    /// Makes a token that admits one node. `address` is the peer address of a member; the token is valid until
    /// `expires_at_s` (Unix time).
    pub fn join_token(&self, node: NodeId, address: &str, expires_at_s: u64) -> JoinToken {
        JoinToken::new(self.current().used(), node, address.to_owned(), expires_at_s)
    }

    /// Returns a secret for one purpose. Only members can compute it, and it changes with a rotation of the authority.
    pub(crate) fn derived_secret(&self, purpose: &str) -> [u8; 32] {
        self.current().used().derived_secret(purpose)
    }

    /// Returns the cluster.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.0.cluster
    }

    /// Returns a number that is higher after each change.
    pub fn generation(&self) -> u64 {
        self.current().generation
    }

    /// Returns true if the certificate is one of an authority that this node still trusts.
    pub(crate) fn trusts(&self, certificate: &PeerCertificate) -> bool {
        certificate.is_accepted_by(&*self.current().peer.verifier)
    }

    /// Makes the handshake with a caller. The caller limits the time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        let acceptor = self.current().peer.acceptor.clone();
        acceptor.accept(stream).await
    }

    /// Makes the handshake with `node`. The caller limits the time.
    pub(crate) async fn connect(&self, node: NodeId, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let connector = self.current().peer.connector.clone();
        connect(&connector, node_name(self.0.cluster, node), stream).await
    }

    /// Returns the hash of the public key of the called node.
    pub(crate) fn pin_of_called(stream: &client::TlsStream<TcpStream>) -> Option<KeyPin> {
        let (_, session) = stream.get_ref();
        KeyPin::of_certificate(session.peer_certificates()?.first()?)
    }
}

/// A node with a join token of this cluster.
pub(crate) struct JoiningNode {
    /// Its id, as the token says.
    pub node: NodeId,
    key: NodeKey,
    expires_at_s: u64,
}

impl JoiningNode {
    /// Returns true if the token is over at this time.
    pub fn is_expired(&self, now: Time) -> bool {
        now.unix_s() >= self.expires_at_s
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
