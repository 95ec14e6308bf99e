//! What `config …` prints.

use serde::Serialize;
use toml::Value;

use super::View;
use crate::server::config::Origin;

/// The sample, printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleView {
    /// All of it.
    pub text: String,
}

/// The sample, written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenView {
    /// Where.
    pub file: String,
    /// How many keys it names.
    pub keys: usize,
}

/// A file that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedView {
    /// Which.
    pub file: String,
    /// Always true: one that is not is an error.
    pub valid: bool,
    /// The node that it makes.
    pub node: String,
}

/// Every key with the value that counts: TOML again, or a list of objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct EffectiveView {
    entries: Vec<EntryView>,
    /// Are origins shown in the text?
    #[serde(skip)]
    origin: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct EntryView {
    key: String,
    value: Value,
    /// `default`, `file:line`, a variable or a flag.
    origin: String,
}

impl EffectiveView {
    /// From what [`ConfigLayer::effective`](crate::server::config::ConfigLayer::effective) gives.
    pub fn new(effective: Vec<(String, Value, Origin)>, origin: bool) -> EffectiveView {
        let entry =
            |(key, value, origin): (String, Value, Origin)| EntryView { key, value, origin: origin.to_string() };
        EffectiveView { entries: effective.into_iter().map(entry).collect(), origin }
    }
}

impl View for SampleView {
    fn name(&self) -> String {
        "reveille.toml".to_owned()
    }

    fn text(&self, _paint: bool) -> String {
        self.text.trim_end().to_owned()
    }
}

impl View for WrittenView {
    fn name(&self) -> String {
        self.file.clone()
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} written: {} keys", self.file, self.keys)
    }
}

impl View for CheckedView {
    fn name(&self) -> String {
        self.file.clone()
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} is good: node {}", self.file, self.node)
    }
}

impl View for EffectiveView {
    fn name(&self) -> String {
        self.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// A file that says the same, with origins as its comments.
    fn text(&self, _paint: bool) -> String {
        let mut lines = Vec::new();
        let mut open = "";
        let width = self.entries.iter().map(|entry| entry.line().1.chars().count()).max().unwrap_or_default();
        for entry in &self.entries {
            let (section, line) = entry.line();
            if section != open {
                lines.extend([String::new(), format!("[{section}]")]);
                open = section;
            }
            lines.push(if self.origin { format!("{line:width$}  # {}", entry.origin) } else { line });
        }
        lines.join("\n")
    }
}

impl EntryView {
    /// Its section, and its line there.
    fn line(&self) -> (&str, String) {
        let (section, leaf) = self.key.rsplit_once('.').unwrap_or(("", &self.key));
        (section, format!("{leaf} = {}", self.value))
    }
}
