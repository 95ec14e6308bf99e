//! `reveille run …` and `reveille explain`.

use super::{Args, EtagArgs, Paging, SelectorArgs, Subcommand, Timestamp, Watch, parse_instant};

/// A run is named rINDEX.PLACE, or NAME@INSTANT by its schedule and nominal instant.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Runs, latest first
    #[command(after_long_help = "\
Examples:
  reveille run list
  reveille run list --schedule morning --state open,paused
  reveille run list --since-time 2026-03-08T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(long = "state", value_delimiter = ',', value_parser = ["open", "paused", "finished", "cancelled", "expired"])]
        states: Vec<String>,
        /// Only those that opened then or later
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        since_time: Option<Timestamp>,
        /// Only those that opened before then
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        until_time: Option<Timestamp>,
    },
    /// One run: the states of its recipients, and what it waits for
    #[command(
        after_long_help = "Examples:\n  reveille run show r1042.0\n  reveille run show morning@2026-03-08T09:00:00 -o json"
    )]
    Show {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// The recipients of a run, by number: state, last answer of a relay, attempts; also of an archived run
    ///
    /// With `-o csv` and `-o jsonl` all of them, page by page as they come; otherwise up to --limit. Addresses and
    /// texts need the role `pii`.
    #[command(after_long_help = "\
Examples:
  reveille run recipients r1042.0 --state dead,in_doubt
  reveille run recipients r1042.0 -o csv > recipients.csv
  reveille run recipients morning@2026-03-08T09:00:00 --state sent -o jsonl")]
    Recipients {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Only those in one of these states
        #[arg(
            long = "state",
            value_delimiter = ',',
            value_parser = [
                "pending", "claimed", "sent", "assumed", "dead", "suppressed", "expired", "cancelled", "in_doubt",
            ]
        )]
        states: Vec<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Follow a run until nothing of it is pending; one object a line with -o json
    #[command(after_long_help = "Examples:\n  reveille run watch r1042.0\n  reveille run watch r1042.0 --timeout 10m")]
    Watch {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
    },
    /// Stop a run; answers when it holds on every node
    ///
    /// After the answer none of its emails is handed over any more. Handoffs that were past the last check
    /// are named: they may still arrive.
    #[command(after_long_help = "Example:\n  reveille run pause r1042.0 --reason 'the wrong list'")]
    Pause {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Why; shown wherever the run is shown [default: none, or as it was paused before]
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Let a paused run go on
    #[command(after_long_help = "\
Examples:
  reveille run resume r1042.0
  reveille run resume r1042.0 --without-canary")]
    Resume {
        /// rINDEX.PLACE, or NAME@INSTANT
        #[arg(id = "name", value_name = "RUN")]
        run: String,
        /// Resume although the canary paused this run. An error if no canary paused it
        #[arg(long)]
        without_canary: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// Cancel what a run has not sent, for good; answers when it holds on every node
    #[command(after_long_help = "Example:\n  reveille run cancel r1042.0")]
    Cancel {
        /// rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// `explain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille explain r1042.0 ann@example.com
  reveille explain morning@2026-03-08T09:00:00 '#17' -o json")]
pub struct ExplainArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// rINDEX.PLACE, or NAME@INSTANT
    pub run: String,
    /// Address, or '#' and the number in the run
    pub recipient: String,
    #[command(flatten)]
    pub watch: Watch,
}
