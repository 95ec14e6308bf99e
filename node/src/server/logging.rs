//! Configures logging: one line per event on stderr. Log lines contain no secrets and no email addresses ([`redact`]).
//! [`super::config`] has the settings.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// The filter if none is set.
pub const DEFAULT_FILTER: &str = "info";
/// What stands before every filter. openraft repeats warnings, such as a lost vote or an unreachable peer, at each
/// attempt; Reveille logs each once itself. h2 warns of each stream that a client resets, which can be thousands per
/// second.
const QUIET: &str = "openraft=error,h2=error,tonic=warn";
/// Punctuation in the local part of an address (RFC 5322 3.2.3).
const LOCAL_PUNCTUATION: &str = "!#$%&'*+-/=?^_`{|}~.";

/// True while Raft shuts down. Its tasks stop in any order, and openraft logs each stopped task as an error.
static RAFT_ENDS: AtomicBool = AtomicBool::new(false);

/// Form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object on each line.
    Json,
}

/// Changes the filter of the running logger.
pub struct LogFilter(reload::Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Applies another checked filter.
    pub fn replace(&self, text: &str) {
        let replaced = filter(text).map(|filter| self.0.reload(filter).map_err(|error| error.to_string()));
        if let Err(error) = replaced.flatten() {
            tracing::error!(error, "the former filter of the log stays");
        }
    }
}

/// Silences openraft from now on. Reveille itself still logs errors of the log and the state.
pub fn raft_ends() {
    RAFT_ENDS.store(true, Ordering::Relaxed);
}

/// Parses a filter: a level, or several `target=level`, with commas between them.
///
/// # Errors
/// Returns what is wrong.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    for item in text.split(',') {
        // Without `=` EnvFilter takes an unknown word as the name of a target.
        let level = item.rsplit_once('=').map_or(item, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("'{level}' is not a level"));
        }
    }
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| error.to_string())
}

/// Installs the logger of this process. Further calls change nothing.
///
/// # Errors
/// Returns what is wrong with the filter.
pub fn start(format: LogFormat, text: &str) -> Result<LogFilter, String> {
    let (filter, handle) = reload::Layer::new(filter(text)?);
    let raft =
        dynamic_filter_fn(|event, _| !(RAFT_ENDS.load(Ordering::Relaxed) && event.target().starts_with("openraft")));
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Redacting(io::stderr())).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Fails only if a logger is installed already.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter.and(raft))).try_init();
    Ok(LogFilter(handle))
}

/// Writes lines without addresses. A relay's answer may have any: no type of ours marks them.
struct Redacting<W>(W);

impl<W: Write> Write for Redacting<W> {
    /// The layer writes each line by one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(redact(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Replaces the local part of each email address in a line. The domain stays, because a relay's trouble often has one.
fn redact(line: &str) -> Cow<'_, str> {
    if !line.contains('@') {
        return Cow::Borrowed(line);
    }
    let is_local = |c: char| c.is_alphanumeric() || !c.is_ascii() || LOCAL_PUNCTUATION.contains(c);
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('@') {
        // In JSON a backslash may belong to the first character that goes, as in `\nann@example.org`.
        let kept = before.trim_end_matches(is_local);
        match kept.len() < before.len() {
            true => clean.extend([kept.trim_end_matches('\\'), "…@"]),
            false => clean.extend([before, "@"]),
        }
        rest = after;
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_part_of_each_address_is_replaced() {
        for (line, expected) in [
            ("550 5.1.1 <Ann.O'Hara+x@example.org>: no such user", "550 5.1.1 <…@example.org>: no such user"),
            ("a@b.example, c@d.example;mailto:é_1@xn--e.example", "…@b.example, …@d.example;mailto:…@xn--e.example"),
            ("bounce+ann=example.com@example.org", "…@example.org"),
            ("at 12:00 @daily, cost @ 3", "at 12:00 @daily, cost @ 3"),
            ("no address", "no address"),
        ] {
            assert_eq!(redact(line), expected);
        }
    }

    #[test]
    fn redacted_object_is_still_an_object() {
        for value in ["a\nann@example.org", "\\ann@example.org", "@daily", "x ann@example.org"] {
            let line = serde_json::json!({ "message": value, "ann@example.org": "@" }).to_string();
            let clean = redact(&line);
            assert!(!clean.contains("ann@"), "{clean}");
            serde_json::from_str::<serde_json::Value>(&clean).unwrap_or_else(|error| panic!("{clean}: {error}"));
        }
    }

    #[test]
    fn unknown_level_is_refused() {
        for good in ["debug", "warn,reveille_raft=trace", "off"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["debgu", "", "info,", "reveille=loud"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
