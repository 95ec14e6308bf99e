//! `reveille start`: a node of a real cluster, until it is asked to stop.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use reveille_raft::FatalError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::server::bootstrap::BootstrapError;
use crate::server::config::{Config, Settings, environment, file_or_default};
use crate::server::node::{NodeEnd, NodeServer};
use crate::server::reload::ConfigReload;
use crate::server::{logging, service_manager};

/// Options of `reveille start`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  reveille start --config /etc/reveille/reveille.toml
  reveille start --name b --data-dir data/b --join file:/run/b.token

A file with every key: reveille config init. Before the first start: reveille cluster init, or a join token")]
pub struct Args {
    /// Configuration file (TOML); flags and `REVEILLE__…` variables override it [default:
    /// /etc/reveille/reveille.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The clock of this one-node cluster is right, although it was moved by more than an hour
    #[arg(long)]
    pub accept_clock: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// What a node says that was removed. It ends with exit code 0: a service manager must not start it again.
const REMOVED: &str = "it ends, and does not start again; to use this machine again, move its data folder away, and \
                       start it with a new token (reveille cluster member add)";

/// Runs a node.
pub async fn run(args: Args) -> Result<()> {
    let file = file_or_default(args.config);
    let config = Config::load(file.as_deref(), environment(), args.settings.clone())?;
    let filter = logging::start(config.log.format, &config.log.filter).map_err(|why| anyhow!(why))?;
    if let Some(file) = &file {
        tracing::info!(file = %file.display(), "configuration");
    }
    if cfg!(feature = "crash-points") {
        tracing::warn!("built with crash points: a variable can make this process crash. For tests alone");
    }
    if reveille_ledger::injected_bugs::COMPILED {
        tracing::warn!("built with injected bugs: a variable can make this process wrong. For tests alone");
    }
    let requested = stop_on_signal()?;
    let hangups = hangups()?;
    let running = config.clone();
    let node = match NodeServer::start(config, args.accept_clock, axum::Router::new(), &requested).await {
        Err(error) if matches!(error.downcast_ref(), Some(FatalError::Removed(_))) => {
            tracing::warn!("{error}; {REMOVED}");
            return Ok(());
        }
        Err(error) if matches!(error.downcast_ref(), Some(BootstrapError::Stopped)) => {
            tracing::info!(%error, "stopped");
            return Ok(());
        }
        started => started?,
    };
    tracing::info!(
        node = %node.context.me,
        admin = %node.admin_address,
        peers = %node.peer_address,
        http = %node.http_address,
        unsubscribe = node.unsubscribe_address.map(tracing::field::display),
        fingerprint = node.fingerprint,
        "listening"
    );
    if let Some(hangups) = hangups {
        let credentials = Arc::clone(&node.credentials);
        tokio::spawn(ConfigReload { file, flags: args.settings, running, filter, credentials }.run(hangups));
    }
    service_manager::ready(&node.context);
    match node.run(requested).await? {
        NodeEnd::Clean => tracing::info!("stopped"),
        NodeEnd::Removed => tracing::warn!("this node was removed from its cluster; {REMOVED}"),
        NodeEnd::LeftOpen => tracing::warn!("stopped with something left for the next start"),
    }
    Ok(())
}

/// SIGHUP asks for a reload. `None`: the node runs in a terminal, whose end sends the same signal and ends the node.
fn hangups() -> Result<Option<Signal>> {
    if std::io::stderr().is_terminal() {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some).context("SIGHUP")
}

/// A second signal within this is the same one: `timeout` and service managers signal a process and its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// SIGTERM and Ctrl-C ask for a graceful stop; a second one ends the process at once.
pub fn stop_on_signal() -> Result<CancellationToken> {
    let requested = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let stop = requested.clone();
    tokio::spawn(async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first.is_some_and(|first| first.elapsed() < SAME_SIGNAL) {
                continue;
            }
            if first.is_some() {
                tracing::warn!("asked twice to stop: this process ends now; the next start settles what is open");
                std::process::exit(130);
            }
            first = Some(Instant::now());
            service_manager::stopping();
            tracing::info!("stopping: what has not begun goes back, what is past its gate gets its answer");
            stop.cancel();
        }
    });
    Ok(requested)
}
