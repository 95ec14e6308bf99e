//! `reveille audience …`.

use clap::{Args, Subcommand};

use super::Paging;

/// The noun.
#[derive(Debug, Args)]
pub struct AudienceArgs {
    /// Tenant
    #[arg(long, global = true, default_value = "default")]
    pub tenant: String,
    /// What to do.
    #[command(subcommand)]
    pub command: AudienceCommand,
}

/// Its verbs.
#[derive(Debug, Subcommand)]
pub enum AudienceCommand {
    /// Make an audience of a number, to try what your relay and your machines carry
    ///
    /// Its addresses are under .invalid, so that a relay delivers to nobody: point it at a sink. Every node writes
    /// the recipients to its own disk, some 40 bytes each; sealed once a majority has them.
    #[command(
        after_long_help = "Example:\n  reveille audience generate million --recipients 1000000 --column name\n  \
                           reveille schedule create trial --audience million --at 2026-12-01T09:00:00Z --tz UTC \\\n      \
                           --sender news@example.com --subject 'Hello {{ name }}' --inline-text 'A trial.'"
    )]
    Generate(GenerateArgs),
    /// Sealed audiences, by name
    #[command(after_long_help = "Example:\n  reveille audience list -o json")]
    List(Paging),
    /// One of them
    #[command(after_long_help = "Example:\n  reveille audience show million")]
    Show {
        /// Its name
        name: String,
    },
    /// Forget one; refused while a schedule sends to it
    ///
    /// Runs that have opened keep what they need. The files go later, when nobody needs them.
    #[command(after_long_help = "Example:\n  reveille audience delete million")]
    Delete {
        /// Its name
        name: String,
    },
}

/// `audience generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// How many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub recipients: u32,
    /// Another seed makes other addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A variable whose values are made up; may be repeated
    #[arg(long = "column", value_name = "NAME")]
    pub columns: Vec<String>,
}
