//! `reveille cluster init`: prepares the data folder of the first node, and stores a context.

use std::path::PathBuf;

use clap::Args;
use reveille_raft::tls::{NodeTls, last_certificate};
use serde_json::json;

use crate::cli::commands::context::say_in_use;
use crate::cli::commands::{Answer, CommandContext, Exit, Failure, Own, Stop, config};
use crate::cli::contexts::{BearerToken, Context, Contexts};
use crate::server::config::{Config, Settings, environment, file_or_default};
use crate::server::{bootstrap, first_token};
use crate::token_text::TokenText;

/// Digits of a cluster's id that name the context of a second cluster.
const CLUSTER_DIGITS: usize = 8;

/// Settings of the first node.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Give the cluster a clock that `clock advance` moves: for good, for tests, and only with relays on this machine
    #[arg(long)]
    pub test_clock: bool,
    /// Configuration file (TOML); flags and `REVEILLE__…` variables override it [default:
    /// /etc/reveille/reveille.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Prepares the data folder of the first node of a new cluster.
pub fn run(context: &CommandContext<'_>, args: InitArgs) -> Result<(), Stop> {
    let file = file_or_default(args.config);
    let config = Config::load(file.as_deref(), environment(), args.settings).map_err(config::failure)?;
    let mut contexts = Contexts::read()?;
    let tls = bootstrap::found(&config.data_dir, args.test_clock).map_err(|error| {
        let next = "give a data folder in which no node has run, or join a cluster: reveille start --join file:/PATH";
        Failure::new(Exit::General, "DATA_FOLDER", error.to_string(), next)
    })?;
    let cluster = tls.authority().cluster().to_string();
    let former = contexts.current.clone();
    let stored = if config.insecure { None } else { Some(first_context(&mut contexts, &config, &tls)?) };
    let Config { name, advertise, data_dir, .. } = config;
    let folder = data_dir.display().to_string();
    // `context` is null if clients need none.
    let own = json!({
        "cluster": cluster, "node": name, "address": advertise, "folder": folder, "context": stored,
    });
    let words = format!("cluster {cluster} of node {name} at {advertise}; keys and certificates are in {folder}/tls");
    context.terminal.show(&Answer::new(&Own(own), cluster, words))?;
    if stored.is_some() {
        say_in_use(context, &contexts, former.as_deref());
    }
    if args.test_clock {
        context.terminal.say("its clock is a test's, for good: no email of it ever leaves this machine");
    }
    let next = "next: reveille start with the same settings; then, for each other node: reveille cluster member add";
    context.terminal.say(next);
    Ok(())
}

/// Makes the first admin token of the new cluster, and stores how this user reaches it.
fn first_context(contexts: &mut Contexts, config: &Config, tls: &NodeTls) -> Result<String, Failure> {
    let token = first_token::make(&config.data_dir);
    let token = token.map_err(|error| Failure::general(error.to_string(), "make the data folder writable"))?;
    store(contexts, config, tls, &token)
}

/// Stores how this user reaches a new cluster, with its first admin token. Returns the name of the context.
pub fn store(contexts: &mut Contexts, config: &Config, tls: &NodeTls, token: &TokenText) -> Result<String, Failure> {
    let (ca, cluster) = (client_authority(config, tls)?, tls.authority().cluster().to_string());
    let name = contexts.name_for(&ca, cluster.get(..CLUSTER_DIGITS).unwrap_or(&cluster));
    let (host, port) = (config.listen.ip(), config.listen.port());
    let address = match config.advertise.rsplit_once(':') {
        Some((advertised, _)) if host.is_unspecified() => format!("{advertised}:{port}"),
        _ => config.listen.to_string(),
    };
    contexts.put(&name, Context { endpoints: vec![address], ca, token: Some(BearerToken(token.to_string())) });
    contexts.write()?;
    Ok(name)
}

/// Returns the authority that this user trusts: with a certificate of the operator, the last one of its chain. If only
/// the authority above it is trusted, `login --ca` names that.
fn client_authority(config: &Config, tls: &NodeTls) -> Result<String, Failure> {
    let Some(own) = &config.tls else { return Ok(tls.authority().certificate_pem().to_owned()) };
    let bad = |why: String| {
        Failure::general(format!("{}: {why}", own.certificate.display()), "give a certificate with its chain, as PEM")
    };
    let text = std::fs::read_to_string(&own.certificate).map_err(|error| bad(error.to_string()))?;
    last_certificate(&text).map_err(|error| bad(error.to_string()))
}
