//! Encryption and credentials of the connection to a relay.
//!
//! Each [`crate::model::Relay`] has an [`Access`]. Nodes read it when they open a session; the admin API validates it.
//! It holds no secret, only the name of the credentials. The configuration of each node maps that name to a secret, and
//! says which relays may receive it. This module opens no file and does not implement TLS.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Encryption and credentials of a relay. The default is no encryption and no AUTH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Encryption towards the relay.
    pub tls: Tls,
    /// Name of the credentials in the configuration of each node. `None`: no AUTH.
    pub credentials: Option<String>,
}

/// Encryption of the connection to a relay. A requested encryption is required: there is no fallback to plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// No encryption.
    #[default]
    None,
    /// STARTTLS after a first EHLO (RFC 3207); usual on ports 25 and 587.
    StartTls(Trust),
    /// TLS from the first byte (RFC 8314); usual on port 465.
    Implicit(Trust),
}

/// Settings that decide which certificates of a relay are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Path of a PEM file on each node. Only its certificates are trusted as roots. `None`: the system's roots.
    pub ca: Option<String>,
    /// Host name that the certificate must be valid for. `None`: the relay's host.
    pub name: Option<String>,
}

/// Longest path of a PEM file, in bytes.
pub const PATH_BYTES_MAX: usize = 1_024;

impl Tls {
    /// Returns the certificate settings; `None` without encryption.
    pub fn trust(&self) -> Option<&Trust> {
        match self {
            Tls::None => None,
            Tls::StartTls(trust) | Tls::Implicit(trust) => Some(trust),
        }
    }
}

impl Access {
    /// True unless the password would cross a network unencrypted.
    pub fn keeps_its_secret(&self, host: &str) -> bool {
        self.credentials.is_none() || self.tls != Tls::None || is_loopback(host)
    }
}

/// True if `host` is `localhost` or a loopback address.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True if `text` has the form of an absolute path. Does not check that the file exists.
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= PATH_BYTES_MAX && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_crosses_network_only_encrypted() {
        let clear = Access { credentials: Some("x".to_owned()), ..Access::default() };
        for here in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"] {
            assert!(clear.keeps_its_secret(here), "{here}");
        }
        for there in ["localhost.example.org", "10.0.0.1", "::2", ""] {
            assert!(!clear.keeps_its_secret(there), "{there}");
            assert!(Access { tls: Tls::StartTls(Trust::default()), ..clear.clone() }.keeps_its_secret(there));
            assert!(Access::default().keeps_its_secret(there), "there is none");
        }
    }
}
