//! `reveille optout …`.

use clap::{Args, Subcommand};

/// The noun.
#[derive(Debug, Args)]
pub struct OptOutArgs {
    /// Tenant
    #[arg(long, global = true, default_value = "default")]
    pub tenant: String,
    /// What to do.
    #[command(subcommand)]
    pub command: OptOutCommand,
}

/// Its verbs.
#[derive(Debug, Subcommand)]
pub enum OptOutCommand {
    /// Send no more to an address; answers when it holds on every node
    ///
    /// Hand-offs that were past the last check are named: they may still arrive.
    #[command(after_long_help = "Example:\n  reveille optout add ann@example.com")]
    Add {
        /// The address
        recipient: String,
    },
    /// Has an address opted out?
    #[command(after_long_help = "Example:\n  reveille optout check ann@example.com")]
    Check {
        /// The address
        recipient: String,
    },
}
