//! `reveille audit …`.

use super::{Args, Paging, PathBuf, Subcommand, Timestamp, parse_instant};

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Records, latest first
    #[command(after_long_help = "\
Examples:
  reveille audit list --limit 20
  reveille audit list --command token_create --since-time 2026-03-08T00:00:00Z
  reveille audit list --caller 0123456789abcdef --tenant acme")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this caller: the id of a token, `insecure` or `local`
        #[arg(long, value_name = "ID")]
        caller: Option<String>,
        /// Only of calls about this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Only of this command, as a list shows it
        #[arg(long, value_name = "NAME")]
        command: Option<String>,
        #[command(flatten)]
        time: AuditTime,
    },
    /// Records as lines of JSON, oldest first, with their hashes
    #[command(after_long_help = "\
Examples:
  reveille audit export audit.jsonl
  reveille audit export --since-time 2026-03-01T00:00:00Z --until-time 2026-04-01T00:00:00Z march.jsonl")]
    Export {
        /// The file [default: stdout]
        file: Option<PathBuf>,
        #[command(flatten)]
        time: AuditTime,
    },
    /// Check an exported file: no record was changed, removed or added. It asks no node
    ///
    /// The hashes show changes up to the last record. Whether records are missing at the end, and whether all of them
    /// were made anew, is shown by --head with a hash that you noted elsewhere: `reveille cluster status` prints it.
    #[command(after_long_help = "\
Example:
  reveille audit verify audit.jsonl --head \"$(reveille cluster status -o json | jq -r .auditHead)\"")]
    Verify {
        /// The file, or - for stdin
        file: PathBuf,
        /// Hash that one of the records must have
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
}

/// Which records are meant.
#[derive(Clone, Debug, Args)]
pub struct AuditTime {
    /// Only from then on
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub since_time: Option<Timestamp>,
    /// Only before then
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub until_time: Option<Timestamp>,
}
