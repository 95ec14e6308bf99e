//! The tree of commands, with the help that teaches it. Parsed into types once; nothing here acts.

mod apply;
mod audience;
mod audit;
mod backup;
mod campaign;
mod clock;
mod cluster;
mod completion;
mod config;
mod context;
mod dead_letter;
mod doctor;
mod doubt;
mod etag;
mod event;
mod given;
mod import;
mod labels;
mod login;
mod message;
mod opt_out;
mod policies;
mod pool;
mod recipient;
mod recover;
mod relay;
mod restore;
mod run;
mod schedule;
mod template;
mod tenant;
mod token;
mod when;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};

pub use apply::{ApplyArgs, ApplyFiles, DiffArgs, EditArgs, ManifestFiles};
pub use audience::{AudienceCommand, GenerateArgs, ImportAudienceArgs};
pub use audit::{AuditCommand, AuditTime};
pub use backup::{BackupCommand, BackupPlace, PruneArgs, VerifyArgs};
pub use campaign::{CampaignCommand, CampaignCreateArgs, LaunchArgs};
pub use clock::{AdvanceArgs, ClockCommand};
pub use cluster::{CaCommand, ClusterCommand, InitArgs, MemberCommand, UpgradeCommand};
pub use completion::{CompletionArgs, ManArgs, NamesArgs};
pub use config::{ConfigCommand, ShowConfigArgs};
pub use context::ContextCommand;
pub use dead_letter::{DeadLetterCommand, ExportArgs, ExportFormat, LetterFilter, Letters, RequeueArgs};
pub use doctor::DoctorArgs;
pub use doubt::{DoubtCommand, ResolveArgs, SettleArgs};
pub use etag::EtagArgs;
pub use event::{EventArgs, TYPE_PREFIX};
pub use import::{CrontabArgs, ImportCommand};
pub use labels::SelectorArgs;
pub use login::LoginArgs;
pub use message::{MessageCommand, SendMessageArgs};
pub use opt_out::OptOutCommand;
pub use policies::{CampaignPolicyArgs, DstArgs, PolicyArgs};
pub use pool::{PoolCommand, SetPoolArgs};
pub use recipient::PersonCommand;
pub use recover::{RecoverCommand, RecoverRunArgs};
pub use relay::{AddRelayArgs, RelayCommand, TLS_VALUES, Tls};
pub use restore::{AcceptArgs, RestoreCommand, RestoreRunArgs};
pub use run::{ExplainArgs, RunCommand};
pub use schedule::{
    BackfillArgs, ContentArgs, ContentChange, CreateArgs, PreviewArgs, RecipientArgs, ScheduleCommand, TextArgs,
    UpdateArgs,
};
pub use template::{PutTemplateArgs, RenderArgs, SendTestArgs, TemplateCommand};
pub use tenant::{SetTenantArgs, TenantCommand};
pub use token::{CreateTokenArgs, TokenCommand};
pub use when::WhenArgs;

use super::endpoint::Endpoint;
use super::instant::{duration_to_wire, parse_duration, parse_instant, to_wire};
use crate::server::config::Settings;

/// Schedules and sends emails from a replicated cluster, each email once.
///
/// Every command below speaks to a cluster through any of its nodes. Data goes to stdout, messages to stderr.
#[derive(Debug, Parser)]
#[command(name = "reveille", version, max_term_width = 100, after_long_help = AFTER)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
To try it out, without a cluster:
  reveille dev

Examples:
  reveille cluster status
  reveille relay add main --host 127.0.0.1 --port 2525 --tls none
  reveille schedule create morning --daily 09:00 --zone Europe/Berlin --recipients people.csv \\
      --sender 'News <news@example.com>' --subject 'Good morning' --text body.txt
  reveille schedule trigger morning
  reveille run list --schedule morning
  reveille explain r1042.0 ann@example.com

Exit codes:
  0 done   1 failed   2 usage   3 not found   4 conflict   5 no leader or quorum
  6 denied   7 partly done   8 timed out, may have happened   130 interrupted";

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
    /// Time limit of the command [default: 30s; with --watch, never]
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

