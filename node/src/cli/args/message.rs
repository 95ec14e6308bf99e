//! `reveille message …`.

use super::schedule::parse_address;
use super::{
    Args, ContentArgs, SignedDuration, Subcommand, Timestamp, Watch, parse_duration, parse_instant, parse_request_id,
};

#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Send one email under a key, now or at an instant; the same key never sends a second one
    ///
    /// A repeat with another content, recipient or instant is an error, unless --first-wins says that the first call
    /// counts. A key is known until 30 days after its run was archived.
    #[command(after_long_help = "\
Examples:
  reveille message send order-1 --to ann@example.com --sender shop@example.com --subject Thanks --inline-text Hi
  reveille message send remind-7 --to ann@example.com --sender shop@example.com --subject Soon \\
      --text soon.txt --at 2027-03-08T09:00:00Z")]
    Send(Box<SendMessageArgs>),
    /// One message: its run, and the state of each recipient
    #[command(after_long_help = "Example:\n  reveille message show order-1 -o json")]
    Show {
        /// Its key
        #[arg(value_parser = parse_request_id)]
        key: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Cancel what a message has not sent, for good; answers when it holds on every node
    #[command(after_long_help = "Example:\n  reveille message cancel remind-7 --yes")]
    Cancel {
        /// Its key
        #[arg(value_parser = parse_request_id)]
        key: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// `message send`.
#[derive(Debug, Args)]
pub struct SendMessageArgs {
    /// Its key, unique in the tenant
    #[arg(value_parser = parse_request_id)]
    pub key: String,
    /// An address; may be repeated
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = parse_address)]
    pub to: Vec<String>,
    /// When it is sent [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Option<Timestamp>,
    /// If the key was used: the first call counts, whatever it sent
    #[arg(long)]
    pub first_wins: bool,
    /// What is not sent this long after its instant expires [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub finish_by: Option<SignedDuration>,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// Check it with the cluster, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentArgs,
}
