//! How a relay is entered: its encryption, and the name of the credentials.
//!
//! Kept with each [`crate::model::Relay`], read by the nodes when they open a session, checked where it is
//! taken from outside. No secret is here, nor where one is found: each node's configuration says what a name
//! stands for, and which relay may get it. It opens no file and knows no TLS.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How a relay is entered. The default is in the clear and without a login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Encryption towards the relay.
    pub tls: Tls,
    /// What the configuration of each node calls the credentials; none: no AUTH.
    pub credentials: Option<String>,
}

/// Encryption towards a relay. What is asked for is required: there is no falling back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// In the clear.
    #[default]
    None,
    /// Begun by STARTTLS after a first EHLO (RFC 3207); usual on ports 25 and 587.
    StartTls(Trust),
    /// From the first byte (RFC 8314); usual on port 465.
    Implicit(Trust),
}

/// Which certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// A PEM file on each node whose certificates alone are the roots; none: the system's roots.
    pub ca: Option<String>,
    /// The name that the certificate has to be for; none: the relay's host.
    pub name: Option<String>,
}

/// The longest path that is kept, in bytes.
pub const PATH_MAX_BYTES: usize = 1_024;

impl Tls {
    /// Which certificates are believed, where there are any.
    pub fn trust(&self) -> Option<&Trust> {
        match self {
            Tls::None => None,
            Tls::StartTls(trust) | Tls::Implicit(trust) => Some(trust),
        }
    }
}

impl Access {
    /// False when a password would cross a network in the clear.
    pub fn keeps_its_secret(&self, host: &str) -> bool {
        self.credentials.is_none() || self.tls != Tls::None || is_loopback(host)
    }
}

/// True for this machine itself.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True for the absolute path of a file, as far as a text can tell.
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= PATH_MAX_BYTES && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_crosses_a_network_only_encrypted() {
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
