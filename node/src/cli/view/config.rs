//! Output of `config …`.

use toml::Value;

use super::{Serialize, View};
use crate::server::config::Origin;

/// All keys with their effective values, as TOML or as a list of objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct EffectiveView {
    entries: Vec<EntryView>,
    /// True if the text shows the origins.
    #[serde(skip)]
    origin: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct EntryView {
    key: String,
    value: Value,
    /// Origin of the value: `default`, `file:line`, a variable or a flag.
    origin: String,
}

impl EffectiveView {
    /// Creates the view from [`ConfigLayer::effective`](crate::server::config::ConfigLayer::effective).
    pub fn new(effective: Vec<(String, Value, Origin)>, origin: bool) -> EffectiveView {
        let entry =
            |(key, value, origin): (String, Value, Origin)| EntryView { key, value, origin: origin.to_string() };
        EffectiveView { entries: effective.into_iter().map(entry).collect(), origin }
    }
}

impl View for EffectiveView {
    fn name(&self) -> String {
        self.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns an equivalent configuration file, with origins as comments.
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
    /// Returns the section and the line of the key.
    fn line(&self) -> (&str, String) {
        let (section, leaf) = self.key.rsplit_once('.').unwrap_or(("", &self.key));
        (section, format!("{leaf} = {}", self.value))
    }
}
