//! `reveille token …`.

use super::{Args, Paging, PathBuf, SignedDuration, Subcommand, parse_duration};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token, and print it: it is shown this once
    ///
    /// Roles: viewer (reads, without addresses of recipients), pii (reads them too), editor (schedules, drafts,
    /// audiences, opt-outs), sender (launch, trigger, resume, requeue, resolve), operator (relays, pools, limits,
    /// leadership), admin (everything, also tokens and members). All of them view; editor, sender and operator pause;
    /// sender and operator cancel. A token permits no more than the one that creates it.
    #[command(after_long_help = "\
Examples:
  reveille token create deploy --role editor --role pii --tenant acme
  reveille token create dashboard --role viewer --all-tenants --valid-for 365d -o name")]
    Create(CreateTokenArgs),
    /// The token that this command uses: what it permits, and until when
    #[command(after_long_help = "Example:\n  reveille token show -o json")]
    Show,
    /// Tokens, without their secrets; revoked and expired ones for 30 days
    #[command(after_long_help = "Example:\n  reveille token list -o json")]
    List(Paging),
    /// Replace lost admin tokens, on the machine of a running node: revoke them all, and print a new one
    ///
    /// It needs no token: it asks the node over a socket in its data folder, as the node's user or as root.
    #[command(after_long_help = "Example:\n  reveille token reset --data-dir /var/lib/reveille")]
    Reset {
        /// The data folder of the node
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Revoke no token
        #[arg(long)]
        keep: bool,
    },
    /// Revoke a token: nothing is done by it any more
    #[command(after_long_help = "Example:\n  reveille token revoke 0123456789abcdef")]
    Revoke {
        /// Its id
        id: String,
    },
}

/// `token create`.
#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// A name for people
    pub name: String,
    /// A role; may be given several times
    #[arg(
        long = "role",
        required = true,
        value_delimiter = ',',
        value_parser = ["viewer", "pii", "editor", "sender", "operator", "admin"]
    )]
    pub roles: Vec<String>,
    /// A tenant that it reaches; may be given several times
    #[arg(long = "tenant", value_name = "NAME", value_delimiter = ',', required_unless_present = "all_tenants")]
    pub tenants: Vec<String>,
    /// It reaches all tenants, and the cluster as a whole
    #[arg(long, conflicts_with = "tenants")]
    pub all_tenants: bool,
    /// How long it is valid, from 1m on [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub valid_for: Option<SignedDuration>,
}
