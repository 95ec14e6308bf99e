//! [`Settings`]: the values of one source, or of all sources merged, before any check.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use reveille_cluster::smtp::{Binding, Login};
use serde::{Deserialize, Serialize};

use super::{BackupSettings, Config, TlsSettings};
use crate::server::logging::LogFormat;

/// Optional settings from the file, the environment or flags.
///
/// The first paragraph of each doc comment is a help text for operators. It ends with `[default: …]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The node's name, for people; unique in the cluster; letters, digits, -, _ and ., at most 64
    #[arg(long)]
    pub name: Option<String>,
    /// The name that relays get in EHLO: this machine's full name in the DNS, or [ADDRESS]; many relays refuse a name
    /// without a dot [default: the FQDN, else the address]
    #[arg(long, value_name = "NAME")]
    pub hello_name: Option<String>,
    /// The envelope sender, such as bounce@bounces.example.com: each email gets +TOKEN before its @; the same on all
    /// nodes [default: the content's sender]
    #[arg(long, value_name = "ADDRESS")]
    pub return_path: Option<String>,
    /// Keys for its tokens, as file:/path or env:NAME, the same on all nodes; the first signs, all are accepted
    #[arg(long, value_delimiter = ',', value_name = "SECRET,…")]
    pub return_path_keys: Option<Vec<String>>,
    /// The folder of identity, log and state: everything durable; for one node only
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where the API (gRPC and HTTP) listens [default: 127.0.0.1:7600]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Where the node listens for peers [default: 127.0.0.1:7601]
    #[arg(long, value_name = "IP:PORT")]
    pub peer_listen: Option<SocketAddr>,
    /// Where health, metrics and pages listen [default: 127.0.0.1:7680]
    #[arg(long, value_name = "IP:PORT")]
    pub http: Option<SocketAddr>,
    /// How peers reach this node, as host:port [default: the address of peer_listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// The join token of a new node, or its place as file:/path or env:NAME: `reveille cluster member add` prints it
    #[arg(long, value_name = "TOKEN")]
    pub join: Option<String>,
    /// A folder on a memory-backed file system, for the journal [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub journal_dir: Option<PathBuf>,
    /// Further host names and addresses in the certificate for clients: it has those of the listeners, of advertise and
    /// of this machine
    #[arg(long, value_delimiter = ',', value_name = "HOST,…")]
    pub tls_names: Option<Vec<String>>,
    /// Serve admin API and HTTP in plaintext and without tokens, on loopback only; for trials [default: false]
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// How long a stop waits for dialogues with relays, in seconds; 10 to 3600 [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub shutdown_seconds: Option<u64>,
    /// How long after its end a run leaves the replicated state for the archive, in seconds; 10 to 31536000
    /// [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    pub archive_after_seconds: Option<u64>,
    /// Space that is kept on the data volume for when it is full, in MiB, at most a twentieth of it; 0 to 65536 [default:
    /// 256]
    #[arg(long, value_name = "MIB")]
    pub disk_reserve_mib: Option<u64>,
    /// Raft's timings; in the file and the environment only.
    #[arg(skip)]
    pub raft: RaftSettings,
    /// A certificate of your own authority for clients; in the file and the environment only.
    #[arg(skip)]
    pub tls: TlsSettings,
    /// How recipients of bulk mail opt out; in the file and the environment only.
    #[arg(skip)]
    pub unsubscribe: UnsubscribeSettings,
    /// Where backups are kept; in the file and the environment only.
    #[arg(skip)]
    pub backup: BackupSettings,
    /// What the node logs; in the file and the environment only.
    #[arg(skip)]
    pub log: LogSettings,
    /// What this node logs in with at relays, by name; in the file and the environment only.
    #[arg(skip)]
    pub credentials: BTreeMap<String, CredentialSettings>,
    /// What the answers of a relay mean, by the relay's name; in the file and the environment only.
    #[arg(skip)]
    pub replies: BTreeMap<String, ReplySettings>,
}

