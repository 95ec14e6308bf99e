//! Checks settings and fills in defaults, so that later code needs no checks.
//!
//! [`ConfigLayer::check`](super::ConfigLayer::check) calls it, and it checks the values only. The files that they name
//! are read when the node starts, and by `reveille config check`.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reveille_cluster::compose::return_path::{ReturnPath, ReturnPathError};
use reveille_cluster::compose::unsubscribe::{Unsubscribe, UnsubscribeError};
use reveille_cluster::process::secret::Secret;
use reveille_cluster::smtp::{Binding, CredentialStore, Login, RelayRules, ReplyRules, Target};
use reveille_raft::tls::JoinToken;

use super::{
    Config, ConfigError, CredentialSettings, JoinSource, LogConfig, LogSettings, Origin, RaftConfig, RaftSettings,
    ReplySettings, ReturnPathConfig, Settings, UnsubscribeConfig, UnsubscribeSettings, source,
};
use crate::server::logging;

/// Default folder for the journal: a memory-backed file system (P11).
const JOURNAL_DIR: &str = "/dev/shm";
/// Minimum heartbeats in an election timeout: one or two lost heartbeats must not cause an election.
const HEARTBEATS_PER_ELECTION_MIN: u64 = 3;
/// Greatest `raft.election_max_ms`.
const ELECTION_MAX_MS: u64 = 60_000;

impl Settings {
    /// Returns the complete configuration, or the first invalid value.
    pub(super) fn check(self) -> Result<Config, ConfigError> {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let listen = self.listen.unwrap_or(loopback(Config::ADMIN_PORT));
        let peer_listen = self.peer_listen.unwrap_or(loopback(Config::PEER_PORT));
        let http = self.http.unwrap_or(loopback(Config::HTTP_PORT));
        let listeners = [("listen", listen), ("peer_listen", peer_listen), ("http", http)];
        let insecure = self.insecure.unwrap_or_default();
        if insecure {
            only_on_loopback(&[listeners[0], listeners[2]])?;
        }
        let unsubscribe = self.unsubscribe.check()?;
        let [admin, peers, pages] = listeners;
        match unsubscribe.url.is_empty() {
            true => apart(&listeners)?,
            // Unlike the others, this listener may be public: a request without a signed link gets no information.
            false => apart(&[admin, peers, pages, ("unsubscribe.listen", unsubscribe.listen)])?,
        }
        let advertise = advertised(self.advertise, peer_listen)?;
        let join = self.join.filter(|text| !text.is_empty()).map(|text| join_source(&text)).transpose()?;
        let credentials = self.credentials.into_iter().map(|(name, one)| Ok((name.clone(), one.check(&name)?)));
        let replies = self.replies.into_iter().map(|(name, one)| Ok((name.clone(), one.check(&name)?)));
        Ok(Config {
            name: named(self.name)?,
            hello_name: hello_name(self.hello_name.unwrap_or_default())?,
            return_path: return_path(self.return_path.unwrap_or_default(), &self.return_path_keys.unwrap_or_default())?,
            data_dir: self.data_dir.ok_or_else(|| {
                setting("data_dir", "it is not set", "say where with `data_dir = \"…\"` or --data-dir DIR")
            })?,
            listen,
            peer_listen,
            http,
            join,
            tls_names: self.tls_names.unwrap_or_default().into_iter().map(tls_name).collect::<Result<_, _>>()?,
            insecure,
            advertise,
            journal_dir: self.journal_dir.unwrap_or_else(|| JOURNAL_DIR.into()),
            shutdown: Duration::from_secs(within("shutdown_seconds", self.shutdown_seconds.unwrap_or(30), 10..=3_600)?),
            archive_after: Duration::from_secs(within(
                "archive_after_seconds",
                self.archive_after_seconds.unwrap_or(86_400),
                10..=31_536_000,
            )?),
            disk_reserve_mib: within("disk_reserve_mib", self.disk_reserve_mib.unwrap_or(256), 0..=65_536)?,
            raft: self.raft.check()?,
            tls: self.tls.check(insecure)?,
            unsubscribe,
            backup: self.backup.check()?,
            log: self.log.check()?,
            credentials: credentials.collect::<Result<_, ConfigError>>()?,
            replies: replies.collect::<Result<_, ConfigError>>()?,
        })
    }
}

