//! Settings of TLS, and what a connection between peers proves about its other side.
//!
//! Only TLS 1.3, without tickets: a resumed session would not check the certificate again. At the peer port a caller
//! without a certificate gets a connection too, because a joining node has none yet; `peer/grpc.rs` lets it send nothing
//! but `Join`.

use std::io;
use std::sync::Arc;

use data_encoding::BASE64;
use reveille_ledger::ids::{Hash, NodeId};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme, WantsVerifier,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::authority::{Authority, KeyPin, pin_of};
use super::{NodeTls, TlsError, node_name};
use crate::identity::ClusterId;

/// TLS of one member: how it answers peers and calls them.
#[derive(Clone)]
pub(crate) struct PeerTls {
    pub cluster: ClusterId,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl PeerTls {
    pub fn new(tls: &NodeTls) -> Result<PeerTls, TlsError> {
        let authority = certificate(tls.authority.certificate_pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let roots = Arc::new(roots);
        let (own, key) = (certificate(&tls.certificate_pem)?, PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes())?);

        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| TlsError::Library(error.to_string()))?;
        // The chain has the authority too: a joining node knows it by its hash only.
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.clone(), authority], key.clone_key())?;
        let client = builder()?.with_root_certificates(roots).with_client_auth_cert(vec![own], key)?;
        let acceptor = answering(server, Some("h2"));
        Ok(PeerTls { cluster: tls.authority.cluster(), acceptor, connector: calling(client) })
    }

    /// Makes the handshake with a caller. The caller limits the time.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Makes the handshake with `node`. The caller limits the time.
    pub async fn connect(&self, node: NodeId, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        connect(&self.connector, node_name(self.cluster, node), stream).await
    }

    /// Returns the hash of the public key of the called node.
    pub fn pin_of_called(stream: &client::TlsStream<TcpStream>) -> Option<KeyPin> {
        let (_, session) = stream.get_ref();
        KeyPin::of_certificate(session.peer_certificates()?.first()?)
    }
}

/// Returns an acceptor for clients without certificates. `protocol` is the only one that they may choose (ALPN).
pub(super) fn serving_clients(
    authority: &Authority,
    certificate_pem: &str,
    key_pem: &str,
    protocol: Option<&str>,
) -> Result<TlsAcceptor, TlsError> {
    // The chain has the authority too: a new client asks its user about the authority's hash.
    let chain = vec![certificate(certificate_pem)?, certificate(authority.certificate_pem())?];
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?)?;
    Ok(answering(server, protocol))
}

/// Returns a connector of a node that has no certificate yet. It trusts the authority with this hash.
pub(super) fn joining_connector(authority: Hash) -> Result<TlsConnector, TlsError> {
    verified_by(VerifyAuthority { pin: Some(authority), provider: provider() })
}

/// Returns a connector that accepts any certificate, to see it.
pub(super) fn curious_connector() -> Result<TlsConnector, TlsError> {
    verified_by(VerifyAuthority { pin: None, provider: provider() })
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

fn answering(mut server: ServerConfig, protocol: Option<&str>) -> TlsAcceptor {
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = protocol.map(|protocol| protocol.as_bytes().to_vec()).into_iter().collect();
    Arc::new(server).into()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(super) fn certificate(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?)
}

/// Returns a certificate as PEM (RFC 7468).
pub(super) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in BASE64.encode(certificate).as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
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

    /// Returns true if it is the certificate of this node.
    pub fn names(&self, cluster: ClusterId, node: NodeId) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(&self.certificate) else { return false };
        ServerName::try_from(node_name(cluster, node)).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    }
}

/// Accepts a server whose chain contains the authority with this hash and is valid by it. Without a hash it accepts any
/// server.
#[derive(Debug)]
struct VerifyAuthority {
    pin: Option<Hash>,
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
        let Some(pin) = self.pin else { return Ok(ServerCertVerified::assertion()) };
        let authority = intermediates.iter().find(|one| pin_of(one) == pin).ok_or_else(unknown)?;
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
