//! `reveille config …`: reads and writes one file, and makes no request.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use toml::Value;

use super::{Answer, CommandContext, Exit, Failure, Own, Stop, View};
use crate::cli::doctor::folder;
use crate::cli::view::own_objects;
use crate::server::config::{
    ConfigError, ConfigLayer, DEFAULT_FILE, Origin, Settings, environment, file_or_default, keys, sample,
};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write a sample: every key, its default, and a line about it
    #[command(after_long_help = "Example:\n  reveille config init /etc/reveille/reveille.toml")]
    Init {
        /// The file to write; - prints it
        #[arg(default_value = "reveille.toml")]
        file: PathBuf,
    },
    /// Would `reveille start --config FILE` take this file, in this environment?
    #[command(after_long_help = "Example:\n  reveille config check reveille.toml")]
    Check {
        /// The file
        #[arg(default_value = DEFAULT_FILE)]
        file: PathBuf,
    },
    /// What counts: defaults, then the file, then REVEILLE__… variables, then flags
    #[command(after_long_help = "Example:\n  reveille config show --origin")]
    Show(Box<ShowConfigArgs>),
}

/// The places that `reveille start` reads.
#[derive(Debug, Args)]
pub struct ShowConfigArgs {
    /// Configuration file (TOML) [default: /etc/reveille/reveille.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say beside each value where it was said
    #[arg(long)]
    pub origin: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: ConfigCommand) -> Result<(), Stop> {
    match command {
        ConfigCommand::Init { file } if file.as_os_str() == "-" => {
            let own = Own(json!({ "text": sample() }));
            context.terminal.show(&Answer::new(&own, "reveille.toml", sample().trim_end()))
        }
        ConfigCommand::Init { file } => init(context, &file).await,
        ConfigCommand::Check { file } => check(context, &file).await,
        ConfigCommand::Show(args) => show(context, *args),
    }
}

async fn init(context: &CommandContext<'_>, file: &Path) -> Result<(), Stop> {
    let mut options = OpenOptions::new();
    options.write(true);
    let opened = match options.create_new(true).open(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            context.confirm(&format!("{} exists. Write the sample over it?", file.display())).await?;
            options.create_new(false).create(true).truncate(true).open(file)
        }
        opened => opened,
    };
    opened
        .and_then(|mut opened| opened.write_all(sample().as_bytes()))
        .map_err(|error| Failure::file(file.display().to_string(), format!("it cannot be written: {error}")))?;
    let (name, keys) = (file.display().to_string(), keys().len());
    let (own, words) = (Own(json!({ "file": name, "keys": keys })), format!("{name} written: {keys} keys"));
    context.terminal.show(&Answer::new(&own, name, words))?;
    context.terminal.say(&format!("next: reveille config check {}", file.display()));
    Ok(())
}

async fn check(context: &CommandContext<'_>, file: &Path) -> Result<(), Stop> {
    let said = ConfigLayer::read(Some(file), environment(), Settings::default()).map_err(failure)?;
    let config = said.check().map_err(failure)?;
    for (name, binding) in config.credentials.iter() {
        if let Err(message) = binding.check().await {
            let (key, next) = (format!("credentials.{name}.secret"), "let it lead to user:password on one line");
            let origin = said.origin(&key);
            return Err(
                failure(ConfigError::Setting { key: key.into(), message, next: next.to_owned(), origin }).into()
            );
        }
    }
    config.reply_rules().map_err(|error| failure(said.with_origin_of(error)))?;
    config.backup.check_credentials().map_err(|error| failure(said.with_origin_of(error)))?;
    config.return_path.open().map_err(|error| failure(said.with_origin_of(error)))?;
    if let Some(tls) = &config.tls {
        tls.open().map_err(|error| failure(said.with_origin_of(error)))?;
    }
    let (name, node) = (file.display().to_string(), &config.name);
    let own = Own(json!({ "file": name, "valid": true, "node": node }));
    let words = format!("{name} is good: node {node}");
    context.terminal.show(&Answer::new(&own, name, words))?;
    let hello_name = &config.hello_name;
    if !(hello_name.is_empty() || hello_name.contains('.') || hello_name.starts_with('[')) {
        context.terminal.say(&format!(
            "warning: hello_name {hello_name} has no dot: relays on other machines may refuse it with every email; write \
             the full name, such as {hello_name}.example.com"
        ));
    }
    // It may be right for the node and not for the user of this command, so it is a warning.
    if let Some(problem) = unwritable(&config.data_dir) {
        let next = "check it as the user of the node, or name another data_dir";
        context.terminal.say(&format!("warning: {problem}; {next}"));
    }
    // The folder may not exist yet. Its nearest existing ancestor shows on which file system it will be created.
    if let Some(folder) = config.journal_dir.ancestors().find(|folder| folder.exists())
        && folder::check_journal(folder).is_some()
    {
        let folder = config.journal_dir.display();
        let why = "each email may wait for that disk before it goes out";
        context.terminal.say(&format!(
            "warning: journal_dir {folder} is on a disk, not in memory: {why}; name one on a tmpfs, such as /dev/shm"
        ));
    }
    Ok(())
}

/// Says why the data folder, or the existing folder in which it will be created, cannot hold files. `None` if it can.
fn unwritable(data_dir: &Path) -> Option<String> {
    let existing = data_dir.ancestors().find(|folder| folder.exists())?;
    match existing.is_dir() {
        true => folder::check_writable("data_dir", existing).map(|finding| finding.what),
        false => Some(format!("data_dir {}: {} is not a folder", data_dir.display(), existing.display())),
    }
}

fn show(context: &CommandContext<'_>, args: ShowConfigArgs) -> Result<(), Stop> {
    let said = ConfigLayer::read(file_or_default(args.config).as_deref(), environment(), args.settings);
    let effective = said.and_then(|said| said.effective()).map_err(failure)?;
    context.terminal.show(&EffectiveView::new(effective, args.origin))
}

/// Converts a configuration error into a command failure: exit code 2, the place and the next step.
pub(super) fn failure(error: ConfigError) -> Failure {
    let usage =
        |field: String, message: String, next: &str| Failure::new(Exit::Usage, "CONFIG", message, next).at(field);
    match error {
        ConfigError::Unreadable { path, error } => {
            let (place, next) = (path.display(), "name another file, or write one: reveille config init FILE");
            usage(place.to_string(), format!("{place} cannot be read: {error}"), next)
        }
        ConfigError::File { path, line, column, message, excerpt } => {
            let next = "fix that line; every key, with its default: reveille config init -";
            usage(format!("{}:{line}:{column}", path.display()), format!("{message}\n{excerpt}"), next)
        }
        ConfigError::Variable { ref name, .. } => {
            usage(name.clone(), error.to_string(), "fix or unset that variable; every key: reveille config init -")
        }
        ConfigError::Setting { key, message, next, origin } => {
            let place = if origin == Default::default() { key.to_string() } else { origin.to_string() };
            usage(place, format!("{key}: {message}"), &next)
        }
    }
}

/// All keys with their effective values, as TOML or as a list of objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
struct EffectiveView {
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

own_objects!(EffectiveView);

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