impl ReplySettings {
    fn check(self, relay: &str) -> Result<PathBuf, ConfigError> {
        self.file.ok_or_else(|| {
            let next = format!("name the file of rules: file = \"/etc/reveille/{relay}-replies.toml\"");
            setting(format!("replies.{relay}.file"), "it is not set", &next)
        })
    }
}

impl Config {
    /// Reads the reply rules of each relay that has a file of them.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if a file cannot be read or a rule in it is invalid; the message has file, line and
    /// column.
    pub fn reply_rules(&self) -> Result<RelayRules, ConfigError> {
        self.replies.iter().map(|(relay, file)| Ok((relay.clone(), rules_of(relay, file)?))).collect()
    }
}

fn rules_of(relay: &str, file: &Path) -> Result<ReplyRules, ConfigError> {
    let refused = |message: String, next: &str| setting(format!("replies.{relay}.file"), message, next);
    let text = std::fs::read_to_string(file).map_err(|error| {
        refused(format!("{} cannot be read: {error}", file.display()), "name a file that this node can read")
    })?;
    ReplyRules::parse(&text).map_err(|bad| {
        let (line, column) = source::place(&text, bad.at);
        let message = format!("{}:{line}:{column}: {}", file.display(), source::explain(&bad.message));
        refused(message, "correct that rule; docs/how-to/relays.md has the form of rules")
    })
}

impl CredentialSettings {
    /// Checks the values only. The secret is read when a session opens, and by `reveille config check`.
    fn check(self, name: &str) -> Result<Binding, ConfigError> {
        if !(1..=64).contains(&name.len()) || !name.bytes().all(CredentialStore::may_name) {
            let message = format!("'{name}' cannot be the name of credentials");
            let next = "give a name of lower-case letters, digits, '-' and '_', at most 64";
            return Err(setting(format!("credentials.{name}"), message, next));
        }
        let at = |leaf: &str| format!("credentials.{name}.{leaf}");
        let missing = |leaf: &str, next: &str| setting(at(leaf), "it is not set", next);
        let host =
            self.host.ok_or_else(|| missing("host", "name the relay that gets them: host = \"smtp.example.com\""))?;
        if Target::new(&host, 25, None, &Default::default()).is_err() {
            return Err(setting(at("host"), format!("'{host}' is not a host"), "give a name or an address"));
        }
        let port = self.port.filter(|port| *port > 0);
        let port = port.ok_or_else(|| missing("port", "name the relay's port, such as port = 587"))?;
        let next = "write secret = \"file:/etc/reveille/ses\", or \"env:NAME\"";
        let secret = self.secret.ok_or_else(|| missing("secret", next))?;
        // The error does not repeat the text, because it may be the password itself.
        let secret = secret.parse::<Secret>().map_err(|error| setting(at("secret"), error.to_string(), next))?;
        let login = match self.mechanism.as_deref() {
            None | Some("password") => Login::Password,
            Some("xoauth2") => Login::Xoauth2,
            Some(other) => {
                let next = "write \"password\" or \"xoauth2\"";
                return Err(setting(at("mechanism"), format!("'{other}' is not known"), next));
            }
        };
        Ok(Binding { host, port, secret, login })
    }
}

impl RaftSettings {
    fn check(self) -> Result<RaftConfig, ConfigError> {
        let heartbeat_ms = within("raft.heartbeat_ms", self.heartbeat_ms.unwrap_or(50), 10..=10_000)?;
        let min = self.election_min_ms.unwrap_or(heartbeat_ms * 5);
        let least = heartbeat_ms * HEARTBEATS_PER_ELECTION_MIN;
        if min < least {
            let message = format!("{min} ms is below {HEARTBEATS_PER_ELECTION_MIN} heartbeats of {heartbeat_ms} ms");
            return Err(setting("raft.election_min_ms", message, "raise it, or lower raft.heartbeat_ms"));
        }
        // Below the greatest maximum, so that a maximum above it can be set.
        let min = within("raft.election_min_ms", min, least..=ELECTION_MAX_MS - 1)?;
        let max = self.election_max_ms.unwrap_or((min * 2).min(ELECTION_MAX_MS));
        if max <= min {
            let message = format!("{max} ms is not above raft.election_min_ms, {min} ms");
            return Err(setting("raft.election_max_ms", message, "raise it: twice the minimum does well"));
        }
        Ok(RaftConfig {
            heartbeat_ms,
            election_ms: min..within("raft.election_max_ms", max, 1..=ELECTION_MAX_MS)?,
            snapshot_every: within("raft.snapshot_every", self.snapshot_every.unwrap_or(20_000), 100..=10_000_000)?,
        })
    }
}

