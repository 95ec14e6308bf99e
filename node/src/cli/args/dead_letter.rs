//! `reveille dead-letter …`.

use reveille_proto::admin::v1::DeadLetterReason;

use super::{Args, Paging, PathBuf, Subcommand, Timestamp, ValueEnum, parse_instant};
use crate::cli::wording::reason_of_words;

#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// Recipients that were refused for good, and why; latest run first
    #[command(after_long_help = "\
Examples:
  reveille dead-letter list --group-by reason
  reveille dead-letter list --reason '550 5.1.1' --schedule morning --since-time 2026-03-08T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
        #[command(flatten)]
        filter: LetterFilter,
        /// Count them instead: one line for each reason, with the first, the last, and an example
        #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "limit")]
        group_by: Option<GroupBy>,
    },
    /// Try again, with attempts counted anew; by the same relays or by another pool
    ///
    /// Name recipients of a run, or --all of a run, or all that --schedule, --reason and --since-time select. What
    /// is not named one by one is counted first, and you are asked.
    ///
    /// With --pool they go by that pool from now on: this recipient of this run, at every later attempt too. Their
    /// run, its counts and its Message-IDs stay what they are. Recipients of a cancelled run are not sent again.
    #[command(after_long_help = "\
Examples:
  reveille dead-letter requeue r1042.0 ann@example.com
  reveille dead-letter requeue r1042.0 --all --dry-run
  reveille dead-letter requeue --reason '550 5.2.1' --pool backup")]
    Requeue(RequeueArgs),
    /// Take off the list; they stay dead
    #[command(after_long_help = "\
Examples:
  reveille dead-letter discard r1042.0 ann@example.com --yes
  reveille dead-letter discard --reason '550 5.1.1' --dry-run")]
    Discard(Letters),
    /// All of them as CSV or as lines of JSON, page by page as they come
    #[command(after_long_help = "\
Examples:
  reveille dead-letter export letters.csv
  reveille dead-letter export --format jsonl --reason '550 5.1.1' | jq -r .recipient")]
    Export(ExportArgs),
}

/// Which dead letters are meant.
#[derive(Clone, Debug, Args)]
pub struct LetterFilter {
    /// Only of this schedule
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// Only those of this reason, as `list --group-by reason` has it, such as '550 5.1.1'
    #[arg(long, value_parser = reason_of_words)]
    pub reason: Option<DeadLetterReason>,
    /// Only those that failed then or later
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub since_time: Option<Timestamp>,
}

impl LetterFilter {
    /// Does it let everything through?
    pub fn is_empty(&self) -> bool {
        self.schedule.is_none() && self.reason.is_none() && self.since_time.is_none()
    }
}

/// By what they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// The relay's codes, or the cause where no relay answered
    Reason,
}

/// The dead letters that a verb means.
#[derive(Debug, Args)]
pub struct Letters {
    /// The run: rINDEX.PLACE, or NAME@INSTANT; none for those of all runs
    pub run: Option<String>,
    /// Recipients of the run: addresses, or '#' and the number in the run
    #[arg(conflicts_with_all = ["all", "schedule", "reason", "since_time"], value_name = "RECIPIENT")]
    pub recipients: Vec<String>,
    /// All of the run; without a run, all there are
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: LetterFilter,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `dead-letter requeue`.
#[derive(Debug, Args)]
pub struct RequeueArgs {
    #[command(flatten)]
    pub letters: Letters,
    /// By this pool of relays from now on
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub pool: Option<String>,
}

/// `dead-letter export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Where to; it appears when it is whole, in the place of one that is there [default: stdout]
    pub file: Option<PathBuf>,
    /// As what [default: jsonl for a file that is called so, else csv]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
    #[arg(long)]
    pub run: Option<String>,
    #[command(flatten)]
    pub filter: LetterFilter,
}

impl ExportArgs {
    /// As it was asked for, or as the name of the file says.
    pub fn format(&self) -> ExportFormat {
        let is_jsonl = self.file.as_ref().is_some_and(|file| file.extension().is_some_and(|end| end == "jsonl"));
        self.format.unwrap_or(if is_jsonl { ExportFormat::Jsonl } else { ExportFormat::Csv })
    }
}

/// What an export is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A heading and a row each, quoted by RFC 4180
    Csv,
    /// An object a line, as `list -o json` has them
    Jsonl,
}
