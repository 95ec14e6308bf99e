//! Where a value was said. The keys of a file are found with their lines, those of the environment and of the
//! command line by their names.
//!
//! Called by [`ConfigLayer::read`](super::ConfigLayer::read) and the reading of each place.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{Settings, key};

/// Where one value was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    #[default]
    Default,
    /// In the file.
    File {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// By this variable of the environment.
    Variable(String),
    /// By this flag.
    Flag(String),
}

/// By key, as `raft.heartbeat_ms`.
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

/// The keys of a file that could be read.
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

/// What flags say.
pub fn of_flags(flags: &Settings) -> Origins {
    let said = key::values(flags).into_iter();
    said.map(|(name, _)| (name.clone(), Origin::Flag(format!("--{}", name.replace('_', "-"))))).collect()
}