impl LogSettings {
    fn check(self) -> Result<LogConfig, ConfigError> {
        let filter = self.filter.unwrap_or_else(|| logging::DEFAULT_FILTER.to_owned());
        logging::filter(&filter).map_err(|why| setting("log.filter", why, "write a level, such as debug"))?;
        Ok(LogConfig { format: self.format.unwrap_or_default(), filter })
    }
}

impl UnsubscribeSettings {
    /// Checks the values only. The URL and the keys are read when the node starts, and by `reveille config check`.
    fn check(self) -> Result<UnsubscribeConfig, ConfigError> {
        let url = self.url.unwrap_or_default();
        let mailto = self.mailto.unwrap_or_default();
        let keys = self.keys.unwrap_or_default();
        let keys = references("unsubscribe.keys", &keys)?;
        if !url.is_empty() && keys.is_empty() {
            let next = "write keys = [\"file:/etc/reveille/unsubscribe.key\"], with the same key on all nodes";
            return Err(setting("unsubscribe.keys", "there is a url, and no key to sign links with", next));
        }
        if url.is_empty() && !(keys.is_empty() && mailto.is_empty()) {
            let next = "say where the page is, with url = \"https://HOST/PATH\"";
            return Err(setting("unsubscribe.url", "it is not set, and the rest of the section is", next));
        }
        let listen = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], Config::UNSUBSCRIBE_PORT)));
        Ok(UnsubscribeConfig { url, listen, mailto, keys })
    }
}

impl UnsubscribeConfig {
    /// Parses the addresses and reads the keys. Returns `None` if no URL is configured.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if the URL or the address is invalid, or a key cannot be read.
    pub fn open(&self) -> Result<Option<Unsubscribe>, ConfigError> {
        if self.url.is_empty() {
            return Ok(None);
        }
        let mailto = Some(self.mailto.as_str()).filter(|mailto| !mailto.is_empty());
        let opened = Unsubscribe::new(&self.url, mailto, &self.keys);
        opened.map(Some).map_err(|error| match error {
            UnsubscribeError::Url(why) => setting("unsubscribe.url", why, "write https://HOST/PATH"),
            UnsubscribeError::Mailto(why) => setting("unsubscribe.mailto", why, "write LOCAL@DOMAIN"),
            UnsubscribeError::Key(why) => {
                setting("unsubscribe.keys", why, "this node has to be able to read the same keys as all others")
            }
        })
    }
}

impl ReturnPathConfig {
    /// Parses the address and reads the keys. Returns `None` if no return path is configured.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if the address is invalid, or a key cannot be read.
    pub fn open(&self) -> Result<Option<ReturnPath>, ConfigError> {
        if self.address.is_empty() {
            return Ok(None);
        }
        ReturnPath::new(&self.address, &self.keys).map(Some).map_err(|error| match error {
            ReturnPathError::Address(why) => setting("return_path", why, "write LOCAL@DOMAIN"),
            ReturnPathError::Key(why) => {
                setting("return_path_keys", why, "this node has to be able to read the same keys as all others")
            }
        })
    }
}

/// Checks the values only. The address and the keys are read when the node starts, because a key may be in a file.
fn return_path(address: String, keys: &[String]) -> Result<ReturnPathConfig, ConfigError> {
    let keys = references("return_path_keys", keys)?;
    if address.is_empty() != keys.is_empty() {
        let next = "give both, or none: --return-path bounce@bounces.example.com --return-path-keys file:/PATH";
        let (key, lacks) = match address.is_empty() {
            true => ("return_path", "it is not set, and there are keys to sign its tokens with"),
            false => ("return_path_keys", "there is a return path, and no key to sign its tokens with"),
        };
        return Err(setting(key, lacks.to_owned(), next));
    }
    Ok(ReturnPathConfig { address, keys })
}

/// Parses the references to keys: `file:/path` or `env:NAME`.
fn references(setting_key: &'static str, keys: &[String]) -> Result<Vec<Secret>, ConfigError> {
    let reference = |key: &String| {
        // The error does not repeat the text, because it may be the key itself.
        let next = "write file:/etc/reveille/KEY, or env:NAME";
        key.parse::<Secret>().map_err(|error| setting(setting_key, format!("one of them {error}"), next))
    };
    keys.iter().map(reference).collect()
}

