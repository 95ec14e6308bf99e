//! `reveille schedule …`.

use reveille_ledger::address::Address;

use super::given::Given;
use super::labels::{LabelChange, SelectorArgs, parse_label, parse_label_change};
use super::policies::parse_gap;
use super::{
    ApplyFiles, ArgGroup, Args, DstArgs, EtagArgs, ManifestFiles, Paging, PathBuf, PolicyArgs, ShowArgs,
    SignedDuration, Subcommand, Timestamp, WhenArgs, parse_instant, when,
};

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Create a schedule, and print its next ten instants
    ///
    /// The same name with the same body is the same schedule, so the command may be repeated; with another
    /// body it is a conflict. Subject, text and html are templates: {{ name }} is a column of the recipients
    /// file, or a --variable.
    #[command(after_long_help = "\
Examples:
  reveille schedule create morning --daily 09:00 --days mon-fri --zone Europe/Berlin \\
      --recipients people.csv --sender 'News <news@example.com>' \\
      --subject 'Good morning, {{ name }}' --text body.txt --html body.html
  reveille schedule create month-end --cron '0 18 L * *' --zone America/New_York \\
      --to cfo@example.com --sender books@example.com --subject 'Month end' --text note.txt
  reveille schedule create once --at 2026-12-24T09:00:00+01:00 --zone Europe/Berlin \\
      --to ann@example.com --sender me@example.com --subject Hello --text hello.txt --dry-run
  reveille schedule create digest --daily 07:00 --zone UTC --recipients people.csv --template welcome@3

A recipients file is CSV with a header: email, and a column for each variable.
  email,name
  ann@example.com,Ann")]
    Create(Box<CreateArgs>),
    /// All schedules
    #[command(after_long_help = "\
Examples:
  reveille schedule list -l team=ops --state paused,blocked
  reveille schedule list -l 'env!=dev,tier,!old' -o name
  reveille schedule list --state paused,blocked --watch")]
    List {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(long = "state", value_delimiter = ',', value_parser = ["active", "paused", "blocked", "done"])]
        states: Vec<String>,
    },
    /// One schedule, with its next ten instants
    #[command(after_long_help = "\
Examples:
  reveille schedule show morning
  reveille schedule show morning --manifest > morning.yaml")]
    Show(ShowArgs),
    /// The same as `reveille apply`: schedules and what they need, as documents say
    #[command(
        after_long_help = "Example:\n  reveille schedule apply -f news.yaml --dry-run\n\nA document: reveille apply --help"
    )]
    Apply(ApplyFiles),
    /// The same as `reveille diff`: what `apply` would change
    #[command(after_long_help = "Example:\n  reveille schedule diff -f news.yaml")]
    Diff(ManifestFiles),
    /// The instants of a pattern, with what clock changes do to them; needs no cluster
    #[command(after_long_help = "\
Examples:
  reveille schedule preview --cron '0 2 * * *' --zone America/New_York --from 2026-03-07T12:00:00Z
  reveille schedule preview --daily 09:00 --days mon-fri --zone Europe/Berlin --count 5 -o json
  reveille schedule preview --cron 'H H(0-7) * * *' --name backups --zone Europe/Berlin")]
    Preview(PreviewArgs),
    /// Change what is given; all else stays, and open runs keep what they opened with
    ///
    /// The change is shown, old and new, and made on what was read. If another client changed the schedule in between,
    /// the command fails with --etag; without it this change is applied on top.
    #[command(after_long_help = "\
Examples:
  reveille schedule update morning --daily 08:30 --dry-run
  reveille schedule update morning --subject 'Good day, {{ name }}' --text body.txt
  reveille schedule update morning --catch-up none --clear end-time,max-runs
  reveille schedule update morning --label team=ops --label tier-")]
    Update(Box<UpdateArgs>),
    /// Stop it from firing; open runs go on
    ///
    /// With -l all active schedules with these labels, at most 1,000: the cluster chooses, their names are shown, and
    /// each is paused after your confirmation.
    #[command(after_long_help = "\
Examples:
  reveille schedule pause morning --reason 'wrong price in it'
  reveille schedule pause -l team=ops --reason 'moving the relay'

