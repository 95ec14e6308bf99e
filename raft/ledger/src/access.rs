//! How a relay is entered: its encryption, and the credentials by reference.
//!
//! Kept with each [`crate::command::Relay`], read by the nodes whenever they open a session, checked by
//! whoever takes it from outside. It promises that a secret is never here: a [`Secret`] says where each
//! node finds it for itself. It opens no file and knows no TLS.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a relay is entered. The default is in the clear and as nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Encryption towards the relay.
    pub tls: Tls,
    /// Where each node finds `user:password`; none: the relay asks for no name.
    pub auth: Option<Secret>,
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

/// Where a node finds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Secret {
    /// The only line of a file, by its absolute path.
    File(String),
    /// A variable of the node's environment.
    Env(String),
}

/// A text that is no reference to a secret. It does not repeat the text: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is not a reference to a secret; give file:/absolute/path or env:NAME")]
pub struct NoSecret;

/// The longest path or name that is kept, in bytes.
pub const REFERENCE_MAX_BYTES: usize = 1_024;

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
        self.auth.is_none() || self.tls != Tls::None || is_loopback(host)
    }
}

/// True for this machine itself.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True for the absolute path of a file, as far as a text can tell.
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= REFERENCE_MAX_BYTES && !text.chars().any(char::is_control)
}

impl FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Secret, NoSecret> {
        match text.split_once(':') {
            Some(("file", path)) if is_path(path) => Ok(Secret::File(path.to_owned())),
            Some(("env", name)) if is_variable(name) => Ok(Secret::Env(name.to_owned())),
            _ => Err(NoSecret),
        }
    }
}

fn is_variable(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= REFERENCE_MAX_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::File(path) => write!(formatter, "file:{path}"),
            Secret::Env(name) => write!(formatter, "env:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_as_it_is_written() {
        for text in ["file:/etc/reveille/ses", "file:/a b:c", "env:SES_LOGIN", "env:_x1"] {
            assert_eq!(text.parse::<Secret>().map(|secret| secret.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_may_be_the_secret_itself_is_refused_and_not_repeated() {
        for text in ["anna:hunter2", "file:relative", "file:", "file:/a\n", "env:", "env:1X", "env:A B", "hunter2", ""]
        {
            let refused = text.parse::<Secret>().expect_err(text).to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_password_crosses_a_network_only_encrypted() {
        let clear = Access { auth: Some(Secret::Env("X".into())), ..Access::default() };
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