pub(super) fn setting(key: impl Into<Cow<'static, str>>, message: impl Into<String>, next: &str) -> ConfigError {
    ConfigError::Setting { key: key.into(), message: message.into(), next: next.to_owned(), origin: Origin::Default }
}

pub(super) fn within(key: &'static str, value: u64, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, ConfigError> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let next = format!("give a number from {} to {}", bounds.start(), bounds.end());
    Err(setting(key, format!("{value} is out of range"), &next))
}

fn named(name: Option<String>) -> Result<String, ConfigError> {
    let next = "give a name of letters, digits, '-', '_' and '.', at most 64, with `name = \"…\"` or --name NAME";
    let name = name.ok_or_else(|| setting("name", "it is not set", next))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(name)
    } else {
        Err(setting("name", format!("'{name}' cannot be a name"), next))
    }
}

/// Accepts a host name, or an address in brackets (RFC 5321 4.1.3). A name without a dot is allowed, because relays on
/// this machine or in closed networks may know it.
fn hello_name(name: String) -> Result<String, ConfigError> {
    let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match literal {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => address.parse::<std::net::Ipv4Addr>().is_ok(),
        },
        None if name.is_empty() => true,
        None => name.len() <= 253 && name.parse::<std::net::Ipv4Addr>().is_err() && name.split('.').all(is_label),
    };
    if fits {
        return Ok(name);
    }
    let next = "write the full name of this machine, such as mail-1.example.com, or its address as [192.0.2.1]";
    Err(setting("hello_name", format!("'{name}' is neither a host name nor an address in brackets"), next))
}

/// Returns true if `label` is a valid label of a host name (RFC 1123 2.1).
fn is_label(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&label.len()) && label.bytes().all(plain) && !label.starts_with('-') && !label.ends_with('-')
}

/// Refuses plaintext on addresses that others reach.
fn only_on_loopback(listeners: &[(&'static str, SocketAddr)]) -> Result<(), ConfigError> {
    match listeners.iter().find(|(_, address)| !address.ip().is_loopback()) {
        Some((key, address)) => {
            let message = format!("{address} can be reached by others, and insecure is plaintext without tokens");
            Err(setting(*key, message, "listen on 127.0.0.1, or leave insecure out: then clients use TLS"))
        }
        None => Ok(()),
    }
}

/// Accepts a host name or an IP address.
fn tls_name(name: String) -> Result<String, ConfigError> {
    if name.parse::<IpAddr>().is_ok() || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(name);
    }
    let next = "write names and addresses without ports, such as reveille.example.com";
    Err(setting("tls_names", format!("'{name}' is neither a host name nor an address"), next))
}

/// Parses the setting `join`. The error does not repeat the text, because it may be a token.
fn join_source(text: &str) -> Result<JoinSource, ConfigError> {
    if text.parse::<JoinToken>().is_ok() {
        return Ok(JoinSource::Token(text.to_owned()));
    }
    let next = "give the whole token that `reveille cluster member add` prints, or its place as file:/absolute/path or env:NAME";
    let bad = || setting("join", "it is not a join token, or not a whole one", next);
    text.parse().map(JoinSource::Secret).map_err(|_| bad())
}

fn apart(listeners: &[(&'static str, SocketAddr)]) -> Result<(), ConfigError> {
    for (place, (key, address)) in listeners.iter().enumerate() {
        let same = listeners.iter().take(place).find(|(_, earlier)| earlier == address && address.port() != 0);
        if let Some((other, _)) = same {
            return Err(setting(
                *key,
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
        Some(address) => {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            if host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) {
                let message = format!("'{address}' is not an address");
                return Err(setting("advertise", message, "write HOST:PORT, such as b.example.com:7601"));
            }
            match host.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(ip) if ip.is_unspecified() => {
                    Err(setting("advertise", format!("no peer can connect to {ip}, which names no machine"), next))
                }
                _ => Ok(address),
            }
        }
        None if peer_listen.ip().is_unspecified() => {
            let message = format!("it is not set, and no peer can connect to {}", peer_listen.ip());
            Err(setting("advertise", message, next))
        }
        None => Ok(peer_listen.to_string()),
    }
}
