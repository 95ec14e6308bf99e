//! TLS for clients: how a node answers at its admin API and its HTTP pages.
//!
//! The certificate is one of the operator's files (`certificate_files.rs`), or in memory only. Then the node issues it
//! with its own copy of the authority's key: at its start, when half of its time is over, and when the authority was
//! rotated. A certificate that is past or ahead of the node's clock is replaced at the next connection, so neither
//! expiry nor a wrong clock locks clients out for good.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use reveille_ledger::ids::AuthorityId;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server};

use super::authority::{Authority, VALID_FOR};
use super::connection::serving_clients;
use super::{CertificateFiles, NodeTls, TlsError};

/// Difference between the issue and the clock from which on another certificate is issued.
const RENEW_AFTER: Duration = Duration::from_secs(VALID_FOR.as_secs() / 2);

/// TLS of one listener for clients. Clients have no certificates.
pub struct ServerTls {
    source: Source,
    protocols: &'static [&'static str],
    current: Mutex<Served>,
}

enum Source {
    /// The node issues a certificate with these names.
    Cluster(NodeTls, Vec<String>),
    /// The operator keeps it.
    Files(Arc<CertificateFiles>),
}

struct Served {
    acceptor: TlsAcceptor,
    by: ServedBy,
}

enum ServedBy {
    Authority { id: AuthorityId, at: SystemTime },
    Files { generation: u64 },
}

impl ServerTls {
    /// Issues a certificate for these host names and IP addresses. Clients choose one of `protocols` (ALPN); without
    /// any, such a choice is not answered.
    ///
    /// # Errors
    /// [`TlsError::Library`] if a name is not valid, or the system has no randomness.
    pub fn new(tls: NodeTls, names: Vec<String>, protocols: &'static [&'static str]) -> Result<ServerTls, TlsError> {
        let current = Mutex::new(issue(&tls.authority(), &names, protocols, SystemTime::now())?);
        Ok(ServerTls { source: Source::Cluster(tls, names), protocols, current })
    }

    /// Serves the certificate of these files. `protocols` as in [`ServerTls::new`].
    ///
    /// # Errors
    /// [`TlsError::Library`] if it cannot be used.
    pub fn of_files(files: Arc<CertificateFiles>, protocols: &'static [&'static str]) -> Result<ServerTls, TlsError> {
        let current = Mutex::new(read(&files, protocols)?);
        Ok(ServerTls { source: Source::Files(files), protocols, current })
    }

    /// Returns true for a host name or an IP address that a certificate can have.
    pub fn is_name(name: &str) -> bool {
        ServerName::try_from(name).is_ok()
    }

    /// Makes the handshake with a client. The caller limits the time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor(SystemTime::now()).accept(stream).await
    }

    /// Returns the acceptor with a certificate that is valid now. If there is none, the former one stays.
    pub(super) fn acceptor(&self, now: SystemTime) -> TlsAcceptor {
        let mut current = self.current.lock();
        match self.newer(&current.by, now) {
            Ok(None) => {}
            Ok(Some(newer)) => *current = newer,
            Err(error) => tracing::warn!(%error, "the certificate for clients was not renewed"),
        }
        current.acceptor.clone()
    }

    fn newer(&self, by: &ServedBy, now: SystemTime) -> Result<Option<Served>, TlsError> {
        match (&self.source, by) {
            (Source::Cluster(tls, names), ServedBy::Authority { id, at }) => {
                let (authority, age) =
                    (tls.authority(), now.duration_since(*at).unwrap_or_else(|ahead| ahead.duration()));
                let is_over = age > RENEW_AFTER || authority.id() != *id;
                is_over.then(|| issue(&authority, names, self.protocols, now)).transpose()
            }
            (Source::Files(files), ServedBy::Files { generation }) => {
                (files.generation() != *generation).then(|| read(files, self.protocols)).transpose()
            }
            (Source::Cluster(..), ServedBy::Files { .. }) | (Source::Files(_), ServedBy::Authority { .. }) => Ok(None),
        }
    }
}

fn issue(
    authority: &Authority,
    names: &[String],
    protocols: &'static [&'static str],
    at: SystemTime,
) -> Result<Served, TlsError> {
    let (certificate, key) = authority.issue_to_server(names, at)?;
    let acceptor = serving_clients(authority, &certificate, &key, protocols)?;
    Ok(Served { acceptor, by: ServedBy::Authority { id: authority.id(), at } })
}

