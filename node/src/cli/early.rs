//! Reads two flags before the parser runs: they decide how errors of the command line are shown.
//!
//! A mistyped flag must be reported like any other error: as an object with `-o json`, and without colours with
//! `--color never` or NO_COLOR.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ColorChoice, Command};

use super::args::Global;
use super::failure::{Exit, Failure};

/// How the raw arguments ask for errors to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    json: bool,
    color: ColorChoice,
}

impl Early {
    /// Reads the raw arguments. Unknown words are left to the parser.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Early {
        let words: Vec<String> = arguments.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let color = match value_of(&words, &["--color"]) {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            _ => ColorChoice::Auto,
        };
        Early { json: value_of(&words, &["--output", "-o"]) == Some("json"), color }
    }

    /// Returns the colour choice for the parser's own help and errors.
    pub fn color(self) -> ColorChoice {
        self.color
    }

    /// Prints the parser's output: help and version on stdout, an error on stderr.
    pub fn refuse(self, error: &clap::Error) -> ExitCode {
        let is_error = error.use_stderr();
        if is_error && self.json {
            eprintln!("{}", failure(error).to_json());
        } else {
            // Printing fails only if the reader closed the pipe, and then it is not needed.
            let _ = error.print();
        }
        let exit = if is_error { Exit::Usage } else { Exit::Done };
        exit.into()
    }
}

/// Removes the flags of every command from the usage line of an error. The parser lists each flag that has a value as
/// if it were required, and REVEILLE_URL gives one to `--endpoint`.
pub fn without_globals(mut error: clap::Error) -> clap::Error {
    let mut usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => return error,
    };
    let mut globals = Global::augment_args(Command::new("globals"));
    // An argument can be printed only after this.
    globals.build();
    for global in globals.get_arguments() {
        usage = usage.replace(&format!(" {global}"), "");
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    error
}

/// Returns the last value of a flag, written `--flag value`, `--flag=value`, `-f value` or `-fvalue`.
pub fn value_of<'a>(words: &'a [String], flags: &[&str]) -> Option<&'a str> {
    let words = words.split(|word| word == "--").next().unwrap_or_default();
    let mut found = None;
    for (place, word) in words.iter().enumerate() {
        for flag in flags {
            match word.strip_prefix(flag) {
                Some("") => found = words.get(place + 1).map(String::as_str),
                Some(rest) if rest.starts_with('=') => found = rest.get(1..),
                Some(rest) if !flag.starts_with("--") => found = Some(rest),
                _ => {}
            }
        }
    }
    found
}

fn failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let field = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let names = text.lines().skip(1).take_while(|line| !line.is_empty()).map(str::trim);
    let more = if missing { names.collect::<Vec<_>>().join(", ") } else { String::new() };
    let message = format!("{} {more}", first.trim_start_matches("error: "));
    Failure { field, ..Failure::new(Exit::Usage, "USAGE", message.trim_end(), "the same command with --help") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early(line: &str) -> Early {
        Early::read(line.split(' ').map(OsString::from))
    }

    #[test]
    fn two_flags_are_found_in_every_spelling() {
        for line in
            ["r -o json", "r -ojson x", "r -o=json", "r --output json", "r x --output=json", "r -o table -o json"]
        {
            assert!(early(line).json, "{line}");
        }
        for line in ["r", "r -o table", "r -- -o json", "r -o json -o table", "r --outputs json", "r -o"] {
            assert!(!early(line).json, "{line}");
        }
        assert_eq!(early("r --color never").color, ColorChoice::Never);
        assert_eq!(early("r --color=always").color, ColorChoice::Always);
        assert_eq!(early("r --color auto").color, ColorChoice::Auto);
    }
}
