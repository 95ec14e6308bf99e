//! Address of a relay, the name in EHLO, and the security of the session. The registry makes it from
//! the ledger's relay object. It is checked once, here.

use std::net::IpAddr;
use std::sync::Arc;

use reveille_ledger::access::{Access, Tls, is_path};
use thiserror::Error;

use super::credentials::{CredentialStore, Credentials};
use super::probe_report::Encryption;
use super::stream::ByteStream;
use super::tls::Encryptor;
use crate::smtp::cause::{Cause, Fix};
use crate::smtp::replies::classification::ReplyRules;

/// A relay's address, this node's name in EHLO, and the relay's access. Valid by construction. Clones share TLS
/// sessions.
#[derive(Debug, Clone)]
pub struct Target {
    host: String,
    port: u16,
    /// Name in EHLO. `None`: the address literal of each connection.
    hello_name: Option<String>,
    access: Access,
    /// Credentials that this node has.
    store: Arc<CredentialStore>,
    /// The operator's rules for this relay's answers.
    reply_rules: ReplyRules,
    /// `None`: the session is not encrypted.
    encryptor: Option<Arc<Encryptor>>,
}

/// Reason why a [`Target`] was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadTarget {
    /// The host is empty, longer than 253 bytes, or has characters beyond visible ASCII.
    #[error("the relay's host is not a name or an address")]
    Host,
    /// The name in EHLO is empty, longer than 253 bytes, or has characters beyond visible ASCII.
    #[error("hello_name is not a host name or an address in brackets")]
    HelloName,
    /// The name cannot be in a certificate.
    #[error("the name of the relay's certificate is not a DNS name or an address")]
    TlsName,
    /// The path must be absolute: each node reads it, whatever its working directory.
    #[error("the CA file is not an absolute path")]
    CaFile,
    /// A password would cross a network in the clear.
    #[error("credentials need TLS, unless the relay is on this machine")]
    ClearPassword,
}