fn read(files: &CertificateFiles, protocols: &'static [&'static str]) -> Result<Served, TlsError> {
    let (generation, acceptor) = files.acceptor(protocols)?;
    Ok(Served { acceptor, by: ServedBy::Files { generation } })
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::NodeId;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::ClusterId;
    use crate::tls::connection::serving_chain;
    use crate::tls::pem::certificate;
    use crate::tls::{ClientTls, HandshakeError, fetch_authority, fingerprint};

    fn node() -> NodeTls {
        let folder = tempfile::tempdir().expect("a folder");
        NodeTls::create(folder.path(), ClusterId(7), NodeId(1)).expect("an authority")
    }

    fn server(tls: &NodeTls) -> ServerTls {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).into();
        ServerTls::new(tls.clone(), names, &["h2"]).expect("a certificate")
    }

    fn trusting(tls: &NodeTls) -> ClientTls {
        ClientTls::trusting(tls.authority().certificate_pem()).expect("trust")
    }

    /// Makes one handshake at this time of the server's clock.
    async fn handshake(
        server: &ServerTls,
        now: SystemTime,
        client: &ClientTls,
        host: &str,
    ) -> Result<(), HandshakeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let accepting = async {
            let (accepted, _) = listener.accept().await.expect("a connection");
            let _ = server.acceptor(now).accept(accepted).await;
        };
        let (connected, ()) = tokio::join!(client.connect(host, stream), accepting);
        connected.map(|_| ())
    }

    #[tokio::test]
    async fn certificate_past_or_ahead_of_the_clock_is_replaced() {
        let tls = node();
        let (server, client) = (server(&tls), trusting(&tls));
        let now = SystemTime::now();
        for wrong in [now + 3 * VALID_FOR, now - 3 * VALID_FOR] {
            let failed = handshake(&server, wrong, &client, "localhost").await;
            assert_eq!(failed, Err(HandshakeError::Clock));
            assert_eq!(handshake(&server, now, &client, "localhost").await, Ok(()), "the clock is right again");
        }
        // Up to a year of difference between the clocks does not matter.
        for near in [now + VALID_FOR / 4, now - VALID_FOR / 4] {
            assert_eq!(handshake(&server, near, &client, "localhost").await, Ok(()));
        }
        let issued = |by: &ServedBy| matches!(by, ServedBy::Authority { at, .. } if *at == now);
        assert!(issued(&server.current.lock().by), "it was not replaced before half of its time");
    }

    #[tokio::test]
    async fn foreign_authority_wrong_name_and_plaintext_are_distinguished() {
        let (own, foreign) = (node(), node());
        let server = server(&own);
        let now = SystemTime::now();
        assert_eq!(handshake(&server, now, &trusting(&own), "127.0.0.1").await, Ok(()));
        let failed = handshake(&server, now, &trusting(&foreign), "localhost").await;
        assert_eq!(failed, Err(HandshakeError::UnknownAuthority), "of the same cluster id");
        let failed = handshake(&server, now, &trusting(&own), "b.example.com").await;
        assert!(
            matches!(&failed, Err(HandshakeError::OtherName(names)) if names.contains("localhost") && !names.contains('(')),
            "{failed:?}"
        );

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (mut plain, _) = listener.accept().await.expect("a connection");
        let answer = tokio::io::AsyncWriteExt::write_all(&mut plain, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let client = trusting(&own);
        let (failed, _) = tokio::join!(client.connect("localhost", stream), answer);
        assert_eq!(failed.map(|_| ()), Err(HandshakeError::NotTls));
    }

    /// The node would not start with such a certificate in its files, and a proxy might.
    #[tokio::test]
    async fn client_refuses_the_certificate_of_an_authority_as_a_servers_own() {
        let tls = node();
        let authority = tls.authority();
        let chain = vec![certificate(authority.certificate_pem()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(authority.to_pem().as_bytes()).expect("a key");
        let acceptor = serving_chain(chain, key, &["h2"]).expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let accepting = async {
            let (accepted, _) = listener.accept().await.expect("a connection");
            let _ = acceptor.accept(accepted).await;
        };
        let client = trusting(&tls);
        let (failed, ()) = tokio::join!(client.connect("localhost", stream), accepting);
        assert_eq!(failed.map(|_| ()), Err(HandshakeError::AuthorityAsOwn));
    }

    #[tokio::test]
    async fn server_shows_its_authority() {
        let tls = node();
        let server = server(&tls);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let accepting = async { server.accept(listener.accept().await.expect("a connection").0).await };
        let (shown, _) = tokio::join!(fetch_authority("a.name.that.it.has.not", stream), accepting);
        let shown = shown.expect("a chain");
        assert_eq!(shown.fingerprint, fingerprint(tls.authority().certificate_pem()).expect("a certificate"));
        assert_eq!(fingerprint(&shown.pem).expect("a certificate"), shown.fingerprint);
        assert_eq!(shown.fingerprint.len(), 64);
    }

    #[test]
    fn name_that_no_certificate_can_have_is_refused() {
        assert!(ServerTls::new(node(), vec!["a b".to_owned()], &[]).is_err());
        assert!(!ServerTls::is_name("a b") && ServerTls::is_name("::1") && ServerTls::is_name("a.example.com"));
    }
}