What goes out already: reveille run pause RUN")]
    Pause {
        /// Its name
        #[arg(required_unless_present = "selector", conflicts_with = "selector")]
        name: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Why; shown wherever the schedule is shown [default: none, or as it was paused before]
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// Show what would be paused, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Let it fire again; missed instants are shown first, and open by --catch-up
    ///
    /// With -l all paused schedules with these labels, at most 1,000; resume a blocked one alone, by its name.
    #[command(after_long_help = "\
Examples:
  reveille schedule resume morning --dry-run
  reveille schedule resume -l team=ops")]
    Resume {
        /// Its name
        #[arg(required_unless_present = "selector", conflicts_with = "selector")]
        name: Option<String>,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Show what was missed and what would open, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// Open one run now; the same --request-id never opens a second one
    #[command(after_long_help = "\
Examples:
  reveille schedule trigger morning
  reveille schedule trigger morning --request-id release-42 --recipients people.csv -o name")]
    Trigger {
        /// Its name
        name: String,
        /// Send this run to the recipients of this CSV, instead of those of the schedule
        #[arg(long, value_name = "FILE.csv")]
        recipients: Option<PathBuf>,
        /// If the request id was used: the first call counts, whatever its recipients
        #[arg(long)]
        first_wins: bool,
        /// Say whether it would open, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Open occurrences of the past that never opened
    ///
    /// An occurrence that has opened never opens again. Email on time goes first. What would open is
    /// counted first.
    #[command(after_long_help = "\
Examples:
  reveille schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z --dry-run
  reveille schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z --yes")]
    Backfill(BackfillArgs),
    /// Delete it; open runs go on
    #[command(after_long_help = "\
Examples:
  reveille schedule show morning --manifest > morning.yaml
  reveille schedule delete morning --yes")]
    Delete {
        /// Its name
        name: String,
        /// Say which runs are open and go on, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// The outcome of each of its instants, latest first
    #[command(
        after_long_help = "Examples:\n  reveille schedule history morning\n  reveille schedule history morning --limit 20 -o json"
    )]
    History {
        /// Its name
        name: String,
        #[command(flatten)]
        paging: Paging,
    },
}

/// `schedule create`.
#[derive(Clone, Debug, Args)]
#[command(groups = when::needed(), group = ArgGroup::new("audience-needed").required(true).args(["to", "recipients", "sealed"]))]
pub struct CreateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// A label, by which schedules are grouped and chosen (`-l`); may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// Create it paused
    #[arg(long)]
    pub paused: bool,
    /// With --paused: why
    #[arg(long, requires = "paused", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Check everything, print the instants, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: String,
    /// No instant before this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub start_time: Option<Timestamp>,
    /// No instant after this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub end_time: Option<Timestamp>,
    /// Occurrences at most
    #[arg(long, value_name = "N", help_heading = "When", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_runs: Option<u32>,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    #[command(flatten)]
    pub content: ContentArgs,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

/// The recipients, in one of three ways.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Recipients")]
#[command(group = ArgGroup::new("audience").args(["to", "recipients", "sealed"]))]
pub struct RecipientArgs {
    /// An address; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub to: Vec<String>,
    /// CSV with a header: email, and a column for each variable
    #[arg(long, value_name = "FILE.csv")]
    pub recipients: Option<PathBuf>,
    /// A sealed audience: `reveille audience list`
    #[arg(id = "sealed", long = "audience", value_name = "NAME")]
    pub sealed: Option<String>,
    /// Leave out rows that cannot be used, instead of creating nothing
    #[arg(long, requires = "recipients")]
    pub skip_bad_rows: bool,
}

/// The flags of a content, which a template replaces.
pub(super) const CONTENT_FLAGS: [&str; 12] = [
    "sender",
    "reply_to",
    "cc",
    "subject",
    "text",
    "html",
    "inline_text",
    "inline_html",
    "variables",
    "headers",
    "attachments",
    "bulk",
];

/// What is sent.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Content")]
#[command(group = clap::ArgGroup::new("body").args(["text", "inline_text", "html", "inline_html", "template"]).required(true).multiple(true))]
pub struct ContentArgs {
    /// A template instead of the content: NAME, which is its newest version now, or NAME@VERSION
    #[arg(long, value_name = "NAME[@VERSION]", conflicts_with_all = CONTENT_FLAGS)]
    pub template: Option<String>,
    /// From: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long, value_name = "ADDRESS", required_unless_present = "template")]
    pub sender: Option<String>,
    /// Reply-To
    #[arg(long, value_name = "ADDRESS")]
    pub reply_to: Option<String>,
    /// A Cc that each email shows, without an email of its own; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub cc: Vec<String>,
    /// Subject, a template
    #[arg(long, required_unless_present = "template")]
    pub subject: Option<String>,
    #[command(flatten)]
    pub texts: TextArgs,
    /// A variable with the same value for all recipients; may be repeated
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub variables: Vec<(String, String)>,
    /// A header field; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub headers: Vec<(String, String)>,
    /// A file that each email carries, with its media type if the extension does not say it; may be repeated
    #[arg(long = "attachment", value_name = "FILE[:TYPE]")]
    pub attachments: Vec<String>,
    /// Bulk mail: each carries the header by which mail programs opt out at a click (List-Unsubscribe)
    #[arg(long)]
    pub bulk: bool,
}

/// The texts of an email, each as a file or inline.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct TextArgs {
    /// Plain text, a template
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// HTML, a template; its variables are escaped
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The text itself, instead of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "text")]
    pub inline_text: Option<String>,
    /// The HTML itself, instead of a file
    #[arg(long, value_name = "HTML", conflicts_with = "html")]
    pub inline_html: Option<String>,
}

