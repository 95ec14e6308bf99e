//! TLS of clients of the admin API: which authority they trust, and why a handshake has failed.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client};

use super::TlsError;
use super::authority::id_of;
use super::connection::{builder, calling, connect, curious_connector, is_of};
use super::pem::{certificate, pem_of};

/// TLS of a client that trusts the authorities of a file. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    trusted: Arc<RootCertStore>,
    successor: Arc<Mutex<Option<String>>>,
}

impl ClientTls {
    /// Returns the TLS of a client that trusts the authorities with these certificates (PEM), and no other.
    ///
    /// # Errors
    /// [`TlsError::Library`] if there is no certificate.
    pub fn trusting(authorities_pem: &str) -> Result<ClientTls, TlsError> {
        let mut trusted = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities_pem.as_bytes()) {
            trusted.add(authority?)?;
        }
        if trusted.is_empty() {
            return Err(TlsError::Library("no certificate".to_owned()));
        }
        let trusted = Arc::new(trusted);
        let connector = calling(builder()?.with_root_certificates(Arc::clone(&trusted)).with_no_client_auth());
        Ok(ClientTls { connector, trusted, successor: Arc::default() })
    }

    /// Makes the handshake with the node at `host`, a host name or an IP address. The caller limits the time.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, HandshakeError> {
        let host = host.trim_matches(['[', ']']);
        let stream = connect(&self.connector, host.to_owned(), stream).await?;
        let (_, session) = stream.get_ref();
        if let Some(successor) = session.peer_certificates().and_then(|chain| self.successor_in(chain, host)) {
            *self.successor.lock() = Some(successor);
        }
        Ok(stream)
    }

    /// Returns the certificate of the authority that succeeds the only trusted one, if a node has shown it: the
    /// cluster's authority was rotated. The handshake was valid by the trusted one, so the node may name its successor.
    pub fn successor(&self) -> Option<String> {
        self.successor.lock().clone()
    }

    fn successor_in(&self, chain: &[CertificateDer<'_>], host: &str) -> Option<String> {
        let [own, .., last] = chain else { return None };
        let [trusted] = self.trusted.roots.as_slice() else { return None };
        let mut roots = RootCertStore::empty();
        roots.add(last.clone().into_owned()).ok()?;
        let shown = roots.roots.first()?;
        let succeeds =
            shown.subject == trusted.subject && shown.subject_public_key_info != trusted.subject_public_key_info;
        (succeeds && is_of(own, roots, host)).then(|| pem_of(last))
    }
}

/// The authority of a node, as the node shows it. The caller has not checked it yet.
pub struct ShownAuthority {
    /// The authority's certificate.
    pub pem: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

/// Makes a handshake that accepts any certificate, and ends it. Returns the authority that was shown. The caller limits
/// the time.
///
/// # Errors
/// [`HandshakeError`].
pub async fn fetch_authority(host: &str, stream: TcpStream) -> Result<ShownAuthority, HandshakeError> {
    let connector = curious_connector().map_err(|error| HandshakeError::Failed(error.to_string()))?;
    let stream = connect(&connector, host.trim_matches(['[', ']']).to_owned(), stream).await?;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(<[_]>::last);
    let shown = shown.ok_or_else(|| HandshakeError::Failed("the server showed no certificate".to_owned()))?;
    Ok(ShownAuthority { pem: pem_of(shown), fingerprint: id_of(shown).to_string() })
}

/// Returns the SHA-256 of a certificate (PEM), in hexadecimal digits, as `openssl x509 -fingerprint` computes it.
///
/// # Errors
/// [`TlsError::Library`] if it is not a certificate.
pub fn fingerprint(certificate_pem: &str) -> Result<String, TlsError> {
    Ok(id_of(&certificate(certificate_pem)?).to_string())
}

/// Reason why a client made no handshake with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server answers without TLS.
    #[error("it does not speak TLS")]
    NotTls,
    /// The certificate is of another authority.
    #[error("its certificate is not of this cluster's authority")]
    UnknownAuthority,
    /// The certificate is for other names.
    #[error("its certificate is for other names: {0}")]
    OtherName(String),
    /// The certificate is not valid at the time of this machine's clock.
    #[error("its certificate is not valid by this machine's clock")]
    Clock,
    /// The server shows the certificate of an authority as its own.
    #[error("its own certificate is an authority's (basicConstraints CA:TRUE)")]
    AuthorityAsOwn,
    /// Another reason.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
            NotValidYetContext, Other, UnknownIssuer,
        };
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidMessage(_)) => HandshakeError::NotTls,
            Some(Error::InvalidCertificate(UnknownIssuer | BadSignature)) => HandshakeError::UnknownAuthority,
            Some(Error::InvalidCertificate(NotValidForName)) => HandshakeError::OtherName(String::new()),
            Some(Error::InvalidCertificate(NotValidForNameContext { presented, .. })) => {
                let names: Vec<&str> = presented.iter().map(|name| plain_name(name)).collect();
                HandshakeError::OtherName(names.join(", "))
            }
            Some(Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            )) => HandshakeError::Clock,
            Some(Error::InvalidCertificate(Other(why))) if why.to_string().contains("CaUsedAsEndEntity") => {
                HandshakeError::AuthorityAsOwn
            }
            _ => HandshakeError::Failed(error.to_string()),
        }
    }
}

/// Returns the name in `DnsName("localhost")` or `IpAddress(::1)`, the forms in which rustls gives it.
fn plain_name(presented: &str) -> &str {
    let inner = presented.split_once('(').map_or(presented, |(_, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"')
}
