//! `reveille optout …`.

use super::{ExportFormat, Paging, PathBuf, Subcommand};

#[derive(Debug, Subcommand)]
pub enum OptOutCommand {
    /// Send no more to an address; answers when it holds on every node
    ///
    /// Handoffs that were past the last check are named: they may still arrive.
    #[command(after_long_help = "Example:\n  reveille optout add ann@example.com")]
    Add {
        /// The address
        recipient: String,
    },
    /// Send to an address again that has opted out: its own word is needed, and is kept as the reason
    ///
    /// Later email goes to it. It stays left out of runs that left it out, and a new opt-out while
    /// this is under way stays out.
    #[command(after_long_help = "Example:\n  reveille optout remove ann@example.com --reason 'her letter of 3 March'")]
    Remove {
        /// The address
        recipient: String,
        /// The reason: by which request, how and when
        #[arg(long)]
        reason: String,
        /// Look, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Has an address opted out?
    #[command(after_long_help = "Example:\n  reveille optout check ann@example.com")]
    Check {
        /// The address
        recipient: String,
    },
    /// The opted-out addresses
    #[command(after_long_help = "Example:\n  reveille optout list --limit 20")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// All opted-out addresses, as a file that `optout import` reads
    #[command(after_long_help = "Example:\n  reveille optout export optouts.csv")]
    Export {
        /// Where to; it appears when it is whole, in the place of one that is there [default: stdout]
        file: Option<PathBuf>,
        /// As what
        #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
        format: ExportFormat,
    },
    /// Send no more to all addresses of a file: CSV with a column `email`, or one address a line
    ///
    /// A thousand go at once, each thousand by one entry and one barrier, as `add` does it. Rows that cannot be used
    /// are listed with their line and the reason, and the others are taken (exit code 7). Repeat the command after an
    /// interruption: recorded opt-outs stay.
    #[command(after_long_help = "\
Examples:
  reveille optout import suppressions.csv --dry-run
  reveille optout import suppressions.csv
  zcat list.gz | reveille optout import -")]
    Import {
        /// The file; `-` for stdin
        file: PathBuf,
        /// Count the addresses that would opt out, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}
