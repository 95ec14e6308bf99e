//! What a node of a real cluster is told at its start: defaults, then the file, then `REVEILLE__…` variables
//! of the environment, then flags; the later one wins.
//!
//! Called by `start`. [`Settings`] is what may be said, in any of the three places; [`Config`] is what comes
//! of it: complete, checked, and typed. Whatever is refused is named with its place and a way out. It opens
//! no file but the configuration, and binds nothing.

mod source;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

pub use source::ConfigError;

/// A memory-backed file system, for the journal (P11).
const JOURNAL_DIR: &str = "/dev/shm";
/// A heartbeat that is lost once or twice must not cost an election.
const HEARTBEATS_PER_ELECTION_MIN: u64 = 3;

/// What may be said in the file, in the environment, or by flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The node's name, for people; unique in the cluster
    #[arg(long)]
    pub name: Option<String>,
    /// Where identity, log and state lie; one node's alone
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where the admin API listens [default: 127.0.0.1:7600]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Where peers are listened to [default: 127.0.0.1:7601]
    #[arg(long, value_name = "IP:PORT")]
    pub peer_listen: Option<SocketAddr>,
    /// Where health, metrics and console listen [default: 127.0.0.1:7680]
    #[arg(long, value_name = "IP:PORT")]
    pub http: Option<SocketAddr>,
    /// How peers reach this node [default: the address of --peer-listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Peer addresses of the other founders
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT,…")]
    pub join: Option<Vec<String>>,
    /// A folder on a memory-backed file system, for the journal [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub journal_dir: Option<PathBuf>,
    /// Listen on addresses that others reach, although nobody has to prove who they are
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// How long a stop waits for dialogues with relays [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub shutdown_seconds: Option<u64>,
    /// Raft's timings; in the file and the environment only.
    #[arg(skip)]
    pub raft: RaftSettings,
}

/// Raft's timings, as they may be said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftSettings {
    /// A leader shows itself this often. Default 50.
    pub heartbeat_ms: Option<u64>,
    /// A follower that hears nothing asks for votes after a time between this. Default 300.
    pub election_min_ms: Option<u64>,
    /// And this. Default 600.
    pub election_max_ms: Option<u64>,
    /// A snapshot is made after so many entries. Default 20,000.
    pub snapshot_every: Option<u64>,
    /// So many entries before a snapshot stay in the log. Default 5,000.
    pub log_keep: Option<u64>,
}

/// Everything that a node needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's name.
    pub name: String,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// Admin listener.
    pub listen: SocketAddr,
    /// Peer listener.
    pub peer_listen: SocketAddr,
    /// HTTP listener.
    pub http: SocketAddr,
    /// How peers reach it, `host:port`.
    pub advertise: String,
    /// The other founders' peer addresses; never its own.
    pub join: Vec<String>,
    /// The journal's folder.
    pub journal_dir: PathBuf,
    /// How long a stop waits for dialogues.
    pub shutdown: Duration,
    /// Raft's timings.
    pub raft: RaftConfig,
}

/// Raft's timings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// A leader shows itself this often.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing for a time drawn from this asks for votes.
    pub election_ms: Range<u64>,
    /// A snapshot is made after so many entries.
    pub snapshot_every: u64,
    /// So many entries before a snapshot stay in the log.
    pub log_keep: u64,
}

impl Config {
    /// Admin port, unless another is named.
    pub const ADMIN_PORT: u16 = 7600;
    /// Peer port, unless another is named.
    pub const PEER_PORT: u16 = 7601;
    /// HTTP port, unless another is named.
    pub const HTTP_PORT: u16 = 7680;

    /// Reads the file where one is named, lays environment and flags over it, and checks the whole.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the place (`file:line:column`, variable or key), the reason and a way out.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Settings,
    ) -> Result<Config, ConfigError> {
        let from_file = file.map(source::read_file).transpose()?.unwrap_or_default();
        let from_environment = source::read_environment(environment)?;
        flags.over(from_environment.over(from_file)).check()
    }
}

impl Settings {
    /// What is said here, and where nothing is, what is said below.
    fn over(self, below: Settings) -> Settings {
        Settings {
            name: self.name.or(below.name),
            data_dir: self.data_dir.or(below.data_dir),
            listen: self.listen.or(below.listen),
            peer_listen: self.peer_listen.or(below.peer_listen),
            http: self.http.or(below.http),
            advertise: self.advertise.or(below.advertise),
            join: self.join.or(below.join),
            journal_dir: self.journal_dir.or(below.journal_dir),
            insecure: self.insecure.or(below.insecure),
            shutdown_seconds: self.shutdown_seconds.or(below.shutdown_seconds),
            raft: self.raft.over(below.raft),
        }
    }

