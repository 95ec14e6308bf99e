//! `reveille context …`.

use super::Subcommand;

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// All contexts
    #[command(after_long_help = "Example:\n  reveille context list -o json")]
    List,
    /// Let commands address this cluster from now on
    #[command(after_long_help = "Example:\n  reveille context use staging\n\nFor one command: --context staging")]
    Use {
        /// Its name
        name: String,
    },
    /// One context, without its token; -o json has the authority's certificate, for other programs
    #[command(after_long_help = "\
Examples:
  reveille context show
  reveille context show staging -o json | jq -r .ca > ca.pem")]
    Show {
        /// Its name [default: the one in use]
        name: Option<String>,
    },
    /// Forget a cluster, and the token with it
    #[command(after_long_help = "Example:\n  reveille context remove staging")]
    Remove {
        /// Its name
        name: String,
    },
}
