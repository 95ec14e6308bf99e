//! Certificates as text, and why one cannot be made, read or written.

use std::io;
use std::path::PathBuf;

use data_encoding::BASE64;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

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

/// Reads the first certificate of a text.
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

/// Returns the certificates of a text, without anything else that is in it.
///
/// # Errors
/// [`TlsError::Library`] if there is none, or one cannot be read.
pub fn certificates(text: &str) -> Result<String, TlsError> {
    let mut all = String::new();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        all.push_str(&pem_of(&certificate?));
    }
    match all.is_empty() {
        true => Err(TlsError::Library("no certificate".to_owned())),
        false => Ok(all),
    }
}

/// Returns the last certificate of a text.
///
/// # Errors
/// [`TlsError::Library`] if there is none, or one cannot be read.
pub fn last_certificate(text: &str) -> Result<String, TlsError> {
    let last = CertificateDer::pem_slice_iter(text.as_bytes()).last();
    Ok(pem_of(&last.ok_or_else(|| TlsError::Library("no certificate".to_owned()))??))
}
