//! `reveille relay …`.

use reveille_ledger::access::is_loopback;

use super::{Args, EtagArgs, Paging, ShowArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Add a relay
    #[command(after_long_help = "\
Examples:
  reveille relay add main --host 127.0.0.1 --port 2525 --tls none
  reveille relay add bulk --host mx.example.org --port 25 --tls starttls --ca /etc/reveille/ca.pem --pool bulk --rate-per-second 500
  reveille relay add ses --host email-smtp.eu-west-1.amazonaws.com --port 587 --tls starttls \\
      --credentials ses --rate-per-second 14 --max-sessions 10")]
    Add(AddRelayArgs),
    /// All relays
    #[command(after_long_help = "Example:\n  reveille relay list -o json")]
    List(Paging),
    /// One relay, with its state at the asked node
    #[command(
        after_long_help = "Examples:\n  reveille relay show main\n  reveille relay show main --manifest > main.yaml"
    )]
    Show(ShowArgs),
    /// Let a node open a session with the relay and close it; no email is sent
    ///
    /// The node that answers does it: --endpoint names another. What failed is named with the step and what to do.
    #[command(after_long_help = "Examples:\n  reveille relay test main\n  reveille relay test main --authenticate")]
    Test {
        /// Its name
        name: String,
        /// Also log in, with the credentials of the node's configuration
        #[arg(long)]
        authenticate: bool,
    },
    /// Remove a relay; emails of its pool wait for another one
    #[command(after_long_help = "Example:\n  reveille relay remove main")]
    Remove {
        /// Its name
        name: String,
        /// Show which relays the pool would keep, and change nothing
        #[arg(long, conflicts_with = "etag")]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
}

/// `relay add`.
#[derive(Clone, Debug, Args)]
pub struct AddRelayArgs {
    /// Its name
    pub name: String,
    /// Host name or address
    #[arg(long)]
    pub host: String,
    /// Port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Encryption towards the relay; required unless the host is a loopback address or localhost [default there: none]
    #[arg(long, value_enum)]
    pub tls: Option<Tls>,
    /// PEM file of the only trusted certificates; each node reads its own [default: the system's roots]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<String>,
    /// Name in the relay's certificate [default: the host]
    #[arg(long, value_name = "NAME")]
    pub tls_name: Option<String>,
    /// Credentials that each node's configuration defines for this host and port [default: no AUTH]
    #[arg(long, value_name = "NAME")]
    pub credentials: Option<String>,
    /// Relays of one pool share a reputation; a schedule names its pool
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Emails a second over the whole cluster, at most [default: no bound]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate_per_second: Option<f64>,
    /// Of these, late ones at most: caught up after an outage, or backfilled [default: half of the rate]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub late_rate_per_second: Option<f64>,
    /// Open dialogues on one node, at most [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,
    /// Weight beside other relays of the pool that have room [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: Option<u32>,
    /// Replace the relay of that name
    #[arg(long)]
    pub replace: bool,
    /// Check it, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub etag: EtagArgs,
}

/// The values of `--tls`, for the error when none is given.
pub const TLS_VALUES: &str = "starttls encrypts by STARTTLS and never falls back (usual on ports 25 and 587), implicit \
                              encrypts from the first byte (usual on port 465), none sends emails and addresses unencrypted";

impl AddRelayArgs {
    /// Returns the encryption. Without `--tls` it is none for a relay on loopback, and `None` for any other: a
    /// forgotten flag must not send emails unencrypted through a network.
    pub fn encryption(&self) -> Option<Tls> {
        self.tls.or_else(|| is_loopback(&self.host).then_some(Tls::None))
    }
}

/// Encryption towards a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// In the clear
    None,
    /// By STARTTLS, without falling back; usual on ports 25 and 587
    Starttls,
    /// From the first byte; usual on port 465
    Implicit,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number of emails a second, from 0.001 to 1000000".to_owned()),
    }
}
