//! TLS of clients of the admin API: which authority they trust, and why a handshake has failed.

use std::io;

use rustls::{CertificateError, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client};

use super::TlsError;
use super::authority::fingerprint_of;
use super::connection::{builder, calling, certificate, connect, curious_connector, pem_of};

/// TLS of a client that trusts one authority. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls(TlsConnector);

impl ClientTls {
    /// Returns the TLS of a client that trusts the authority with this certificate (PEM), and no other.
    ///
    /// # Errors
    /// [`TlsError::Library`] if it is not a certificate.
    pub fn trusting(authority_pem: &str) -> Result<ClientTls, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority_pem)?)?;
        Ok(ClientTls(calling(builder()?.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Makes the handshake with the node at `host`, a host name or an IP address. The caller limits the time.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, HandshakeError> {
        Ok(connect(&self.0, host.trim_matches(['[', ']']).to_owned(), stream).await?)
    }
}

/// The authority of a node, as the node shows it. The caller has not checked it yet.
pub struct ShownAuthority {
    /// The authority's certificate.
    pub pem: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

impl ShownAuthority {
    /// Makes a handshake that accepts any certificate, and ends it. The caller limits the time.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub async fn of(host: &str, stream: TcpStream) -> Result<ShownAuthority, HandshakeError> {
        let connector = curious_connector().map_err(|error| HandshakeError::Failed(error.to_string()))?;
        let stream = connect(&connector, host.trim_matches(['[', ']']).to_owned(), stream).await?;
        let (_, session) = stream.get_ref();
        let shown = session.peer_certificates().and_then(<[_]>::last);
        let shown = shown.ok_or_else(|| HandshakeError::Failed("the server showed no certificate".to_owned()))?;
        Ok(ShownAuthority { pem: pem_of(shown), fingerprint: fingerprint_of(shown) })
    }
}

/// Returns the SHA-256 of a certificate (PEM), in hexadecimal digits, as `openssl x509 -fingerprint` computes it.
///
/// # Errors
/// [`TlsError::Library`] if it is not a certificate.
pub fn fingerprint(certificate_pem: &str) -> Result<String, TlsError> {
    Ok(fingerprint_of(&certificate(certificate_pem)?))
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
    /// Another reason.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
            NotValidYetContext, UnknownIssuer,
        };
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidMessage(_)) => HandshakeError::NotTls,
            Some(Error::InvalidCertificate(UnknownIssuer | BadSignature)) => HandshakeError::UnknownAuthority,
            Some(Error::InvalidCertificate(NotValidForName)) => HandshakeError::OtherName(String::new()),
            Some(Error::InvalidCertificate(NotValidForNameContext { presented, .. })) => {
                HandshakeError::OtherName(presented.join(", "))
            }
            Some(Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            )) => HandshakeError::Clock,
            _ => HandshakeError::Failed(error.to_string()),
        }
    }
}
