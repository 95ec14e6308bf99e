//! `reveille audience …`.

use super::{Args, Paging, PathBuf, Subcommand};

#[derive(Debug, Subcommand)]
pub enum AudienceCommand {
    /// Seal the recipients of a file of any size under a name
    ///
    /// The file is CSV with a header: `email`, and a column for each variable. It may be packed by gzip or zstd. It
    /// is read twice: for rows that cannot be used and addresses that are there twice, then for its parts of 65,536
    /// recipients. The first row of an address stays. Each part is on the disks of a majority before the next ones
    /// are sent; when all are, the audience is sealed, and not before. Whatever ends in between, the same command
    /// goes on where it was.
    #[command(after_long_help = "Examples:\n  reveille audience import members members.csv\n  \
                           reveille audience import members members.csv.gz --skip-bad-rows --report left-out.csv\n  \
                           reveille schedule create news --audience members --daily 09:00 --zone Europe/Berlin \\\n      \
                           --sender news@example.com --subject 'Hello {{ name }}' --text body.txt")]
    Import(ImportAudienceArgs),
    /// Make an audience of a number, to try what your relay and your machines carry
    ///
    /// Its addresses are under .invalid, where no mailbox exists: point the relay at a sink. The list is written to a
    /// temporary file, some 40 bytes a recipient, and imported.
    #[command(
        after_long_help = "Example:\n  reveille audience generate million --recipients 1000000 --column name\n  \
                           reveille schedule create trial --audience million --at 2026-12-01T09:00:00Z --zone UTC \\\n      \
                           --sender news@example.com --subject 'Hello {{ name }}' --inline-text 'A trial.'"
    )]
    Generate(GenerateArgs),
    /// Sealed audiences, by name
    #[command(after_long_help = "Example:\n  reveille audience list -o json")]
    List(Paging),
    /// One of them
    #[command(after_long_help = "Example:\n  reveille audience show million")]
    Show {
        /// Its name
        name: String,
    },
    /// Forget one; refused while a schedule or a campaign sends to it, a draft too
    ///
    /// Runs that have opened keep what they need. The files are removed later, when no run needs them.
    #[command(after_long_help = "Example:\n  reveille audience delete million")]
    Delete {
        /// Its name
        name: String,
        /// Say whether it can be deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// `audience import`.
#[derive(Debug, Args)]
pub struct ImportAudienceArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// The recipients: CSV with a header, or that packed by gzip or zstd
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Leave out rows that cannot be used; without it nothing is sealed when there are any
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Write every row that is left out to this file, as line,kind,problem
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// `audience generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// How many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub recipients: u32,
    /// Another seed makes other addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A variable whose values are made up; may be repeated
    #[arg(long = "column", value_name = "NAME")]
    pub columns: Vec<String>,
}
