//! `reveille dev`: one node and a mailbox that catches all emails, on loopback only.
//!
//! The first start creates a cluster of one node, whose relay is the mailbox. If a usual port is taken, the system
//! chooses another. The node is the same code as `reveille start`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_ledger::DEFAULT_POOL;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, Relay};
use reveille_sink::{Sink, SinkOptions};
use uuid::Uuid;

use crate::server::bootstrap::{self, BootstrapError};
use crate::server::config::{Config, Settings, UnsubscribeSettings};
use crate::server::logging::{self, LogFormat};
use crate::server::node::NodeServer;
use crate::server::start::stop_on_signal;

/// The mailbox's usual port.
const MAILBOX_PORT: u16 = 7625;
/// Maximum number of open sessions of the mailbox; further ones get 421. Below the usual limit of 1,024 open files.
const CONNECTIONS_MAX: usize = 512;
/// Maximum time until a new cluster has its first leader.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Sessions to the mailbox.
const SESSIONS: u32 = 8;

/// Options of `reveille dev`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  reveille dev
  reveille dev --test-clock --data-dir ./try      # then, elsewhere: reveille clock advance 365d

It prints where the mailbox's page is, and the address for --endpoint where it is not the usual one.")]
pub struct Args {
    /// Where everything durable lies
    #[arg(long, value_name = "DIR", default_value = "./.reveille")]
    pub data_dir: PathBuf,
    /// A folder on a memory-backed file system, for the journal
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub journal_dir: PathBuf,
    /// The machine's clock is right, although it was moved by more than an hour
    #[arg(long)]
    pub accept_clock: bool,
    /// Time that `reveille clock advance` moves forward; chosen at the first start, for good
    #[arg(long)]
    pub test_clock: bool,
    /// Listen on ports that the system chooses: beside another one, and for tests
    #[arg(long)]
    pub free_ports: bool,
}

/// Runs the node and its mailbox. `has_context`: the user's commands address another cluster unless told otherwise.
pub async fn run(args: Args, has_context: bool) -> Result<()> {
    logging::start(LogFormat::Text, logging::DEFAULT_FILTER).map_err(|why| anyhow::anyhow!(why))?;
    std::fs::create_dir_all(&args.data_dir)
        .with_context(|| format!("cannot create {}; give another folder with --data-dir", args.data_dir.display()))?;
    let sink = mailbox(&args)?;
    let requested = stop_on_signal()?;
    let pages = axum::Router::new().nest("/mailbox", crate::mailbox::pages(sink.handle()));
    let config = config(&args)?;
    found(&args)?;
    let node = NodeServer::start(config, args.accept_clock, pages, &requested).await?;
    let relay = Relay {
        name: "mailbox".to_owned(),
        pool: DEFAULT_POOL.to_owned(),
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: sink.address().port(),
        access: Access::default(),
        rate_milli: 0,
        max_sessions: SESSIONS,
        late_rate_milli: 0,
        weight: 1,
    };
    let context = node.context.clone();
    context
        .replica
        .propose(&Command::RelayPut(relay.into()), Instant::now() + FIRST_LEADER_TIMEOUT)
        .await
        .context("no leader yet")?;
    let has_test_clock = context.replica.read(|ledger| ledger.head().test_clock.is_some());
    if args.test_clock && !has_test_clock {
        anyhow::bail!("the cluster in {} keeps real time; give another --data-dir", args.data_dir.display());
    }
    eprintln!("admin     {}", node.admin_address);
    eprintln!("mailbox   http://{}/mailbox  (smtp://{})", node.http_address, sink.address());
    if let Some(page) = node.unsubscribe_address {
        eprintln!("opt-out   http://{page}, by the link in emails of --bulk");
    }
    eprintln!("health    http://{}/readyz", node.http_address);
    eprintln!("data      {}", args.data_dir.display());
    if has_test_clock {
        eprintln!("clock     a test's: `reveille clock advance 20h` moves it");
    }
    // Without a context commands come here by themselves, and so do the clients.
    if node.admin_address.port() != Config::ADMIN_PORT || has_context {
        eprintln!("\nfirst     export REVEILLE_URL=http://{}", node.admin_address);
    }
    eprintln!("\ntry       reveille schedule create hello --every 1m --zone UTC --to you@example.com \\");
    eprintln!("            --sender me@example.com --subject 'Hello' --text FILE");
    eprintln!("Ctrl-C ends it.\n");
    let ended = node.run(requested).await;
    sink.stop().await;
    ended.map(|_| ())
}

/// Returns the usual ports, or free ones where these are taken.
fn config(args: &Args) -> Result<Config> {
    let port = |usual: u16| -> SocketAddr {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, usual));
        let free = !args.free_ports && std::net::TcpListener::bind(address).is_ok();
        if free { address } else { SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) }
    };
    // Its address stands in emails, so it is known before it is listened at.
    let page = match port(Config::UNSUBSCRIBE_PORT) {
        free if free.port() == 0 => std::net::TcpListener::bind(free).and_then(|listener| listener.local_addr())?,
        usual => usual,
    };
    let unsubscribe = UnsubscribeSettings {
        url: Some(format!("http://{page}")),
        listen: Some(page),
        mailto: None,
        keys: Some(vec![format!("file:{}", key(&args.data_dir)?.display())]),
    };
    let settings = Settings {
        name: Some("dev".to_owned()),
        data_dir: Some(args.data_dir.clone()),
        journal_dir: Some(args.journal_dir.clone()),
        listen: Some(port(Config::ADMIN_PORT)),
        peer_listen: Some(port(Config::PEER_PORT)),
        http: Some(port(Config::HTTP_PORT)),
        insecure: Some(true),
        shutdown_seconds: Some(10),
        disk_reserve_mib: Some(0),
        unsubscribe,
        ..Settings::default()
    };
    Ok(Config::load(None, [], settings)?)
}

/// Returns the absolute path of the key for links in bulk email. The first start creates it.
fn key(folder: &Path) -> Result<PathBuf> {
    let folder = folder.canonicalize().with_context(|| format!("{} cannot be found", folder.display()))?;
    let path = folder.join("unsubscribe.key");
    let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = created.and_then(|mut file| write!(file, "{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()));
    match written {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("{} cannot be written", path.display()))
        }
        _ => Ok(path),
    }
}

/// Makes the cluster, at the first start.
fn found(args: &Args) -> Result<()> {
    match bootstrap::found(&args.data_dir, args.test_clock) {
        Ok(_) | Err(BootstrapError::Used(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mailbox(args: &Args) -> Result<Sink> {
    let options = |port| SinkOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        max_connections: CONNECTIONS_MAX,
        ..SinkOptions::default()
    };
    let usual = if args.free_ports { 0 } else { MAILBOX_PORT };
    Sink::start(options(usual)).or_else(|_| Sink::start(options(0))).context("the mailbox could not be started")
}
