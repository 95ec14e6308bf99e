//! Settings of TLS, and what a connection between peers proves about its other side.
//!
//! Only TLS 1.3, without tickets: a resumed session would not check the certificate again. At the peer port a caller
//! without a certificate gets a connection too, because a joining node has none yet; `peer/grpc.rs` lets it send
//! nothing but `Join`.

use std::io;
use std::sync::Arc;

use reveille_ledger::ids::{AuthorityId, NodeId};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme, WantsVerifier,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::authority::{Authority, KeyPin, id_of};
use super::pem::certificate;
use super::{TlsError, node_name};
use crate::identity::ClusterId;

/// How a member answers its peers, and calls them.
pub(super) struct PeerConfig {
    pub acceptor: TlsAcceptor,
    pub connector: TlsConnector,
    pub verifier: Arc<dyn ClientCertVerifier>,
}

impl PeerConfig {
    /// The node has a certificate of `used`, and trusts these authorities.
    pub fn new<'a>(
        certificate_pem: &str,
        key_pem: &str,
        used: &Authority,
        trusted: impl Iterator<Item = &'a Authority>,
    ) -> Result<PeerConfig, TlsError> {
        let roots = roots(trusted)?;
        let (own, key) = (certificate(certificate_pem)?, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?);
        let verifier = verifier(&roots)?;
        // The chain has the authority too: a joining node knows it by its id only.
        let chain = vec![own.clone(), certificate(used.certificate_pem())?];
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain, key.clone_key())?;
        let client = builder()?.with_root_certificates(roots).with_client_auth_cert(vec![own], key)?;
        Ok(PeerConfig { acceptor: answering(server, &["h2"]), connector: calling(client), verifier })
    }
}

fn roots<'a>(authorities: impl Iterator<Item = &'a Authority>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(certificate(authority.certificate_pem())?)?;
    }
    Ok(Arc::new(roots))
}

fn verifier(roots: &Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::Library(error.to_string()))
}

/// Returns true if this authority has issued a node's certificate.
pub(super) fn has_issued(authority: &Authority, certificate_pem: &str) -> Result<bool, TlsError> {
    let verifier = verifier(&roots(std::iter::once(authority))?)?;
    Ok(verifier.verify_client_cert(&certificate(certificate_pem)?, &[], UnixTime::now()).is_ok())
}

/// Returns true if a server's certificate is valid for `host` by these authorities alone.
pub(super) fn is_of(certificate: &CertificateDer<'_>, roots: RootCertStore, host: &str) -> bool {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let name = ServerName::try_from(host);
    verifier.ok().zip(name.ok()).is_some_and(|(verifier, name)| {
        verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).is_ok()
    })
}

/// Returns an acceptor for clients without certificates. They choose one of `protocols` (ALPN).
pub(super) fn serving_clients(
    authority: &Authority,
    certificate_pem: &str,
    key_pem: &str,
    protocols: &[&str],
) -> Result<TlsAcceptor, TlsError> {
    let mut chain = vec![certificate(certificate_pem)?];
    chain.extend(authority.chain()?);
    serving_chain(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?, protocols)
}

/// As [`serving_clients`], with a chain of any authority.
pub(super) fn serving_chain(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    protocols: &[&str],
) -> Result<TlsAcceptor, TlsError> {
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(answering(server, protocols))
}

/// Returns a connector of a node that has no certificate yet. It trusts this authority.
pub(super) fn joining_connector(authority: AuthorityId) -> Result<TlsConnector, TlsError> {
    verified_by(VerifyAuthority { id: Some(authority), provider: provider() })
}

/// Returns a connector that accepts any certificate, to see it.
pub(super) fn curious_connector() -> Result<TlsConnector, TlsError> {
    verified_by(any_server())
}

/// Returns a check that every server passes.
pub(super) fn any_server() -> VerifyAuthority {
    VerifyAuthority { id: None, provider: provider() }
}

fn verified_by(verifier: VerifyAuthority) -> Result<TlsConnector, TlsError> {
    let client = builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    Ok(calling(client))
}

pub(super) async fn connect(
    connector: &TlsConnector,
    name: String,
    stream: TcpStream,
) -> io::Result<client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    connector.connect(name, stream).await
}

pub(super) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?)
}

pub(super) fn calling(mut client: ClientConfig) -> TlsConnector {
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(client).into()
}

fn answering(mut server: ServerConfig, protocols: &[&str]) -> TlsAcceptor {
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(server).into()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificate of a caller, whose chain was checked at the handshake.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificate {
    certificate: CertificateDer<'static>,
    /// Hash of its public key.
    pub pin: KeyPin,
}

impl PeerCertificate {
    /// Returns the certificate of the other side; `None` if it sent none.
    pub fn of(stream: &server::TlsStream<TcpStream>) -> Option<PeerCertificate> {
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates()?.first()?.clone().into_owned();
        let pin = KeyPin::of_certificate(&certificate)?;
        Some(PeerCertificate { certificate, pin })
    }

    /// Returns true if this verifier accepts it still.
    pub fn is_accepted_by(&self, verifier: &dyn ClientCertVerifier) -> bool {
        verifier.verify_client_cert(&self.certificate, &[], UnixTime::now()).is_ok()
    }

    /// Returns true if it is the certificate of this node.
    pub fn names(&self, cluster: ClusterId, node: NodeId) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(&self.certificate) else { return false };
        ServerName::try_from(node_name(cluster, node)).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    }
}

/// Accepts a server whose chain contains this authority and is valid by it. Without an id it accepts any server.
#[derive(Debug)]
pub(super) struct VerifyAuthority {
    id: Option<AuthorityId>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for VerifyAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let Some(id) = self.id else { return Ok(ServerCertVerified::assertion()) };
        let authority = intermediates.iter().find(|one| id_of(one) == id).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|_| unknown())?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
