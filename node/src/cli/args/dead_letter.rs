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
    List {
        /// How much.
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
    },
    /// Try again, with attempts counted anew
    Requeue(Picked),
    /// Take off the list; they stay dead
    Discard(Picked),
}
