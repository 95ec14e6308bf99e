//! `reveille config …`: the file of `reveille start`, without a node.

use super::{Args, PathBuf, Settings, Subcommand};
use crate::server::config::DEFAULT_FILE;

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
