//! Section `tls`: a certificate for clients that the operator keeps as files.

use std::path::PathBuf;

use reveille_raft::tls::CertificateFiles;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::check::setting;

/// Settings of section `tls`. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// A file with a certificate of your own authority for clients, and its chain (PEM), which is read again when it
    /// changes; without it the cluster's authority issues one
    pub certificate: Option<PathBuf>,
    /// The file with its key (PEM)
    pub key: Option<PathBuf>,
}

/// The files of a certificate for clients. Only the values are checked, not the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfig {
    /// The certificate, with its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsSettings {
    pub(super) fn check(self, insecure: bool) -> Result<Option<CertificateConfig>, ConfigError> {
        let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        match (given(self.certificate), given(self.key)) {
            (None, None) => Ok(None),
            (Some(_), _) if insecure => {
                let next = "leave out one of both";
                Err(setting("tls.certificate", "insecure is plaintext, without a certificate", next))
            }
            (Some(certificate), Some(key)) => Ok(Some(CertificateConfig { certificate, key })),
            (Some(_), None) => {
                Err(setting("tls.key", "it is not set, and tls.certificate is", "name the file of its key"))
            }
            (None, Some(_)) => {
                let next = "name the file of its certificate";
                Err(setting("tls.certificate", "it is not set, and tls.key is", next))
            }
        }
    }
}

impl From<Option<CertificateConfig>> for TlsSettings {
    fn from(config: Option<CertificateConfig>) -> TlsSettings {
        let (certificate, key) = config.map(|config| (config.certificate, config.key)).unwrap_or_default();
        TlsSettings { certificate: Some(certificate), key: Some(key) }
    }
}

impl CertificateConfig {
    /// Reads the files.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if one cannot be read, or they do not match.
    pub fn open(&self) -> Result<CertificateFiles, ConfigError> {
        CertificateFiles::read(self.certificate.clone(), self.key.clone()).map_err(|error| {
            let next = "give a certificate with its chain and its key as PEM, which the node's user can read";
            setting("tls.certificate", error.to_string(), next)
        })
    }
}