/// Settings of section `raft`. No command has them as flags: `clap` keeps their help texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct RaftSettings {
    /// The interval of a leader's heartbeats, in milliseconds; 10 to 10000 [default: 50]
    pub heartbeat_ms: Option<u64>,
    /// A follower that hears nothing asks for votes after a time between this, in milliseconds, at least 3
    /// heartbeats [default: 5 heartbeats]
    pub election_min_ms: Option<u64>,
    /// The longest such time, in milliseconds, at most 60000 [default: twice election_min_ms]
    pub election_max_ms: Option<u64>,
    /// A snapshot is made after so many log entries, and the log keeps those of two snapshots; 100 to 10000000
    /// [default: 20000]
    pub snapshot_every: Option<u64>,
}

/// Settings of section `unsubscribe`: how recipients of bulk mail opt out. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct UnsubscribeSettings {
    /// The address of the unsubscribe page, as https://HOST/PATH; a proxy with TLS forwards it to `listen`
    pub url: Option<String>,
    /// Where that page listens, if there is a url [default: 127.0.0.1:7681]
    pub listen: Option<SocketAddr>,
    /// An email address that takes such requests too
    pub mailto: Option<String>,
    /// Keys for its links, as file:/path or env:NAME, the same on all nodes; the first signs, all are accepted
    pub keys: Option<Vec<String>>,
}

/// Settings of section `log`. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// text: a line for people, or json: an object on each line [default: text]
    pub format: Option<LogFormat>,
    /// From which level on events are logged: error, warn, info, debug or trace; for one part too, as in
    /// info,reveille_raft=debug [default: info]
    pub filter: Option<String>,
}

/// Settings of one section `credentials.NAME`. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct CredentialSettings {
    /// The only host that they are sent to, as `reveille relay add` gives it
    pub host: Option<String>,
    /// The only port that they are sent to
    pub port: Option<u16>,
    /// The place of user:password, as file:/path or env:NAME; read at each login
    pub secret: Option<String>,
    /// password (AUTH PLAIN or LOGIN), or xoauth2, where the password is an access token that another program renews in
    /// time [default: password]
    pub mechanism: Option<String>,
}

/// Settings of one section `replies.RELAY`. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ReplySettings {
    /// A file of rules that are tried before the built-in ones, for the answers of the relay of that name
    pub file: Option<PathBuf>,
}

impl From<Config> for Settings {
    /// Returns all values as explicit settings. The join token is masked.
    fn from(config: Config) -> Settings {
        Settings {
            name: Some(config.name),
            hello_name: Some(config.hello_name),
            return_path: Some(config.return_path.address),
            return_path_keys: Some(config.return_path.keys.iter().map(ToString::to_string).collect()),
            data_dir: Some(config.data_dir),
            listen: Some(config.listen),
            peer_listen: Some(config.peer_listen),
            http: Some(config.http),
            advertise: Some(config.advertise),
            join: Some(config.join.map_or_else(String::new, |source| source.to_string())),
            journal_dir: Some(config.journal_dir),
            tls_names: Some(config.tls_names),
            insecure: Some(config.insecure),
            shutdown_seconds: Some(config.shutdown.as_secs()),
            archive_after_seconds: Some(config.archive_after.as_secs()),
            disk_reserve_mib: Some(config.disk_reserve_mib),
            raft: RaftSettings {
                heartbeat_ms: Some(config.raft.heartbeat_ms),
                election_min_ms: Some(config.raft.election_ms.start),
                election_max_ms: Some(config.raft.election_ms.end),
                snapshot_every: Some(config.raft.snapshot_every),
            },
            tls: config.tls.into(),
            unsubscribe: UnsubscribeSettings {
                url: Some(config.unsubscribe.url),
                listen: Some(config.unsubscribe.listen),
                mailto: Some(config.unsubscribe.mailto),
                keys: Some(config.unsubscribe.keys.iter().map(ToString::to_string).collect()),
            },
            backup: config.backup.into(),
            log: LogSettings { format: Some(config.log.format), filter: Some(config.log.filter) },
            credentials: config.credentials.iter().map(|(name, binding)| (name.clone(), binding.into())).collect(),
            replies: config
                .replies
                .into_iter()
                .map(|(name, file)| (name, ReplySettings { file: Some(file) }))
                .collect(),
        }
    }
}