    fn check(self) -> Result<Config, ConfigError> {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let listen = self.listen.unwrap_or(loopback(Config::ADMIN_PORT));
        let peer_listen = self.peer_listen.unwrap_or(loopback(Config::PEER_PORT));
        let http = self.http.unwrap_or(loopback(Config::HTTP_PORT));
        let listeners = [("listen", listen), ("peer_listen", peer_listen), ("http", http)];
        closed(&listeners, self.insecure.unwrap_or_default())?;
        apart(&listeners)?;
        let advertise = advertised(self.advertise, peer_listen)?;
        let join = self.join.unwrap_or_default();
        join.iter().try_for_each(|address| host_and_port("join", address))?;
        Ok(Config {
            name: named(self.name)?,
            data_dir: self.data_dir.ok_or_else(|| {
                setting("data_dir", "it is not set".to_owned(), "say where with `data_dir = \"…\"` or --data-dir DIR")
            })?,
            listen,
            peer_listen,
            http,
            join: join.into_iter().filter(|address| *address != advertise).collect(),
            advertise,
            journal_dir: self.journal_dir.unwrap_or_else(|| JOURNAL_DIR.into()),
            shutdown: Duration::from_secs(within("shutdown_seconds", self.shutdown_seconds.unwrap_or(30), 0..=3_600)?),
            raft: self.raft.check()?,
        })
    }
}

impl RaftSettings {
    fn over(self, below: RaftSettings) -> RaftSettings {
        RaftSettings {
            heartbeat_ms: self.heartbeat_ms.or(below.heartbeat_ms),
            election_min_ms: self.election_min_ms.or(below.election_min_ms),
            election_max_ms: self.election_max_ms.or(below.election_max_ms),
            snapshot_every: self.snapshot_every.or(below.snapshot_every),
            log_keep: self.log_keep.or(below.log_keep),
        }
    }

    fn check(self) -> Result<RaftConfig, ConfigError> {
        let heartbeat_ms = within("raft.heartbeat_ms", self.heartbeat_ms.unwrap_or(50), 10..=10_000)?;
        let min = self.election_min_ms.unwrap_or(heartbeat_ms * 6);
        let max = self.election_max_ms.unwrap_or(min.saturating_mul(2));
        let least = heartbeat_ms * HEARTBEATS_PER_ELECTION_MIN;
        if min < least {
            let message = format!("{min} ms is below {HEARTBEATS_PER_ELECTION_MIN} heartbeats of {heartbeat_ms} ms");
            return Err(setting("raft.election_min_ms", message, "raise it, or lower raft.heartbeat_ms"));
        }
        if max <= min {
            let message = format!("{max} ms is not above raft.election_min_ms, {min} ms");
            return Err(setting("raft.election_max_ms", message, "raise it: twice the minimum does well"));
        }
        Ok(RaftConfig {
            heartbeat_ms,
            election_ms: min..within("raft.election_max_ms", max, 1..=60_000)?,
            snapshot_every: within("raft.snapshot_every", self.snapshot_every.unwrap_or(20_000), 100..=10_000_000)?,
            log_keep: within("raft.log_keep", self.log_keep.unwrap_or(5_000), 0..=10_000_000)?,
        })
    }
}

fn setting(key: &'static str, message: String, next: &str) -> ConfigError {
    ConfigError::Setting { key, message, next: next.to_owned() }
}

fn within(key: &'static str, value: u64, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, ConfigError> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let next = format!("give a number from {} to {}", bounds.start(), bounds.end());
    Err(setting(key, format!("{value} is out of range"), &next))
}

fn named(name: Option<String>) -> Result<String, ConfigError> {
    let next = "give a name of letters, digits, '-', '_' and '.', at most 64, with `name = \"…\"` or --name NAME";
    let name = name.ok_or_else(|| setting("name", "it is not set".to_owned(), next))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(name)
    } else {
        Err(setting("name", format!("'{name}' cannot be a name"), next))
    }
}

/// Nobody has to prove who they are yet: what others reach must be asked for in so many words.
fn closed(listeners: &[(&'static str, SocketAddr)], insecure: bool) -> Result<(), ConfigError> {
    let open = listeners.iter().find(|(_, address)| !address.ip().is_loopback());
    match open {
        Some((key, address)) if !insecure => {
            let message = format!("{address} can be reached by others, and there is no authentication yet");
            Err(setting(key, message, "listen on 127.0.0.1, or say --insecure if the network is yours alone"))
        }
        _ => Ok(()),
    }
}

fn apart(listeners: &[(&'static str, SocketAddr)]) -> Result<(), ConfigError> {
    for (place, (key, address)) in listeners.iter().enumerate() {
        let same = listeners.iter().take(place).find(|(_, earlier)| earlier == address && address.port() != 0);
        if let Some((other, _)) = same {
            return Err(setting(
                key,
                format!("{address} is that of `{other}` too"),
                "give each listener a port of its own",
            ));
        }
    }
    Ok(())
}

fn advertised(advertise: Option<String>, peer_listen: SocketAddr) -> Result<String, ConfigError> {
    let next = "say how peers reach this node, with `advertise = \"HOST:PORT\"` or --advertise HOST:PORT";
    match advertise {
        Some(address) => host_and_port("advertise", &address).map(|()| address),
        None if peer_listen.ip().is_unspecified() => {
            let message = format!("it is not set, and nobody can connect to {}", peer_listen.ip());
            Err(setting("advertise", message, next))
        }
        None => Ok(peer_listen.to_string()),
    }
}

fn host_and_port(key: &'static str, address: &str) -> Result<(), ConfigError> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) => Ok(()),
        _ => Err(setting(key, format!("'{address}' is no address"), "write HOST:PORT, such as b.example.com:7601")),
    }
}

#[cfg(test)]
mod tests;
