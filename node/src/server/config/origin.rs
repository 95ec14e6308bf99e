//! Where a value was set: the line in the file, the environment variable, or the flag.
//!
//! [`ConfigLayer::read`](super::ConfigLayer::read) and [`super::source`] call it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{Settings, key};

/// Where one value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The value was not set: the default applies.
    #[default]
    Default,
    /// The value was set in the file.
    File {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// The value was set by this environment variable.
    Variable(String),
    /// The value was set by this flag.
    Flag(String),
}

/// The origins by full key name, such as `raft.heartbeat_ms`.
pub type Origins = BTreeMap<String, Origin>;

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// Returns the origins of all keys in a file. The file has been parsed without error.
pub fn of_file(path: &Path, text: &str) -> Origins {
    let mut origins = Origins::new();
    if let Ok(table) = DeTable::parse(text) {
        collect(&mut origins, table.get_ref(), "", &|span: Range<usize>| Origin::File {
            path: path.to_owned(),
            line: text.get(..span.start).unwrap_or(text).matches('\n').count() + 1,
        });
    }
    origins
}

fn collect(origins: &mut Origins, table: &DeTable<'_>, above: &str, place: &impl Fn(Range<usize>) -> Origin) {
    for (key, value) in table {
        let name = format!("{above}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(origins, inner, &format!("{name}."), place),
            _ => drop(origins.insert(name, place(key.span()))),
        }
    }
}

/// Returns the origins of all keys that flags set.
pub fn of_flags(flags: &Settings) -> Origins {
    let said = key::values(flags).into_iter();
    said.map(|(name, _)| (name.clone(), Origin::Flag(format!("--{}", name.replace('_', "-"))))).collect()
}
