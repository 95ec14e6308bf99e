//! The address of a node's admin API, as a user names it.

use std::fmt;

use reveille_ledger::access::is_loopback;

/// Where a node answers, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST:PORT`.
    pub address: String,
    /// `None`: as the context says.
    pub scheme: Option<Scheme>,
}

/// Encryption that a user asks for by the beginning of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`: plaintext.
    Plaintext,
    /// `https://`: TLS.
    Tls,
}

impl Endpoint {
    /// Returns the endpoint in a text.
    ///
    /// # Errors
    /// Returns what an endpoint is.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let text = text.trim();
        let (scheme, address) = match text.split_once("://") {
            Some(("http", address)) => (Some(Scheme::Plaintext), address),
            Some(("https", address)) => (Some(Scheme::Tls), address),
            _ => (None, text),
        };
        let address = address.trim_end_matches('/');
        let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
        match port.map(str::parse::<u16>) {
            Some(Ok(1..)) if !address.contains('/') => Ok(Endpoint { address: address.to_owned(), scheme }),
            _ => Err("an endpoint is HOST:PORT, such as 127.0.0.1:7600, without a path".to_owned()),
        }
    }

    /// Returns the host without brackets.
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        host.trim_matches(['[', ']'])
    }

    /// Returns true if only this machine reaches it.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.host())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_host_and_port() {
        let (plaintext, tls) = (Some(Scheme::Plaintext), Some(Scheme::Tls));
        for (text, address, scheme) in [
            ("a:1", "a:1", None),
            (" http://b:7600/ ", "b:7600", plaintext),
            ("https://c:7600", "c:7600", tls),
            ("[::1]:7600", "[::1]:7600", None),
        ] {
            let endpoint = Endpoint { address: address.to_owned(), scheme };
            assert_eq!(Endpoint::parse(text), Ok(endpoint), "{text}");
        }
        for text in ["", "a", ":7600", "a:", "a:x", "a:0", "a:65536", "ftp://a:7600", "a/b:7600", "https://a"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        assert!(Endpoint::parse("[::1]:1").is_ok_and(|endpoint| endpoint.is_loopback()));
        assert!(Endpoint::parse("10.0.0.1:1").is_ok_and(|endpoint| !endpoint.is_loopback()));
    }
}
