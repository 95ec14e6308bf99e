//! Which relay, and as whom we greet it. Made from the ledger's relay object by whoever builds the
//! pool; checked once, here.

use thiserror::Error;

/// A relay's address and our name. Valid by construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    hello_name: String,
}

/// Why a [`Target`] was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadTarget {
    /// Empty, longer than 253 bytes, or with characters beyond visible ASCII.
    #[error("the relay's host is not a name or an address")]
    Host,
    /// As above: it stands in the EHLO line.
    #[error("the greeting name is not a host name")]
    HelloName,
}

impl Target {
    /// `host` is a name or an address (IPv6 without brackets), `hello_name` the argument of EHLO: a
    /// host name, or an address in brackets (RFC 5321 4.1.3).
    ///
    /// # Errors
    /// When either could not stand in a command line.
    pub fn new(host: &str, port: u16, hello_name: &str) -> Result<Target, BadTarget> {
        if !is_name(host) {
            return Err(BadTarget::Host);
        }
        if !is_name(hello_name) {
            return Err(BadTarget::HelloName);
        }
        Ok(Target { host: host.to_owned(), port, hello_name: hello_name.to_owned() })
    }

    /// The host to connect to.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Our name in EHLO.
    pub fn hello_name(&self) -> &str {
        &self.hello_name
    }
}

fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_carry_a_second_command() {
        assert!(Target::new("relay.example.org", 25, "node-1.example.org").is_ok());
        assert!(Target::new("::1", 25, "[127.0.0.1]").is_ok());
        assert_eq!(Target::new("", 25, "a"), Err(BadTarget::Host));
        assert_eq!(Target::new("a", 25, "a\r\nMAIL FROM:<>"), Err(BadTarget::HelloName));
    }
}