/// What may be typed first.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run three nodes and a mailbox, kill two senders, and compare what arrived with what was due
    Demo(crate::demo::Args),
    /// Run one node with a mailbox that catches all email, for trials
    Dev(crate::dev::Args),
    /// A node of a real cluster
    Start(Box<crate::server::start::Args>),
    #[command(flatten)]
    Ask(Question),
}

/// The nouns: what a cluster is asked about.
#[derive(Debug, Subcommand)]
pub enum Question {
    /// Create the cluster, show its nodes, transfer its leadership
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Backups: make one, list, verify and remove them
    #[command(subcommand)]
    Backup(BackupCommand),
    /// The test clock: show it, move it forward
    #[command(subcommand)]
    Clock(ClockCommand),
    /// A cluster that was restored from a backup: how it stands, and let it send
    #[command(subcommand)]
    Restore(RestoreCommand),
    /// What is left of a cluster whose majority is lost for good: look at it, and go on with it
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// SMTP relays that deliver the emails
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Messages: single emails under a key, each sent once
    Message(OfTenant<MessageCommand>),
    /// Schedules: what is sent, to which recipients, and when
    Schedule(OfTenant<ScheduleCommand>),
    /// Make schedules, templates, relays, campaigns, tenants and pools as documents say
    Apply(ApplyArgs),
    /// What `apply` would change, field by field; exits with 1 if there is a change
    Diff(DiffArgs),
    /// Open one object as a document in an editor, and apply the edit
    Edit(EditArgs),
    /// Templates: contents under a name, in versions; render an email, send a test email
    Template(OfTenant<TemplateCommand>),
    /// Make documents of schedules from a crontab
    Import(OfTenant<ImportCommand>),
    /// Runs: occurrences that opened
    Run(OfTenant<RunCommand>),
    /// The history of one recipient in one run, by log index
    Explain(ExplainArgs),
    /// Emails whose handoff may or may not have happened
    InDoubt(OfTenant<DoubtCommand>),
    /// Recipients that were refused for good
    DeadLetter(OfTenant<DeadLetterCommand>),
    /// Sealed audiences: large lists, kept in files on the nodes
    Audience(OfTenant<AudienceCommand>),
    /// Campaigns: one content to one audience at one instant, sent once
    Campaign(OfTenant<CampaignCommand>),
    /// Recipients that get no more email
    Optout(OfTenant<OptOutCommand>),
    /// One person: where an address is, all that is known about it, and its erasure
    Recipient(OfTenant<PersonCommand>),
    /// What happened to runs, recipients and opt-outs, in order: all of it, or what came after a cursor
    Events(EventArgs),
    /// Tenants: rate, concurrency and share of each
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Tokens of the admin API: what their owners may do
    #[command(subcommand)]
    Token(TokenCommand),
    /// Audit records: who wanted what, and what came of it
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Pools of relays: how each is warmed up, day by day
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Find problems, with their effect and the next command; exits with 1 if there is a problem
    Doctor(DoctorArgs),
    /// Store a cluster's certificate authority and your token
    Login(LoginArgs),
    /// The clusters that are stored on this machine: list them, choose one
    #[command(subcommand)]
    Context(ContextCommand),
    /// The configuration file of a node: a sample, a check, the effective values
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script for a shell
    Completion(CompletionArgs),
    /// Print the names that the last word may become, for completion scripts
    #[command(hide = true)]
    CompleteNames(NamesArgs),
    /// Print or write the manual pages
    Man(ManArgs),
    /// Versions of this binary, its time zones and its ledger
    #[command(after_long_help = "Example:\n  reveille version -o json")]
    Version,
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

/// Which recipients of a run are meant.
#[derive(Debug, Args)]
pub struct Picked {
    /// The run: rINDEX.PLACE, or NAME@INSTANT
    pub run: String,
    /// Recipients: addresses, or '#' and the number in the run; or --all
    #[arg(conflicts_with = "all", value_name = "RECIPIENT")]
    pub recipients: Vec<String>,
    /// All of them in this run
    #[arg(long)]
    pub all: bool,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(|duration| duration.unsigned_abs())
}

fn parse_request_id(text: &str) -> Result<String, String> {
    let fits = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err("a request id has 1 to 128 visible ASCII characters".to_owned()) }
}
