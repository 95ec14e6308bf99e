//! TLS of the listeners for clients: the names in their certificate, and which of them are encrypted.

use std::net::SocketAddr;

use reveille_raft::tls::{NodeTls, ServerTls, TlsError};

use super::config::Config;
use super::fqdn;

/// Protocol of gRPC. HTTP pages answer no choice of a protocol, so their clients speak HTTP/1.1.
const GRPC: &str = "h2";

/// TLS of admin API and pages. `None`: plaintext.
pub struct ClientListenersTls {
    /// Of the admin API.
    pub admin: Option<ServerTls>,
    /// Of health, metrics and pages: only where others reach them.
    pub http: Option<ServerTls>,
}

impl ClientListenersTls {
    /// Issues the certificates. Peers reach this node at `advertise`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(config: &Config, advertise: &str, tls: &NodeTls) -> Result<ClientListenersTls, TlsError> {
        if config.insecure {
            return Ok(ClientListenersTls { admin: None, http: None });
        }
        let names = names(config, advertise);
        let server = |protocol| ServerTls::new(tls.clone(), names.clone(), protocol);
        let http = (!config.http.ip().is_loopback()).then(|| server(None)).transpose()?;
        Ok(ClientListenersTls { admin: Some(server(Some(GRPC))?), http })
    }
}

/// Returns the names by which clients may reach this node.
fn names(config: &Config, advertise: &str) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let listeners = [config.listen, config.http].into_iter().map(|address: SocketAddr| address.ip());
    names.extend(listeners.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    let advertised = advertise.rsplit_once(':').map_or(advertise, |(host, _)| host);
    names.push(advertised.trim_matches(['[', ']']).to_owned());
    names.extend(fqdn::names_of_this_machine());
    names.extend(config.tls_names.iter().cloned());
    names.sort_unstable();
    names.dedup();
    // The name of a machine, or an advertised one, may have characters that no certificate may have.
    names.retain(|name| ServerTls::is_name(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::config::Settings;

    #[test]
    fn certificate_has_names_of_listeners_machine_and_settings() {
        let settings = Settings {
            name: Some("a".to_owned()),
            data_dir: Some("/data".into()),
            listen: Some("10.0.0.1:7600".parse().expect("an address")),
            http: Some("0.0.0.0:7680".parse().expect("an address")),
            tls_names: Some(vec!["admin.example.com".to_owned(), "10.0.0.1".to_owned()]),
            ..Settings::default()
        };
        let config = Config::load(None, [], settings).expect("settings");
        let found = names(&config, "[2001:db8::1]:7601");
        for name in ["localhost", "127.0.0.1", "::1", "10.0.0.1", "2001:db8::1", "admin.example.com"] {
            assert_eq!(found.iter().filter(|found| *found == name).count(), 1, "{name} in {found:?}");
        }
        assert!(!found.contains(&"0.0.0.0".to_owned()));
        assert!(!names(&config, "under score:1").contains(&"under score".to_owned()));
    }
}
