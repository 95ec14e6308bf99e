//! `reveille dead-letter …`.

use clap::{Args, Subcommand};

use super::{Paging, Picked};

/// The noun.
#[derive(Debug, Args)]
pub struct DeadLetterArgs {
    /// Tenant
    #[arg(long, global = true, default_value = "default")]
    pub tenant: String,
    /// What to do.
    #[command(subcommand)]
    pub command: DeadLetterCommand,
}

/// Its verbs.
#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// Who was refused for good, and why
    #[command(
        after_long_help = "Examples:\n  reveille dead-letter list\n  reveille dead-letter list --run r1042.0 -o json"
    )]
    List {
        /// How much.
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
    },
    /// Try again, with attempts counted anew
    #[command(
        after_long_help = "Examples:\n  reveille dead-letter requeue r1042.0 ann@example.com\n  reveille dead-letter requeue r1042.0 --all"
    )]
    Requeue(Picked),
    /// Take off the list; they stay dead
    #[command(after_long_help = "Example:\n  reveille dead-letter discard r1042.0 ann@example.com")]
    Discard(Picked),
}
