//! TLS for clients: how a node answers at its admin API and its HTTP pages.
//!
//! The certificate is in memory only. The node issues it with its own copy of the authority's key: at its start, and
//! when half of its time is over. A certificate that is past or ahead of the node's clock is replaced at the next
//! connection, so neither expiry nor a wrong clock locks clients out for good.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server};

use super::TlsError;
use super::authority::{Authority, VALID_FOR};
use super::connection::serving_clients;

/// Difference between the issue and the clock from which on another certificate is issued.
const RENEW_AFTER: Duration = Duration::from_secs(VALID_FOR.as_secs() / 2);

/// TLS of one listener for clients. Clients have no certificates.
pub struct ServerTls {
    authority: Arc<Authority>,
    names: Vec<String>,
    protocol: Option<&'static str>,
    issued: Mutex<Issued>,
}

struct Issued {
    at: SystemTime,
    acceptor: TlsAcceptor,
}

impl ServerTls {
    /// Issues a certificate for these host names and IP addresses. `protocol` is the only one that clients may choose
    /// (ALPN); `None` does not answer such a choice.
    ///
    /// # Errors
    /// [`TlsError::Library`] if a name is not valid, or the system has no randomness.
    pub fn new(
        authority: Arc<Authority>,
        names: Vec<String>,
        protocol: Option<&'static str>,
    ) -> Result<ServerTls, TlsError> {
        let issued = Mutex::new(issue(&authority, &names, protocol, SystemTime::now())?);
        Ok(ServerTls { authority, names, protocol, issued })
    }

    /// Returns true for a host name or an IP address that a certificate can have.
    pub fn is_name(name: &str) -> bool {
        ServerName::try_from(name).is_ok()
    }

    /// Makes the handshake with a client. The caller limits the time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor(SystemTime::now()).accept(stream).await
    }

    /// Returns the acceptor with a certificate that is valid now. If none can be issued, the former one stays.
    pub(super) fn acceptor(&self, now: SystemTime) -> TlsAcceptor {
        let mut issued = self.issued.lock();
        let age = now.duration_since(issued.at).unwrap_or_else(|ahead| ahead.duration());
        if age > RENEW_AFTER {
            match issue(&self.authority, &self.names, self.protocol, now) {
                Ok(fresh) => *issued = fresh,
                Err(error) => tracing::warn!(%error, "the certificate for clients was not renewed"),
            }
        }
        issued.acceptor.clone()
    }
}

fn issue(
    authority: &Authority,
    names: &[String],
    protocol: Option<&'static str>,
    at: SystemTime,
) -> Result<Issued, TlsError> {
    let (certificate, key) = authority.issue_to_server(names, at)?;
    Ok(Issued { at, acceptor: serving_clients(authority, &certificate, &key, protocol)? })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::ClusterId;
    use crate::tls::{ClientTls, HandshakeError, ShownAuthority, fingerprint};

    fn authority() -> Arc<Authority> {
        Arc::new(Authority::create(ClusterId(7)).expect("an authority"))
    }

    fn server(authority: &Arc<Authority>) -> ServerTls {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).into();
        ServerTls::new(Arc::clone(authority), names, Some("h2")).expect("a certificate")
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
        let authority = authority();
        let (server, client) = (server(&authority), ClientTls::trusting(authority.certificate_pem()).expect("trust"));
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
        assert_eq!(server.issued.lock().at, now, "it was not replaced before half of its time");
    }

    #[tokio::test]
    async fn foreign_authority_wrong_name_and_plaintext_are_distinguished() {
        let (own, foreign) = (authority(), authority());
        let server = server(&own);
        let trusting = |authority: &Authority| ClientTls::trusting(authority.certificate_pem()).expect("trust");
        let now = SystemTime::now();
        assert_eq!(handshake(&server, now, &trusting(&own), "127.0.0.1").await, Ok(()));
        let failed = handshake(&server, now, &trusting(&foreign), "localhost").await;
        assert_eq!(failed, Err(HandshakeError::UnknownAuthority), "of the same cluster id");
        let failed = handshake(&server, now, &trusting(&own), "b.example.com").await;
        assert!(matches!(&failed, Err(HandshakeError::OtherName(names)) if names.contains("localhost")), "{failed:?}");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (mut plain, _) = listener.accept().await.expect("a connection");
        let answer = tokio::io::AsyncWriteExt::write_all(&mut plain, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let client = trusting(&own);
        let (failed, _) = tokio::join!(client.connect("localhost", stream), answer);
        assert_eq!(failed.map(|_| ()), Err(HandshakeError::NotTls));
    }

    #[tokio::test]
    async fn server_shows_its_authority() {
        let authority = authority();
        let server = server(&authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let accepting = async { server.accept(listener.accept().await.expect("a connection").0).await };
        let (shown, _) = tokio::join!(ShownAuthority::of("a.name.that.it.has.not", stream), accepting);
        let shown = shown.expect("a chain");
        assert_eq!(shown.fingerprint, fingerprint(authority.certificate_pem()).expect("a certificate"));
        assert_eq!(fingerprint(&shown.pem).expect("a certificate"), shown.fingerprint);
        assert_eq!(shown.fingerprint.len(), 64);
    }

    #[test]
    fn name_that_no_certificate_can_have_is_refused() {
        assert!(ServerTls::new(authority(), vec!["a b".to_owned()], None).is_err());
        assert!(!ServerTls::is_name("a b") && ServerTls::is_name("::1") && ServerTls::is_name("a.example.com"));
    }
}
