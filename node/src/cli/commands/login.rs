//! Implements `reveille login`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use reveille_cluster::process::secret::Secret;
use reveille_proto::admin::v1::GetOwnTokenRequest;
use reveille_raft::tls::{ClientTls, ShownAuthority, certificates};

use super::{Client, CommandContext, Exit, Failure, RetrySafety, Stop, context, input, time_limit};
use crate::cli::connection::{self, ConnectFailure};
use crate::cli::contexts::{BearerToken, Context, Contexts};
use crate::cli::endpoint::{Endpoint, Scheme};
use crate::cli::target::Target;

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

/// Maximum bytes of a file with authorities: all public ones are about 200 KB.
const AUTHORITY_BYTES_MAX: u64 = 1 << 20;
/// Maximum bytes of a token on stdin, more than any has.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// Stores the context of a cluster.
pub async fn run(command: &CommandContext<'_>, args: LoginArgs) -> Result<(), Stop> {
    let LoginArgs { addresses, name, fingerprint, ca, token } = args;
    let mut contexts = Contexts::read()?;
    let (is_named, in_use) = (ca.is_some(), contexts.current.clone());
    let (first, ca) = match ca {
        Some(file) => (addresses.first(), read_authority(&file).await?),
        None => {
            let (first, shown) = shown(&addresses).await?;
            // An authority that this user trusts already needs no confirmation.
            if fingerprint.is_some() || contexts.all.values().all(|known| known.ca != shown.pem) {
                check(command, first, &shown, fingerprint.as_deref()).await?;
            }
            (Some(first), shown.pem)
        }
    };
    let name = name.unwrap_or_else(|| contexts.name_for(&ca, first.map_or("", Endpoint::host)));
    if contexts.all.get(&name).is_some_and(|known| known.ca != ca) {
        command.confirm(&format!("Context {name} is of another cluster. Replace it?")).await?;
    }
    // The token of a context stays with the authority that it was given for. `cluster init` has stored the first token;
    // with a certificate of the operator only its authority is wrong.
    let is_same = |known: &&Context| {
        let has_all = addresses.iter().all(|endpoint| known.endpoints.contains(&endpoint.address));
        known.ca == ca || (is_named && has_all)
    };
    let kept = contexts.all.get(&name).filter(is_same).and_then(|known| known.token.clone());
    let token = read_token(command, token.as_deref(), kept).await?;
    let tls = ClientTls::trusting(&ca).map_err(|error| {
        Failure::general(error.to_string(), "name the admin port of a node: 7600 unless --listen says otherwise")
    })?;
    // A wrong name or token shows now, and not at the next command.
    let target = Arc::new(Ok(Target::secured(&name, addresses.clone(), tls, token.clone())));
    let client = Client::new(target, Some(time_limit(command.global)), command.client.request_id().to_owned());
    client.ask(RetrySafety::Read, GetOwnTokenRequest {}).await?;
    let endpoints = addresses.into_iter().map(|endpoint| endpoint.address).collect();
    contexts.put(&name, Context { endpoints, ca, token });
    contexts.write()?;
    let (name, stored) = contexts.named(&name)?;
    command.terminal.show(&context::view(&contexts, name, stored)?)?;
    context::say_in_use(command, &contexts, in_use.as_deref());
    Ok(())
}

/// Reads the certificates of a file.
async fn read_authority(file: &Path) -> Result<String, Failure> {
    let bad = |why: String| Failure::usage("--ca", why, "name a file with the authority's certificate (PEM)");
    let bytes = input::bytes(file, AUTHORITY_BYTES_MAX).await;
    let text = bytes.map_err(|error| bad(format!("{} cannot be read: {error}", file.display())))?;
    let text = String::from_utf8(text).map_err(|_| bad(format!("{} is not PEM", file.display())))?;
    certificates(&text).map_err(|error| bad(format!("{}: {error}", file.display())))
}

/// Returns the authority that the first address shows which answers.
async fn shown(addresses: &[Endpoint]) -> Result<(&Endpoint, ShownAuthority), Failure> {
    let mut failed = None;
    for endpoint in addresses {
        let failure = match connection::shown_authority(endpoint).await {
            Ok(shown) => return Ok((endpoint, shown)),
            Err(ConnectFailure::Unreachable(why)) => {
                let message = format!("no node answers at {endpoint}: {why}");
                let next = "name the admin address of a running node, as its --listen says";
                Failure::new(Exit::NoQuorum, "UNREACHABLE", message, next).at("https://HOST:PORT")
            }
            Err(ConnectFailure::Handshake(error)) => Target::refused("", endpoint, &error),
        };
        failed = failed.or(Some(failure));
    }
    Err(failed.unwrap_or_default())
}

/// Checks that the user means this authority.
async fn check(
    command: &CommandContext<'_>,
    endpoint: &Endpoint,
    shown: &ShownAuthority,
    expected: Option<&str>,
) -> Result<(), Stop> {
    let Some(expected) = expected else {
        return command
            .confirm(&format!(
                "The authority of the cluster at {endpoint} has the fingerprint (SHA-256) {}. Is it the right one?",
                shown.fingerprint
            ))
            .await;
    };
    // `openssl` prints upper case, with colons.
    if expected.replace(':', "").to_ascii_lowercase() == shown.fingerprint {
        return Ok(());
    }
    let message = format!("the authority at {endpoint} has another fingerprint: {}", shown.fingerprint);
    let next = "compare it with `reveille context show` on the machine of cluster init";
    Err(Failure::new(Exit::Denied, "TLS", message, next).at("--fingerprint").into())
}

/// Reads the token from its place. Without one, a terminal is asked, and an empty line keeps the token `kept`.
async fn read_token(
    command: &CommandContext<'_>,
    place: Option<&str>,
    kept: Option<BearerToken>,
) -> Result<Option<BearerToken>, Stop> {
    let unusable = |why: String| Failure::usage("--token", why, "name its place: file:/path, env:NAME or -");
    let text = match place {
        Some("-") => {
            let read = input::bytes(Path::new("-"), TOKEN_BYTES_MAX).await;
            let bytes = read.map_err(|error| unusable(format!("stdin cannot be read: {error}")))?;
            String::from_utf8(bytes).map_err(|_| unusable("stdin has no token".to_owned()))?
        }
        Some(place) => {
            let secret: Secret = place.parse().map_err(|error| unusable(format!("it {error}")))?;
            let bytes = secret.read().map_err(|why| unusable(format!("{secret} {why}")))?;
            String::from_utf8(bytes).map_err(|_| unusable(format!("{secret} has no token")))?
        }
        None if std::io::stdin().is_terminal() => {
            let nothing = if kept.is_some() { "keeps the one that you have" } else { "if you have none" };
            command.terminal.ask_secret(&format!("Token (nothing {nothing}): ")).await?
        }
        None => String::new(),
    };
    let text = text.trim();
    Ok(if text.is_empty() && place.is_none() { kept } else { (!text.is_empty()).then(|| BearerToken(text.to_owned())) })
}
