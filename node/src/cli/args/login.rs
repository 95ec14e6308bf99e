//! `reveille login`.

use super::{Args, PathBuf};

use crate::cli::endpoint::{Endpoint, Scheme};

/// `login`.
#[derive(Debug, Args)]
#[command(
    long_about = "Store a cluster's certificate authority and your token\n\n\
    It shows the fingerprint of the cluster's certificate authority, and asks whether it is the right one: `reveille \
    context show` on the machine of `cluster init` shows it too, and so does each node in the log line of its start. \
    The addresses, the authority and the token are stored as a context for this user alone. Given again with the \
    addresses of all nodes, it adds those that joined: a known authority is not asked about, and the token is kept.",
    after_long_help = "\
Examples:
  reveille login https://10.77.0.1:7600
  reveille login https://a.example.com:7600 https://b.example.com:7600 https://c.example.com:7600
  reveille login https://a.example.com:7600 --ca company-ca.pem
  reveille login https://10.77.0.1:7600 --fingerprint \"$FINGERPRINT\" --token file:/run/secrets/reveille"
)]
pub struct LoginArgs {
    /// Admin addresses of nodes of the cluster
    #[arg(required = true, value_name = "https://HOST:PORT", value_parser = parse_secure)]
    pub addresses: Vec<Endpoint>,
    /// Name of the context [default: `default`, or the host if that is taken]
    #[arg(long)]
    pub name: Option<String>,
    /// SHA-256 of the authority's certificate; without it you are asked
    #[arg(long, value_name = "HEX", conflicts_with = "ca")]
    pub fingerprint: Option<String>,
    /// File with the authority's certificate (PEM), for nodes with a certificate of your own authority
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Where the token is: file:/path, env:NAME, or - for stdin [default: a terminal is asked; an empty answer,
    /// or no terminal, keeps the token of a context of this name, if its authority is the same]
    #[arg(long, value_name = "SECRET")]
    pub token: Option<String>,
}

fn parse_secure(text: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::parse(text)?;
    match endpoint.scheme {
        Some(Scheme::Plaintext) => Err("a login is by https://HOST:PORT; a plaintext node needs none".to_owned()),
        _ => Ok(Endpoint { scheme: Some(Scheme::Tls), ..endpoint }),
    }
}
