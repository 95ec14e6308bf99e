//! `reveille in-doubt …`.

use super::{ArgGroup, Args, Paging, PathBuf, Picked, Subcommand, Watch};

#[derive(Debug, Subcommand)]
pub enum DoubtCommand {
    /// What is in doubt, oldest first
    ///
    /// An email is in doubt when the end of its text may have reached the relay and no answer is known.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt list
  reveille in-doubt list --run r1042.0 -o json

Start the nodes that are down before you decide anything: their journals may know.")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
    },
    /// One recipient's doubt, with what speaks for either side
    #[command(after_long_help = "Example:\n  reveille in-doubt show r1042.0 ann@example.com")]
    Show {
        /// The run: rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Address, or '#' and the number in the run
        recipient: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Decide: take it as sent, or send it again
    ///
    /// The command counts the recipients in doubt, shows the evidence, and asks for confirmation. What is in doubt
    /// because its node is lost resolves by itself when that node comes back with its journal: start it first.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt resolve r1042.0 ann@example.com --sent
  reveille in-doubt resolve r1042.0 --all --resend --dry-run

--sent closes it as `assumed`, which is never counted as sent. --resend may make an email come twice.")]
    Resolve(ResolveArgs),
    /// Settle as sent what a relay's log shows as accepted
    ///
    /// Reads the log of a Postfix relay, and compares the Message-IDs. What the log does not show stays in doubt: that
    /// proves nothing.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt settle /var/log/mail.log
  reveille in-doubt settle mail.log --run r1042.0 --dry-run")]
    Settle(SettleArgs),
}

/// `in-doubt settle`.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// The log; '-' is stdin
    #[arg(value_name = "FILE")]
    pub log: PathBuf,
    /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
    #[arg(long)]
    pub run: Option<String>,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `in-doubt resolve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("decision").required(true).args(["sent", "resend"]))]
pub struct ResolveArgs {
    #[command(flatten)]
    pub picked: Picked,
    /// Close it as assumed
    #[arg(long)]
    pub sent: bool,
    /// Send it again: it may come twice
    #[arg(long)]
    pub resend: bool,
    /// Only doubts of handoffs up to this one, as `in-doubt show` prints it [default: those that are counted first]
    #[arg(long, value_name = "FENCE")]
    pub fence: Option<String>,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
