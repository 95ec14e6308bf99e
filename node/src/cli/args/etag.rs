//! `--etag`: the condition of a change.

use super::Args;
use clap::builder::NonEmptyStringValueParser;

/// Makes a change only if nothing else was changed. Flattened into each command whose request has an etag.
#[derive(Clone, Debug, Args)]
pub struct EtagArgs {
    /// Only if it was not changed since: the `etag` that -o json shows of it
    #[arg(long, value_name = "ETAG", requires = "name", value_parser = NonEmptyStringValueParser::new())]
    etag: Option<String>,
}

impl EtagArgs {
    /// Returns the field of a request; empty without a condition.
    pub fn to_wire(&self) -> String {
        self.etag.clone().unwrap_or_default()
    }
}
