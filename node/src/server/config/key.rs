//! The configuration keys with their descriptions. They are generated from [`Settings`]: its field names, its comments,
//! and the defaults of [`Settings::check`]. No second list can differ from it.
//!
//! `reveille config init` prints [`sample`], and `config show` uses [`values`]. A test compares the table of
//! docs/reference/configuration.md with [`keys`].

use std::fmt::Write;

use clap::{Args, Command};
use toml::{Table, Value};

use super::{
    BackupSettings, CredentialSettings, LogSettings, RaftSettings, ReplySettings, Settings, TlsSettings,
    UnsubscribeSettings,
};

/// Adds the keys of a section to a command.
type Augment = fn(Command) -> Command;
/// The sections of the file, each with the function that adds its keys.
const SECTIONS: [(&str, Augment); 8] = [
    ("", Settings::augment_args),
    ("raft", RaftSettings::augment_args),
    ("tls", TlsSettings::augment_args),
    ("unsubscribe", UnsubscribeSettings::augment_args),
    ("backup", BackupSettings::augment_args),
    ("log", LogSettings::augment_args),
    ("credentials.ses", CredentialSettings::augment_args),
    ("replies.ses", ReplySettings::augment_args),
];
/// In these sections the operator chooses the names of subsections. One example stands for all of them.
const NAMED: [&str; 2] = ["credentials", "replies"];
/// Example values in the sample, for keys without a default.
const NAME: &str = "a";
const DATA_DIR: &str = "/var/lib/reveille";

/// One configuration key.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigKey {
    /// Full name with its section: `raft.heartbeat_ms`.
    pub name: String,
    /// The flag of `reveille start` that sets it, such as `--data-dir`. `None` if there is no flag.
    pub flag: Option<String>,
    /// Its purpose and unit.
    pub why: String,
    /// The default as text. `None` if the key is required, or is empty by default.
    pub default: Option<String>,
    /// The default value. An example value if the key is required or belongs to an example section.
    pub value: Value,
}

impl ConfigKey {
    /// Returns true if the operator must set it.
    pub fn is_required(&self) -> bool {
        matches!(self.name.as_str(), "name" | "data_dir")
    }

    fn split(&self) -> (&str, &str) {
        self.name.rsplit_once('.').unwrap_or(("", &self.name))
    }

    fn is_example(&self) -> bool {
        is_example(self.split().0)
    }
}

fn is_example(section: &str) -> bool {
    section.split_once('.').is_some_and(|(named, _)| NAMED.contains(&named))
}

/// Returns all keys, in the order of the struct fields.
pub fn keys() -> Vec<ConfigKey> {
    let example = CredentialSettings {
        host: Some("smtp.example.com".into()),
        port: Some(587),
        secret: Some("file:/etc/reveille/ses".into()),
        mechanism: None,
    };
    let said = Settings {
        name: Some(NAME.into()),
        data_dir: Some(DATA_DIR.into()),
        credentials: [("ses".to_owned(), example)].into(),
        replies: [("ses".to_owned(), ReplySettings { file: Some("/etc/reveille/ses-replies.toml".into()) })].into(),
        ..Settings::default()
    };
    let insecure = Some(false);
    let defaults = said.check().map(|config| Settings { insecure, ..config.into() }).unwrap_or_default();
    let defaults = Table::try_from(defaults).unwrap_or_default();
    let arguments = SECTIONS.iter().flat_map(|(section, augment)| {
        let command = augment(Command::new(""));
        command.get_arguments().map(|argument| (*section, argument.clone())).collect::<Vec<_>>()
    });
    arguments
        .filter_map(|(section, argument)| {
            let leaf = argument.get_id().as_str();
            let name = if section.is_empty() { leaf.to_owned() } else { format!("{section}.{leaf}") };
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let (why, default) = match help.split_once(" [default: ") {
                Some((why, default)) => (why.to_owned(), Some(default.trim_end_matches(']').to_owned())),
                None => (help, None),
            };
            let flag = argument.get_long().map(|long| format!("--{long}"));
            Some(ConfigKey { value: at(&defaults, &name)?.clone(), name, flag, why, default })
        })
        .collect()
}

/// Returns the values that `settings` sets, by key, in the order of the struct fields. Named sections come last.
pub fn values(settings: &Settings) -> Vec<(String, Value)> {
    let table = Table::try_from(settings).unwrap_or_default();
    let fixed = keys().into_iter().filter(|key| !key.is_example());
    let fixed = fixed.filter_map(|key| Some((key.name.clone(), at(&table, &key.name)?.clone())));
    let named = NAMED.iter().flat_map(|named| {
        let sections = table.get(*named).and_then(Value::as_table).into_iter().flatten();
        sections.flat_map(move |(name, one)| {
            let leaves = one.as_table().into_iter().flatten();
            leaves.map(move |(leaf, value)| (format!("{named}.{name}.{leaf}"), value.clone()))
        })
    });
    fixed.chain(named).collect()
}

/// Returns a sample file. It sets the required keys, and has every other key as a comment with its default.
pub fn sample() -> String {
    let mut text = format!(
        "# Settings of a node of Reveille {}: reveille start --config FILE\n\
         # What is commented out is the default. REVEILLE__… variables of the environment (REVEILLE__RAFT__SNAPSHOT_EVERY)\n\
         # and flags win over this file: reveille config show --config FILE --origin\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut open = String::new();
    for key in keys() {
        let (section, leaf) = key.split();
        if section != open {
            let mark = if is_example(section) { "#" } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{mark}[{section}]\n");
            section.clone_into(&mut open);
        }
        let worded = key.default.as_ref().filter(|default| **default != plain(&key.value));
        let worded = worded.map(|default| format!(" (by default {default})")).unwrap_or_default();
        let mark = if key.is_required() { "" } else { "#" };
        let _ = write!(text, "\n# {}{worded}\n{mark}{leaf} = {}\n", key.why, key.value);
    }
    text
}

/// Formats a value for a sentence: strings without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn at<'t>(table: &'t Table, name: &str) -> Option<&'t Value> {
    let mut parts = name.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}
