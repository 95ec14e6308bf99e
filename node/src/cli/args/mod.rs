//! Arguments that several commands have. Parsed into types once; nothing here acts.

pub mod content;
pub mod etag;
pub mod given;
pub mod labels;
pub mod policies;
pub mod when;

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};

pub use content::{ContentArgs, ContentOrTemplateArgs, RecipientArgs};
pub use etag::EtagArgs;
pub use labels::SelectorArgs;
pub use policies::{DstArgs, PolicyArgs, RunPolicyArgs};
pub use when::{SpanArgs, WhenArgs};

use super::endpoint::Endpoint;
use super::instant::{duration_to_wire, parse_duration, parse_instant, to_wire};

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Admin addresses of nodes, tried in order; any node answers [default: the context's, else 127.0.0.1:7600]
    #[arg(
        long,
        global = true,
        env = "REVEILLE_URL",
        value_delimiter = ',',
        value_name = "HOST:PORT,…",
        value_parser = Endpoint::parse
    )]
    pub endpoint: Vec<Endpoint>,
    /// The cluster, by the name that `cluster init` or `login` gave it [default: the one in use]
    #[arg(long, global = true, env = "REVEILLE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Format of the data on stdout
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    /// Columns of a list's table, by their headings [default: all]
    #[arg(long = "columns", global = true, value_delimiter = ',', value_name = "NAME,…")]
    pub table_columns: Vec<String>,
    /// Time limit of the command [default: 30s, for each request where a command makes several; none where it watches,
    /// or runs until something is done]
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Do not ask for confirmation before a change that cannot be undone
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Id of the request: a repetition with the same id changes nothing more [default: random]
    #[arg(long, global = true, value_name = "ID", value_parser = parse_request_id)]
    pub request_id: Option<String>,
    /// Read from the asked node's own state, even without a quorum; its index and age go to stderr
    #[arg(long, global = true)]
    pub stale: bool,
    /// Say more on stderr
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Print only errors on stderr
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// When to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN")]
    pub color: ColorWhen,
}

/// Format of the data on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs: the API's JSON, as over HTTP
    Json,
    /// The same as json, to keep in files
    Yaml,
    /// Names alone, one a line, for scripts
    Name,
    /// A row a line with a heading, for spreadsheets
    Csv,
    /// An object a line, for long lists
    Jsonl,
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What is done, and of which tenant.
#[derive(Debug, Args)]
pub struct OfTenant<C: Subcommand> {
    /// Tenant
    #[arg(long, global = true, default_value = "default")]
    pub tenant: String,
    #[command(subcommand)]
    pub command: C,
}

/// How much of a list is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct Paging {
    /// Print at most so many
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    #[command(flatten)]
    pub watch: Watch,
}

/// Once, or whenever it changes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Show it again whenever it changes, until Ctrl-C or --timeout. With -o json one object a line
    #[arg(long)]
    pub watch: bool,
}

/// Which object is shown, and how.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Its name
    pub name: String,
    /// As a document for `apply -f`, with all that it is made of
    #[arg(long, conflicts_with = "watch")]
    pub manifest: bool,
    #[command(flatten)]
    pub watch: Watch,
}

/// Which object is deleted, and under which condition.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Its name
    pub name: String,
    /// Say whether it can be deleted, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub etag: EtagArgs,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(|duration| duration.unsigned_abs())
}

/// Parses the id of a request, or the key of a message.
pub fn parse_request_id(text: &str) -> Result<String, String> {
    let fits = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err("a request id has 1 to 128 visible ASCII characters".to_owned()) }
}
