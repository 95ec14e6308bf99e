//! TLS of the listeners for clients: the names in their certificate, and which of them are encrypted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reveille_raft::tls::{CertificateFiles, NodeTls, ServerTls};
use tokio_util::sync::CancellationToken;

use super::config::{CertificateConfig, Config};
use super::fqdn;

/// Protocols of the admin API: gRPC needs the first one. HTTP pages answer no choice, so their clients speak HTTP/1.1.
const API: &[&str] = &["h2", "http/1.1"];

/// Interval of the checks of the operator's files.
const READ_EVERY: Duration = Duration::from_secs(10);

/// TLS of admin API and pages. `None`: plaintext.
pub struct ClientListenersTls {
    /// Of the admin API.
    pub admin: Option<ServerTls>,
    /// Of health, metrics and pages: only where others reach them.
    pub http: Option<ServerTls>,
    /// The operator's certificate. `None`: there is none.
    pub files: Option<Arc<CertificateFiles>>,
}

impl ClientListenersTls {
    /// Issues the certificates, or reads the operator's. Peers reach this node at `advertise`.
    ///
    /// # Errors
    /// An error if the operator's certificate cannot be used, or none can be issued.
    pub fn new(config: &Config, advertise: &str, tls: &NodeTls) -> anyhow::Result<ClientListenersTls> {
        if config.insecure {
            return Ok(ClientListenersTls { admin: None, http: None, files: None });
        }
        let (names, files) = (names(config, advertise), config.tls.as_ref().map(CertificateConfig::open).transpose()?);
        let files = files.map(Arc::new);
        let server = |protocols| match &files {
            Some(files) => ServerTls::of_files(Arc::clone(files), protocols),
            None => ServerTls::new(tls.clone(), names.clone(), protocols),
        };
        let http = (!config.http.ip().is_loopback()).then(|| server(&[])).transpose()?;
        Ok(ClientListenersTls { admin: Some(server(API)?), http, files })
    }
}

/// Reads the operator's certificate again when it has changed, until `stop`.
pub async fn watch(files: Arc<CertificateFiles>, stop: CancellationToken) {
    let failed = metrics::gauge!("reveille_certificate_files_failed");
    failed.set(0.0);
    note_expiry(&files);
    let mut said = String::new();
    while stop.run_until_cancelled(tokio::time::sleep(READ_EVERY)).await.is_some() {
        let read_again = Arc::clone(&files);
        let read = match tokio::task::spawn_blocking(move || read_again.read_changed()).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        failed.set(if read.is_ok() { 0.0 } else { 1.0 });
        let now = match read {
            Ok(false) => continue,
            Ok(true) => {
                tracing::info!("clients get another certificate: its files have changed");
                note_expiry(&files);
                String::new()
            }
            Err(why) => why,
        };
        if !now.is_empty() && now != said {
            tracing::error!(why = now, "the certificate for clients cannot be read again: the former one stays");
        }
        said = now;
    }
}

fn note_expiry(files: &CertificateFiles) {
    if let Some(expires_at_s) = files.expires_at_s() {
        metrics::gauge!("reveille_certificate_files_expire_timestamp_seconds").set(expires_at_s as f64);
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
