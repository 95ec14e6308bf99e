//! Arguments of `recipient`.

use super::{Paging, PathBuf, Subcommand};

#[derive(Debug, Subcommand)]
pub enum PersonCommand {
    /// Every place where an address is: opt-out, audiences, schedules, runs with their results
    ///
    /// Reads the whole state and the archive, so it may take a while.
    #[command(after_long_help = "Example:\n  reveille recipient find ann@example.com")]
    Find {
        /// The address
        recipient: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// All that the cluster knows about an address, as JSON: one place a line, with values and the history of each run
    #[command(after_long_help = "Example:\n  reveille recipient export ann@example.com ann.jsonl")]
    Export {
        /// The address
        recipient: String,
        /// Where to; it appears when it is whole, in the place of one that is there [default: stdout]
        file: Option<PathBuf>,
    },
    /// Erase an address: nothing is sent to it from now on, and its rows in lists, files and the archive become empty
    ///
    /// An opt-out without the address stays, so that an old list cannot bring it back. It asks first (`--yes` answers).
    /// Repeat the command after an interruption.
    #[command(after_long_help = "Example:\n  reveille recipient erase ann@example.com")]
    Erase {
        /// The address
        recipient: String,
    },
}
