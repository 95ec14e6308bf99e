//! Where a node finds a secret of its own: a reference, never the secret.
//!
//! Written in the node's configuration, for the credentials of relays and the keys of unsubscribe links.

use std::fmt;
use std::str::FromStr;

use reveille_ledger::access::is_path;
use thiserror::Error;

/// Where a node finds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The only line of a file, by its absolute path.
    File(String),
    /// A variable of the node's environment.
    Env(String),
}

/// A text that is no reference to a secret. It does not repeat the text: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is not a reference to a secret; give file:/absolute/path or env:NAME")]
pub struct NoSecret;

/// The longest name of a variable, in bytes.
const NAME_MAX_BYTES: usize = 1_024;

impl FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Secret, NoSecret> {
        match text.split_once(':') {
            Some(("file", path)) if is_path(path) => Ok(Secret::File(path.to_owned())),
            Some(("env", name)) if is_variable(name) => Ok(Secret::Env(name.to_owned())),
            _ => Err(NoSecret),
        }
    }
}

fn is_variable(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= NAME_MAX_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::File(path) => write!(formatter, "file:{path}"),
            Secret::Env(name) => write!(formatter, "env:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_as_it_is_written() {
        for text in ["file:/etc/reveille/ses", "file:/a b:c", "env:SES_LOGIN", "env:_x1"] {
            assert_eq!(text.parse::<Secret>().map(|secret| secret.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_may_be_the_secret_itself_is_refused_and_not_repeated() {
        for text in ["anna:hunter2", "file:relative", "file:", "file:/a\n", "env:", "env:1X", "env:A B", "hunter2", ""]
        {
            let refused = text.parse::<Secret>().expect_err(text).to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
