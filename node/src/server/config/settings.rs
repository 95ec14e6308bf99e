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
    /// Space that is kept on the data volume for when it is full, in MiB, at most a twentieth of it; 0 to 65536
    /// [default: 256]
    #[arg(long, value_name = "MIB")]
    pub disk_reserve_mib: Option<u64>,
    /// Raft's timings; in the file and the environment only.
    #[arg(skip)]
    pub raft: RaftSettings,
    /// A certificate of your own authority for clients; in the file and the environment only.
    #[arg(skip)]
    pub tls: TlsSettings,
    /// How recipients of bulk email opt out; in the file and the environment only.
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
    /// A follower that hears nothing asks for votes after a time between this, in milliseconds, 3 heartbeats to
    /// 59999 [default: 5 heartbeats]
    pub election_min_ms: Option<u64>,
    /// The longest such time, in milliseconds, at most 60000 [default: twice election_min_ms, or 60000]
    pub election_max_ms: Option<u64>,
    /// A snapshot is made after so many log entries, and the log keeps those of two snapshots; 100 to 10000000
    /// [default: 20000]
    pub snapshot_every: Option<u64>,
}

/// Settings of section `unsubscribe`: how recipients of bulk email opt out. No command has them as flags.
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

/// Settings of one source, and below them those of another.
pub trait Over {
    /// Returns these settings; those of `below` where none is set.
    fn over(self, below: Self) -> Self;
}

impl<T> Over for Option<T> {
    fn over(self, below: Option<T>) -> Option<T> {
        self.or(below)
    }
}

/// Key by key of each section.
impl<T: Over + Default> Over for BTreeMap<String, T> {
    fn over(self, below: BTreeMap<String, T>) -> BTreeMap<String, T> {
        self.into_iter().fold(below, |mut all, (name, one)| {
            let under = all.remove(&name).unwrap_or_default();
            all.insert(name, one.over(under));
            all
        })
    }
}

macro_rules! over {
    ($($settings:ident { $($field:ident),* })*) => {$(
        impl Over for $settings {
            fn over(self, below: $settings) -> $settings {
                $settings { $($field: self.$field.over(below.$field),)* }
            }
        }
    )*};
}
over! {
    Settings {
        name, hello_name, return_path, return_path_keys, data_dir, listen, peer_listen, http, advertise, join,
        journal_dir, tls_names, insecure, shutdown_seconds, archive_after_seconds, disk_reserve_mib, raft, tls,
        unsubscribe, backup, log, credentials, replies
    }
    BackupSettings { target, endpoint, region, credentials, every_seconds, keep }
    CredentialSettings { host, port, secret, mechanism }
    LogSettings { format, filter }
    RaftSettings { heartbeat_ms, election_min_ms, election_max_ms, snapshot_every }
    ReplySettings { file }
    TlsSettings { certificate, key }
    UnsubscribeSettings { url, listen, mailto, keys }
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
