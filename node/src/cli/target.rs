//! Where a command sends its requests, how it knows the nodes, and with which token: flags win over the environment,
//! and both over the context.
//!
//! Plaintext goes to loopback only, and a token never goes in plaintext.

use reveille_raft::tls::{ClientTls, HandshakeError};

use super::args::Global;
use super::contexts::{BearerToken, Contexts};
use super::endpoint::{Endpoint, Scheme};
use super::failure::{Exit, Failure};
use crate::server::config::Config;

/// Variable with a token that is used instead of the context's.
const TOKEN: &str = "REVEILLE_TOKEN";

/// The nodes of one cluster, and how they are spoken to.
pub struct Target {
    /// The nodes; any will do.
    pub endpoints: Vec<Endpoint>,
    /// Name of the context, its TLS and the token. `None`: there is no context.
    secured: Option<(String, ClientTls, Option<BearerToken>)>,
    /// Certificate of the authority in the context's file. Empty: it is not in a file.
    ca: String,
}

impl Target {
    /// Finds the target of a command.
    ///
    /// # Errors
    /// A failure if the context does not exist or cannot be read.
    pub fn of(global: &Global) -> Result<Target, Failure> {
        let contexts = Contexts::read()?;
        let Some((name, context)) = contexts.chosen(global.context.as_deref())? else {
            let usual = || vec![Endpoint { address: format!("127.0.0.1:{}", Config::ADMIN_PORT), scheme: None }];
            let endpoints = if global.endpoint.is_empty() { usual() } else { global.endpoint.clone() };
            return Ok(Target { endpoints, secured: None, ca: String::new() });
        };
        let damaged = |why: String| {
            let next = format!("log in again: reveille login https://HOST:PORT --name {name}");
            Failure::new(Exit::General, "CONTEXT", format!("context '{name}': {why}"), next)
        };
        let own = || context.endpoints.iter().map(|text| Endpoint::parse(text)).collect::<Result<Vec<_>, _>>();
        let endpoints = if global.endpoint.is_empty() { own().map_err(damaged)? } else { global.endpoint.clone() };
        let tls = ClientTls::trusting(&context.ca).map_err(|error| damaged(error.to_string()))?;
        let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty()).map(BearerToken);
        let token = token.or_else(|| context.token.clone());
        Ok(Target { endpoints, secured: Some((name.to_owned(), tls, token)), ca: context.ca.clone() })
    }

    /// Returns a target of one cluster, with a context that is not written yet.
    pub fn secured(name: &str, endpoints: Vec<Endpoint>, tls: ClientTls, token: Option<BearerToken>) -> Target {
        Target { endpoints, secured: Some((name.to_owned(), tls, token)), ca: String::new() }
    }

    /// Stores the authority that succeeds the one of the context, if a node has shown it. If that fails, the next
    /// command does it.
    pub fn store_successor(&self) {
        if let Some((name, tls, _)) = &self.secured
            && let Some(successor) = tls.successor()
        {
            let _ = Contexts::succeed(name, &self.ca, successor);
        }
    }

    /// Returns how this endpoint is spoken to. `None`: in plaintext.
    ///
    /// # Errors
    /// A failure if the endpoint would be spoken to in plaintext over a network, or no authority is known for it.
    pub fn link(&self, endpoint: &Endpoint) -> Result<Option<(&ClientTls, Option<&BearerToken>)>, Failure> {
        match (endpoint.scheme, &self.secured) {
            (None | Some(Scheme::Tls), Some((_, tls, token))) => Ok(Some((tls, token.as_ref()))),
            (None, None) | (Some(Scheme::Plaintext), _) if endpoint.is_loopback() => Ok(None),
            (Some(Scheme::Plaintext), _) => {
                let message = format!("http://{endpoint} would be spoken to in plaintext, over a network");
                Err(Failure::usage("--endpoint", message, "the same with https://, or an address of this machine"))
            }
            (None | Some(Scheme::Tls), None) => Err(unknown_cluster(endpoint)),
        }
    }

    /// Returns the name of the context; empty without one.
    pub fn context(&self) -> &str {
        self.secured.as_ref().map_or("", |(name, ..)| name.as_str())
    }

    /// Returns the failure of a handshake by the authority in `context`.
    pub fn refused(context: &str, endpoint: &Endpoint, error: &HandshakeError) -> Failure {
        let (message, next) = match error {
            HandshakeError::NotTls => (
                format!("{endpoint} answers, but does not speak TLS"),
                format!(
                    "name the admin port of a node: {} unless --listen says otherwise; for reveille dev: \
                     --endpoint http://{endpoint}",
                    Config::ADMIN_PORT
                ),
            ),
            HandshakeError::UnknownAuthority => (
                format!("{endpoint} has a certificate of another authority than context '{context}' knows"),
                format!(
                    "choose the context of that cluster: reveille context list; if its certificate is of an authority \
                     of your own: reveille login https://{endpoint} --ca FILE; if its authority was rotated more than \
                     once since the context was used: reveille login https://{endpoint}"
                ),
            ),
            HandshakeError::OtherName(names) if names.contains(".reveille.internal") => (
                format!("{endpoint} is the peer port of a node"),
                format!("name its admin port: {} unless --listen says otherwise", Config::ADMIN_PORT),
            ),
            HandshakeError::OtherName(names) => (
                format!("{endpoint} has a certificate for other names: {names}"),
                format!("name it by one of these, or add {} to tls_names of that node", endpoint.host()),
            ),
            HandshakeError::Clock => (
                format!("{endpoint} has a certificate that is not valid by this machine's clock"),
                "compare the clocks of both machines: timedatectl".to_owned(),
            ),
            HandshakeError::AuthorityAsOwn => (
                format!("{endpoint} shows the certificate of an authority as its own (basicConstraints CA:TRUE)"),
                "give that node a certificate that the authority has signed, with CA:FALSE: tls.certificate".to_owned(),
            ),
            HandshakeError::Failed(why) => (
                format!("{endpoint} did not complete the TLS handshake: {why}"),
                "name the admin port of a node, and look at that node's log".to_owned(),
            ),
        };
        Failure::new(Exit::NoQuorum, "TLS", message, next).at("--endpoint")
    }
}

/// Returns the failure for a node whose authority this user does not know.
pub fn unknown_cluster(endpoint: &Endpoint) -> Failure {
    let next = format!("reveille login https://{endpoint}; or choose a context: reveille context list");
    let message = format!("{endpoint} needs TLS, and no context is chosen that knows its authority");
    Failure::new(Exit::NoQuorum, "TLS", message, next).at("--endpoint")
}
