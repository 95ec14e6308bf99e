//! TLS to a relay: the handshake, and which certificates are trusted.
//!
//! The opening calls it once for each session. The returned stream is encrypted to a peer whose certificate chains to
//! the configured roots and is for the configured name. There is no option to trust less. The crypto provider is named
//! here, so that no other part of the process can change it. The stream, and with it the gate, is above TLS (P5).
//!
//! The roots are read when the first session opens, and again after each failed handshake. So a corrected CA file needs
//! no restart. [`super::tls_errors`] describes what is wrong with a certificate.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use x509_cert::{Certificate, der::Decode};

use super::probe_report::Encryption;
use super::stream::ByteStream;
use super::tls_errors;
use crate::process::system_roots::system_roots;
use crate::smtp::cause::{Cause, Fix, SetupProblem};
use reveille_ledger::access::Trust;

/// Encrypts connections to one relay. The relay's sessions share it, so that they can resume TLS sessions.
#[derive(Debug)]
pub(crate) struct Encryptor {
    trust: Trust,
    name: ServerName<'static>,
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Encryptor {
    /// Returns an encryptor. The certificate must be for the name in `trust`, or else for `host`. `None` if that name
    /// is neither a name nor an address.
    pub fn new(host: &str, trust: &Trust) -> Option<Encryptor> {
        let name = trust.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).ok()?;
        Some(Encryptor { trust: trust.clone(), name, config: Mutex::new(None) })
    }

    /// Makes the handshake. The caller limits the time and may drop the future, which closes the connection.
    ///
    /// # Errors
    /// [`Cause::Tls`], with the problem and the next step.
    pub async fn encrypt(&self, plain: Box<dyn ByteStream>) -> Result<(Box<dyn ByteStream>, Encryption), Cause> {
        let config = self.config().await.map_err(Cause::Tls)?;
        let stream = TlsConnector::from(config).connect(self.name.clone(), plain).await.map_err(|error| {
            *self.config.lock() = None;
            Cause::Tls(tls_errors::problem(&error, &self.name.to_str(), self.trust.ca.as_deref()))
        })?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.and_then(|der| Certificate::from_der(der).ok());
        let found = Encryption {
            version: session.protocol_version().map(tls_errors::version).unwrap_or_default(),
            subject: certificate.as_ref().map(subject).unwrap_or_default(),
            expires_at_s: certificate.map_or(0, |known| {
                let not_after = known.tbs_certificate.validity.not_after.to_unix_duration();
                i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX)
            }),
        };
        Ok((Box::new(stream), found))
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, SetupProblem> {
        if let Some(config) = self.config.lock().clone() {
            return Ok(config);
        }
        let broken = |error: &dyn Display| Fix::Relay.because(error.to_string());
        let ca = self.trust.ca.clone();
        let roots = spawn_blocking(move || roots(ca.as_deref())).await.map_err(|error| broken(&error))??;
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| broken(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        *self.config.lock() = Some(config.clone());
        Ok(config)
    }
}

/// Returns the certificate's subject without control characters.
fn subject(certificate: &Certificate) -> String {
    let subject = certificate.tbs_certificate.subject.to_string();
    subject.chars().filter(|one| !one.is_control()).take(200).collect()
}

/// Returns the certificates in the file `ca`, or the system's. Fails if there are none.
fn roots(ca: Option<&str>) -> Result<RootCertStore, SetupProblem> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let bad = |error: &dyn Display| {
                Fix::CaFile.because(format!("the CA file {path} cannot be read on this node: {error}"))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
                roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
            }
            if roots.is_empty() {
                return Err(Fix::CaFile.because(format!("the CA file {path} has no certificate in PEM")));
            }
        }
        None => {
            let named = |why: String| Fix::Ca.because(format!("{why}, or name the relay's CA"));
            roots = system_roots().map_err(named)?;
        }
    }
    Ok(roots)
}
