//! The keys of the configuration as people read them: all of it is taken from [`Settings`] itself, its names,
//! its comments and what [`Settings::check`] makes of it. There is no second list that could differ.
//!
//! Called by `reveille config init`, which prints [`sample`], by `config show`, and by the test that holds
//! the table of docs/reference/configuration.md against [`keys`].

use std::fmt::Write;

use clap::{Args, Command};
use toml::{Table, Value};

use super::{CredentialSettings, RaftSettings, ReplySettings, Settings, UnsubscribeSettings};

/// Tells the keys of a section to a command.
type Augment = fn(Command) -> Command;
/// The sections of the file, each with what tells its keys.
const SECTIONS: [(&str, Augment); 5] = [
    ("", Settings::augment_args),
    ("raft", RaftSettings::augment_args),
    ("unsubscribe", UnsubscribeSettings::augment_args),
    ("credentials.ses", CredentialSettings::augment_args),
    ("replies.ses", ReplySettings::augment_args),
];
/// Sections of these have names of the operator's choice and no defaults: one of each stands for all.
const NAMED: [&str; 2] = ["credentials", "replies"];
/// What a sample says where there is no default.
const NAME: &str = "a";
const DATA_DIR: &str = "/var/lib/reveille";

/// One key.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigKey {
    /// With its section: `raft.heartbeat_ms`.
    pub name: String,
    /// The flag of `reveille start` that says the same, such as `--data-dir`; none: no flag does.
    pub flag: Option<String>,
    /// What it is for and in which unit.
    pub why: String,
    /// The default in words; none: it must be said, or it is empty.
    pub default: Option<String>,
    /// What it is when nothing is said; an example where something must be.
    pub value: Value,
}

impl ConfigKey {
    /// Must the operator set it?
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

/// All keys, in the order of the struct.
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
    let told = SECTIONS.iter().flat_map(|(section, augment)| {
        let command = augment(Command::new(""));
        command.get_arguments().map(|argument| (*section, argument.clone())).collect::<Vec<_>>()
    });
    told.filter_map(|(section, argument)| {
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

/// What settings say, by key, in the order of the struct, sections with names last; what they do not say is left out.
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

/// A file that says nothing but the defaults, with a line about each key.
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
            // A String takes whatever is written.
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

/// A value as people write it in a sentence.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn at<'t>(table: &'t Table, name: &str) -> Option<&'t Value> {
    let mut parts = name.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}
