//! Reads settings from a TOML file and from environment variables, and reports why they cannot be read.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use reveille_ledger::calendar::nearest_names;
use serde::Deserialize;
use toml::{Table, Value};

use super::settings::Over;
use super::{Origin, Origins, Settings, origin};

/// Prefix of environment variables that are settings: `REVEILLE__RAFT__HEARTBEAT_MS` is `raft.heartbeat_ms`.
const PREFIX: &str = "REVEILLE__";

/// Returns the environment variables of this process as texts.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(as_text)
}

/// Returns a variable as texts. `None`: it is not UTF-8, and no setting. In a setting that is not UTF-8,
/// [`char::REPLACEMENT_CHARACTER`] stands for the bytes that are none, and [`read_environment`] refuses it.
fn as_text((name, value): (OsString, OsString)) -> Option<(String, String)> {
    let name = name.into_string().ok()?;
    match value.into_string() {
        Ok(value) => Some((name, value)),
        Err(value) => name.starts_with(PREFIX).then(|| (name, value.to_string_lossy().into_owned())),
    }
}

/// Why a configuration is refused. The same configuration always fails: the operator corrects it and starts again.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{} cannot be read: {error}; name another with --config FILE", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system. It is not a `source`, because the message contains it already.
        error: std::io::Error,
    },
    /// A value or key in the file is invalid.
    #[error("{}:{line}:{column}: {message}\n{excerpt}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong, with the nearest known key if there is one.
        message: String,
        /// The line, with a marker under the column.
        excerpt: String,
    },
    /// The value or name of an environment variable is invalid.
    #[error("environment variable {name}: {message}")]
    Variable {
        /// Name of the variable.
        name: String,
        /// What is wrong, with the nearest known key if there is one.
        message: String,
    },
    /// All settings can be read, but one value is invalid.
    #[error("{key}: {message}{}; {next}", within(origin))]
    Setting {
        /// The key.
        key: Cow<'static, str>,
        /// The reason.
        message: String,
        /// What the operator can do.
        next: String,
        /// Where the value was set.
        origin: Origin,
    },
}

impl ConfigError {
    /// Adds the place where the setting was set.
    pub(super) fn with_origin(self, origins: &Origins) -> ConfigError {
        match self {
            ConfigError::Setting { key, message, next, .. } => {
                let origin = origins.get(&*key).cloned().unwrap_or_default();
                ConfigError::Setting { key, message, next, origin }
            }
            other => other,
        }
    }
}

fn within(origin: &Origin) -> String {
    match origin {
        Origin::Default => String::new(),
        said => format!(" ({said})"),
    }
}

/// The settings of one source, and where each was set.
#[derive(Default)]
pub struct ConfigPart {
    pub settings: Settings,
    pub origins: Origins,
}

/// Reads the settings in a TOML file.
pub fn read_file(path: &Path) -> Result<ConfigPart, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
    let settings = toml::from_str(&text).map_err(|error| in_file(path, &text, &error))?;
    Ok(ConfigPart { settings, origins: origin::of_file(path, &text) })
}

fn in_file(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let span = error.span().unwrap_or_default();
    let start = boundary(text, span.start);
    let (before, after) = text.split_at(start);
    let (line, column) = place(text, start);
    let head = before.rsplit('\n').next().unwrap_or_default();
    let tail = after.lines().next().unwrap_or_default();
    let marked = text.get(start..span.end).unwrap_or_default().lines().next().unwrap_or_default();
    let number = line.to_string();
    let excerpt = format!(
        "  {number} | {head}{tail}\n  {:width$} | {}{}",
        "",
        head.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect::<String>(),
        "^".repeat(marked.chars().count().max(1)),
        width = number.len(),
    );
    ConfigError::File { path: path.to_owned(), line, column, message: explain(error.message()), excerpt }
}

/// Returns line and column (in characters, both from 1) of the byte offset `at` in `text`.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let (before, _) = text.split_at(boundary(text, at));
    let head = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, head.chars().count() + 1)
}

fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Shortens `unknown field` errors: instead of all known names, the message has only the nearest one if there is one.
pub fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ") else { return message.replace('\n', " ") };
    let mut names = rest.split('`').skip(1).step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    match nearest_names(unknown, &known).first() {
        Some(near) => format!("unknown key `{unknown}`; did you mean `{near}`?"),
        None => format!("unknown key `{unknown}`; known are {}", known.join(", ")),
    }
}

/// Reads the variables that begin with `REVEILLE__`. Commas separate the items of a list.
pub fn read_environment(environment: impl IntoIterator<Item = (String, String)>) -> Result<ConfigPart, ConfigError> {
    let mut part = ConfigPart::default();
    for (name, value) in environment {
        if let Some(path) = name.strip_prefix(PREFIX) {
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(ConfigError::Variable { name, message: "its value is not UTF-8".to_owned() });
            }
            let one = read_variable(&path.to_lowercase(), &value)
                .map_err(|error| ConfigError::Variable { message: explain(error.message()), name: name.clone() })?;
            part.settings = one.over(part.settings);
            part.origins.insert(path.to_lowercase().replace("__", "."), Origin::Variable(name));
        }
    }
    Ok(part)
}

/// Tries the value as text, number, boolean and list, because a variable has no type.
fn read_variable(path: &str, value: &str) -> Result<Settings, toml::de::Error> {
    let number = value.parse().ok().map(Value::Integer);
    let truth = value.parse().ok().map(Value::Boolean);
    let list = value.split(',').filter(|item| !item.is_empty()).map(|item| Value::String(item.trim().to_owned()));
    let text = Value::String(value.to_owned());
    let others = [number, truth, Some(Value::Array(list.collect()))];
    let first = Settings::deserialize(nested(path, text));
    others
        .into_iter()
        .flatten()
        .fold(first, |read, value| read.or_else(|error| Settings::deserialize(nested(path, value)).map_err(|_| error)))
}

/// Turns `raft__heartbeat_ms` into nested tables.
fn nested(path: &str, value: Value) -> Value {
    path.split("__")
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .fold(value, |value, key| Value::Table(Table::from_iter([(key.to_owned(), value)])))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn variable_that_is_not_utf8_is_left_out_and_refused_as_a_setting() {
        let latin = |text: &str| OsString::from_vec([text.as_bytes(), b"\xe9"].concat());
        assert_eq!(as_text(("OLDPWD".into(), latin("/home/andr"))), None);
        assert_eq!(as_text((latin("REVEILLE__NAM"), "n1".into())), None);
        let setting = as_text(("REVEILLE__DATA_DIR".into(), latin("/srv/caf")));
        let refused = read_environment(setting).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("environment variable REVEILLE__DATA_DIR: its value is not UTF-8"));
    }
}