impl Target {
    /// Returns a checked target. `host` is a name or an address (IPv6 without brackets). `hello_name` is the argument
    /// of EHLO: a host name, or an address in brackets (RFC 5321 4.1.3); `None` is the address literal of this node's
    /// end of each connection. `access` is how the node encrypts and logs in.
    ///
    /// # Errors
    /// Fails if a name cannot be in a command line or in a certificate, or if a secret would be sent in the clear.
    pub fn new<'a>(
        host: &str,
        port: u16,
        hello_name: impl Into<Option<&'a str>>,
        access: &Access,
    ) -> Result<Target, BadTarget> {
        let hello_name = hello_name.into();
        if !is_name(host) {
            return Err(BadTarget::Host);
        }
        if hello_name.is_some_and(|name| !is_name(name)) {
            return Err(BadTarget::HelloName);
        }
        if !access.keeps_its_secret(host) {
            return Err(BadTarget::ClearPassword);
        }
        let encryptor = match access.tls.trust() {
            Some(trust) if trust.ca.as_deref().is_some_and(|path| !is_path(path)) => return Err(BadTarget::CaFile),
            Some(trust) => Some(Arc::new(Encryptor::new(host, trust).ok_or(BadTarget::TlsName)?)),
            None => None,
        };
        let (host, hello_name) = (host.to_owned(), hello_name.map(str::to_owned));
        let (store, reply_rules) = (Arc::default(), ReplyRules::default());
        Ok(Target { host, port, hello_name, access: access.clone(), store, reply_rules, encryptor })
    }

    /// Returns the target with the credentials of this node's configuration. Without them each login fails.
    pub fn with_credentials(self, store: Arc<CredentialStore>) -> Target {
        Target { store, ..self }
    }

    /// Returns the target with the operator's rules for the relay's answers.
    pub fn with_reply_rules(self, reply_rules: ReplyRules) -> Target {
        Target { reply_rules, ..self }
    }

    pub(crate) fn reply_rules(&self) -> &ReplyRules {
        &self.reply_rules
    }

    /// Returns the host to connect to.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name in EHLO on a connection whose own address is `local` (RFC 5321 4.1.1.1 and 4.1.3).
    pub fn hello_name(&self, local: Option<IpAddr>) -> String {
        match (&self.hello_name, local.map(|local| local.to_canonical())) {
            (Some(name), _) => name.clone(),
            (None, Some(IpAddr::V6(address))) => format!("[IPv6:{address}]"),
            (None, Some(IpAddr::V4(address))) => format!("[{address}]"),
            (None, None) => "[127.0.0.1]".to_owned(),
        }
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.access.tls
    }

    pub(crate) fn logs_in(&self) -> bool {
        self.access.credentials.is_some()
    }

    /// Reads the credentials for one AUTH.
    pub(crate) async fn credentials(&self) -> Result<Credentials, Cause> {
        let name = self.access.credentials.as_deref().unwrap_or_default();
        self.store.resolve(name, &self.host, self.port).await
    }

    pub(crate) async fn encrypt(&self, plain: Box<dyn ByteStream>) -> Result<(Box<dyn ByteStream>, Encryption), Cause> {
        match &self.encryptor {
            Some(encryptor) => encryptor.encrypt(plain).await,
            None => Err(Cause::Tls(Fix::Relay.because("this relay is spoken to in the clear"))),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use reveille_ledger::access::Trust;

    use super::*;

    fn refused(host: &str, hello_name: &str, access: &Access) -> Option<BadTarget> {
        Target::new(host, 25, hello_name, access).err()
    }

    #[test]
    fn host_name_cannot_carry_a_second_command() {
        let clear = Access::default();
        assert_eq!(refused("relay.example.org", "node-1.example.org", &clear), None);
        assert_eq!(refused("::1", "[127.0.0.1]", &clear), None);
        assert_eq!(refused("", "a", &clear), Some(BadTarget::Host));
        assert_eq!(refused("a", "a\r\nMAIL FROM:<>", &clear), Some(BadTarget::HelloName));
    }

    #[test]
    fn hello_name_absent_is_address_literal_of_connection() {
        let target = Target::new("relay.example.org", 25, None, &Access::default()).expect("a target");
        let hello = |local: &str| target.hello_name(local.parse().ok());
        assert_eq!(hello("192.0.2.7"), "[192.0.2.7]");
        assert_eq!(hello("2001:db8::7"), "[IPv6:2001:db8::7]");
        assert_eq!(hello("::ffff:192.0.2.7"), "[192.0.2.7]", "a mapped address is an IPv4 address");
        let target = Target::new("relay.example.org", 25, "a.example.org", &Access::default()).expect("a target");
        assert_eq!(target.hello_name("192.0.2.7".parse().ok()), "a.example.org");
    }

    #[test]
    fn unsafe_host_name_is_no_target() {
        let tls = |ca: Option<&str>, name: Option<&str>| Access {
            tls: Tls::StartTls(Trust { ca: ca.map(str::to_owned), name: name.map(str::to_owned) }),
            credentials: Some("x".to_owned()),
        };
        assert_eq!(refused("10.0.0.1", "a", &tls(Some("/ca.pem"), Some("relay.example.org"))), None);
        assert_eq!(refused("10.0.0.1", "a", &tls(Some("ca.pem"), None)), Some(BadTarget::CaFile));
        assert_eq!(refused("10.0.0.1", "a", &tls(None, Some("not a name"))), Some(BadTarget::TlsName));
        assert_eq!(refused("re/lay", "a", &tls(None, None)), Some(BadTarget::TlsName));
        let clear = Access { tls: Tls::None, ..tls(None, None) };
        assert_eq!(refused("10.0.0.1", "a", &clear), Some(BadTarget::ClearPassword));
        assert_eq!(refused("127.0.0.1", "a", &clear), None);
    }
}
