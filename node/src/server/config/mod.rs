//! The settings of a node of a real cluster: defaults, then the file, then `REVEILLE__…` variables
//! of the environment, then flags; the later one wins.
//!
//! Called by `start`, `dev` and `reveille config …`. [`Settings`] holds the values of one source or of all merged; its
//! doc comments are the help texts of the flags, of the sample and of the table in the docs ([`keys`]). [`Config`] is
//! complete, checked and typed. An error names the invalid setting, its place, and what to do. [`Config::load`] opens
//! no file but the configuration.

mod backup;
mod certificate;
mod check;
mod key;
mod origin;
mod settings;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reveille_cluster::process::secret::Secret;
use reveille_cluster::smtp::Binding;

use crate::server::logging::LogFormat;

pub use backup::{BackupConfig, BackupSettings};
pub use certificate::{CertificateConfig, TlsSettings};
#[cfg(test)]
pub use key::ConfigKey;
pub use key::{keys, sample, values};
pub use origin::{Origin, Origins};
use settings::Over;
pub use settings::{CredentialSettings, LogSettings, RaftSettings, ReplySettings, Settings, UnsubscribeSettings};
pub use source::{ConfigError, environment};

/// The complete configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's name.
    pub name: String,
    /// Name in EHLO. If empty: the machine's full name, else the address of each connection.
    pub hello_name: String,
    /// The envelope sender of its emails.
    pub return_path: ReturnPathConfig,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// Admin listener.
    pub listen: SocketAddr,
    /// Peer listener.
    pub peer_listen: SocketAddr,
    /// HTTP listener.
    pub http: SocketAddr,
    /// Address for peers, `host:port`.
    pub advertise: String,
    /// Where the join token of a new node is.
    pub join: Option<JoinSource>,
    /// The journal's folder.
    pub journal_dir: PathBuf,
    /// Further names in the certificate for clients.
    pub tls_names: Vec<String>,
    /// True if clients use plaintext, without tokens.
    pub insecure: bool,
    /// Maximum time that a stop waits for dialogues.
    pub shutdown: Duration,
    /// Time from the end of a run to its archiving.
    pub archive_after: Duration,
    /// Size of the reserve on the data volume.
    pub disk_reserve_mib: u64,
    /// Raft's timings.
    pub raft: RaftConfig,
    /// Certificate for clients as files. `None`: the cluster's authority issues one.
    pub tls: Option<CertificateConfig>,
    /// How recipients of bulk email opt out.
    pub unsubscribe: UnsubscribeConfig,
    /// Where backups are kept.
    pub backup: BackupConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Logins for relays.
    pub credentials: BTreeMap<String, Binding>,
    /// Files of rules for the answers of relays, by the relay's name.
    pub replies: BTreeMap<String, PathBuf>,
}

/// Where the join token of a new node is. Shows the token nowhere.
#[derive(Clone, PartialEq, Eq)]
pub enum JoinSource {
    /// The setting itself.
    Token(String),
    /// A file or a variable.
    Secret(Secret),
}

impl fmt::Display for JoinSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinSource::Token(_) => f.write_str("(a join token)"),
            JoinSource::Secret(secret) => write!(f, "{secret}"),
        }
    }
}

impl fmt::Debug for JoinSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How recipients of bulk email opt out. Only the values are checked, not the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubscribeConfig {
    /// If empty, there is no unsubscribe page.
    pub url: String,
    /// Address of the page's listener.
    pub listen: SocketAddr,
    /// An email address for opt-outs. Empty if there is none.
    pub mailto: String,
    /// The first one signs.
    pub keys: Vec<Secret>,
}

/// The envelope sender. Only the values are checked, not the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnPathConfig {
    /// If empty, the sender of each content is used.
    pub address: String,
    /// The first one signs.
    pub keys: Vec<Secret>,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// What is logged, checked.
    pub filter: String,
}

/// Raft's timings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// Interval of heartbeats.
    pub heartbeat_ms: u64,
    /// Range of election timeouts.
    pub election_ms: Range<u64>,
    /// Number of log entries between two snapshots.
    pub snapshot_every: u64,
}

/// The file of a node, unless another is named.
pub const DEFAULT_FILE: &str = "/etc/reveille/reveille.toml";

/// Returns the named file, else [`DEFAULT_FILE`] if it exists.
pub fn file_or_default(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()))
}

/// The merged settings, and the source of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigLayer {
    /// The settings: not checked, and without defaults.
    pub settings: Settings,
    origins: Origins,
}

impl ConfigLayer {
    /// Reads the file, if one is named. The environment overrides it, and flags override both.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Settings,
    ) -> Result<ConfigLayer, ConfigError> {
        let from_file = file.map(source::read_file).transpose()?.unwrap_or_default();
        let from_environment = source::read_environment(environment)?;
        let mut origins = from_file.origins;
        origins.extend(from_environment.origins);
        origins.extend(origin::of_flags(&flags));
        Ok(ConfigLayer { settings: flags.over(from_environment.settings.over(from_file.settings)), origins })
    }

    /// Fills in the defaults and checks all values.
    pub fn check(&self) -> Result<Config, ConfigError> {
        self.settings.clone().check().map_err(|error| self.with_origin_of(error))
    }

    /// Adds the source of the setting to an error.
    pub fn with_origin_of(&self, error: ConfigError) -> ConfigError {
        error.with_origin(&self.origins)
    }

    /// Returns the source of a key's value.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// Returns each key with its effective value and the source of that.
    pub fn effective(&self) -> Result<Vec<(String, toml::Value, Origin)>, ConfigError> {
        let all = key::values(&self.check()?.into());
        Ok(all.into_iter().map(|(name, value)| (name.clone(), value, self.origin(&name))).collect())
    }
}

impl Config {
    /// Admin port, unless another is named.
    pub const ADMIN_PORT: u16 = 7600;
    /// Peer port, unless another is named.
    pub const PEER_PORT: u16 = 7601;
    /// HTTP port, unless another is named.
    pub const HTTP_PORT: u16 = 7680;
    /// Port of the unsubscribe page, unless another is named.
    pub const UNSUBSCRIBE_PORT: u16 = 7681;

    /// Reads the settings of all sources, and checks them.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Settings,
    ) -> Result<Config, ConfigError> {
        ConfigLayer::read(file, environment, flags)?.check()
    }
}

#[cfg(test)]
mod tests;