/// `schedule update`: what is given changes.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Its name
    pub name: String,
    #[command(flatten)]
    pub etag: EtagArgs,
    /// Print the old and the new instants, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove an optional setting: end-time, reply-to, label …; may be repeated
    #[arg(long, value_name = "FLAG", value_delimiter = ',', value_parser = [
        "days", "anchor-time", "start-time", "end-time", "max-runs", "reply-to", "cc", "text", "html", "variable", "header",
        "attachment", "bulk", "label", "template",
    ])]
    pub clear: Vec<String>,
    /// Pool of relays
    #[arg(long)]
    pub pool: Option<String>,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255")]
    pub priority: Option<u8>,
    /// Set a label, or remove it with KEY-; may be repeated, and keeps the others
    #[arg(long = "label", value_name = "KEY=VALUE|KEY-", value_parser = parse_label_change)]
    pub labels: Vec<LabelChange>,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: Option<String>,
    /// No instant before this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub start_time: Option<Timestamp>,
    /// No instant after this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub end_time: Option<Timestamp>,
    /// Maximum number of occurrences, including those that have opened
    #[arg(long, value_name = "N", help_heading = "When", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_runs: Option<u32>,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    /// A template instead of the content: NAME, which is its newest version now, or NAME@VERSION
    #[arg(long, value_name = "NAME[@VERSION]", help_heading = "Content", conflicts_with_all = CONTENT_FLAGS)]
    pub template: Option<String>,
    #[command(flatten)]
    pub content: ContentChange,
    #[command(flatten)]
    pub policies: Given<PolicyArgs>,
}

/// What is sent from now on; each alone.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Content")]
pub struct ContentChange {
    /// From: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long, value_name = "ADDRESS")]
    pub sender: Option<String>,
    /// Reply-To
    #[arg(long, value_name = "ADDRESS")]
    pub reply_to: Option<String>,
    /// A Cc that each email shows, without an email of its own; may be repeated, and replaces all of them
    #[arg(long, value_name = "ADDRESS")]
    pub cc: Vec<String>,
    /// Subject, a template
    #[arg(long)]
    pub subject: Option<String>,
    #[command(flatten)]
    pub texts: TextArgs,
    /// A variable with the same value for all recipients; may be repeated, and replaces all of them
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub variables: Vec<(String, String)>,
    /// A header field; may be repeated, and replaces all of them
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub headers: Vec<(String, String)>,
    /// A file that each email carries, with its media type if the extension does not say it; may be repeated, and
    /// replaces all of them
    #[arg(long = "attachment", value_name = "FILE[:TYPE]")]
    pub attachments: Vec<String>,
    /// Bulk mail: each carries the header by which mail programs opt out at a click (List-Unsubscribe)
    #[arg(long)]
    pub bulk: bool,
}

/// `schedule backfill`.
#[derive(Debug, Args)]
pub struct BackfillArgs {
    /// Its name
    pub name: String,
    /// From this instant on
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub start_time: Timestamp,
    /// Up to this instant; at most as far as the schedule has come
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub end_time: Timestamp,
    /// Occurrences at most, oldest first [default: 1000, and what is left is an error]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub max: Option<u32>,
    /// Count what would open, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `schedule preview`.
#[derive(Debug, Args)]
#[command(groups = when::needed())]
pub struct PreviewArgs {
    /// Instants strictly after this one [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub from: Option<Timestamp>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: String,
    /// Name of the schedule: `H` in --cron and the delay of --jitter depend on tenant and name
    #[arg(long, help_heading = "When")]
    pub name: Option<String>,
    /// Open within this after each instant
    #[arg(long, value_name = "DURATION", requires = "name", value_parser = parse_gap)]
    pub jitter: Option<SignedDuration>,
    #[command(flatten)]
    pub dst: DstArgs,
}

impl RecipientArgs {
    /// Returns whether recipients were given, by --to, --recipients or --audience.
    pub fn is_given(&self) -> bool {
        !self.to.is_empty() || self.recipients.is_some() || self.sealed.is_some()
    }
}

pub(super) fn parse_address(text: &str) -> Result<String, String> {
    Address::parse(text).map(|address| address.as_given().to_owned()).map_err(|error| error.to_string())
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is written NAME=VALUE".to_owned()),
    }
}
