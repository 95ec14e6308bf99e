//! Certificates for the test servers, made at run time: a CA, and certificates that it signs.

use std::{path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// The CA of one test. Its certificate is a file.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a CA of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Authority { issuer, folder }
    }

    pub fn file(&self) -> String {
        self.path("ca.pem").to_string_lossy().into_owned()
    }

    /// Returns a path in the CA's folder, which is removed with the CA.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a server with a certificate that this CA signed, valid to the end of `last_year`.
    pub fn server_until(&self, name: &str, last_year: i32) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a server");
        TlsAcceptor::from(Arc::new(config))
    }

    /// Returns a server with a valid certificate.
    pub fn server(&self, name: &str) -> TlsAcceptor {
        self.server_until(name, 2200)
    }
}