impl Settings {
    /// Returns these settings; those of `below` where none is set.
    pub(super) fn over(self, below: Settings) -> Settings {
        Settings {
            name: self.name.or(below.name),
            hello_name: self.hello_name.or(below.hello_name),
            return_path: self.return_path.or(below.return_path),
            return_path_keys: self.return_path_keys.or(below.return_path_keys),
            data_dir: self.data_dir.or(below.data_dir),
            listen: self.listen.or(below.listen),
            peer_listen: self.peer_listen.or(below.peer_listen),
            http: self.http.or(below.http),
            advertise: self.advertise.or(below.advertise),
            join: self.join.or(below.join),
            journal_dir: self.journal_dir.or(below.journal_dir),
            tls_names: self.tls_names.or(below.tls_names),
            insecure: self.insecure.or(below.insecure),
            shutdown_seconds: self.shutdown_seconds.or(below.shutdown_seconds),
            archive_after_seconds: self.archive_after_seconds.or(below.archive_after_seconds),
            disk_reserve_mib: self.disk_reserve_mib.or(below.disk_reserve_mib),
            raft: self.raft.over(below.raft),
            tls: self.tls.over(below.tls),
            unsubscribe: self.unsubscribe.over(below.unsubscribe),
            backup: self.backup.over(below.backup),
            log: self.log.over(below.log),
            credentials: over_each(self.credentials, below.credentials, CredentialSettings::over),
            replies: over_each(self.replies, below.replies, |above, below| ReplySettings {
                file: above.file.or(below.file),
            }),
        }
    }
}

/// The values of `above` win, key by key of each section.
fn over_each<T: Default>(
    above: BTreeMap<String, T>,
    below: BTreeMap<String, T>,
    over: impl Fn(T, T) -> T,
) -> BTreeMap<String, T> {
    above.into_iter().fold(below, |mut all, (name, one)| {
        let under = all.remove(&name).unwrap_or_default();
        all.insert(name, over(one, under));
        all
    })
}

impl CredentialSettings {
    fn over(self, below: CredentialSettings) -> CredentialSettings {
        CredentialSettings {
            host: self.host.or(below.host),
            port: self.port.or(below.port),
            secret: self.secret.or(below.secret),
            mechanism: self.mechanism.or(below.mechanism),
        }
    }
}

impl From<&Binding> for CredentialSettings {
    fn from(binding: &Binding) -> CredentialSettings {
        CredentialSettings {
            host: Some(binding.host.clone()),
            port: Some(binding.port),
            secret: Some(binding.secret.to_string()),
            mechanism: Some(
                match binding.login {
                    Login::Password => "password",
                    Login::Xoauth2 => "xoauth2",
                }
                .to_owned(),
            ),
        }
    }
}

impl UnsubscribeSettings {
    fn over(self, below: UnsubscribeSettings) -> UnsubscribeSettings {
        UnsubscribeSettings {
            url: self.url.or(below.url),
            listen: self.listen.or(below.listen),
            mailto: self.mailto.or(below.mailto),
            keys: self.keys.or(below.keys),
        }
    }
}

impl LogSettings {
    fn over(self, below: LogSettings) -> LogSettings {
        LogSettings { format: self.format.or(below.format), filter: self.filter.or(below.filter) }
    }
}

impl RaftSettings {
    fn over(self, below: RaftSettings) -> RaftSettings {
        RaftSettings {
            heartbeat_ms: self.heartbeat_ms.or(below.heartbeat_ms),
            election_min_ms: self.election_min_ms.or(below.election_min_ms),
            election_max_ms: self.election_max_ms.or(below.election_max_ms),
            snapshot_every: self.snapshot_every.or(below.snapshot_every),
        }
    }
}
