//! `reveille template …`.

use super::schedule::{CONTENT_FLAGS, parse_address, parse_pair};
use super::{
    Args, ContentChange, EtagArgs, Paging, PathBuf, RecipientArgs, ShowArgs, SignedDuration, Subcommand, parse_duration,
};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Store a template: another version of it, unless the newest one has this content
    ///
    /// Schedules and campaigns keep the version that they were made of. Of more than 100 versions the oldest ones that
    /// nothing uses are removed.
    #[command(after_long_help = "\
Examples:
  reveille template put welcome --sender 'News <news@example.com>' --subject 'Hello {{ name }}' --text body.txt
  reveille schedule create daily --daily 09:00 --zone UTC --recipients people.csv --template welcome")]
    Put(Box<PutTemplateArgs>),
    /// One template: its versions, and the content of the newest one, or of the one that NAME@VERSION names
    #[command(
        after_long_help = "Examples:\n  reveille template show welcome\n  reveille template show welcome@2 -o json"
    )]
    Show(ShowArgs),
    /// All templates, by name
    #[command(after_long_help = "Example:\n  reveille template list")]
    List(Paging),
    /// Delete a template that no schedule and no campaign uses
    #[command(after_long_help = "Example:\n  reveille template delete welcome --yes")]
    Delete {
        /// Its name
        name: String,
        /// Say whether it can be deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// What an email of a stored template says to one recipient
    #[command(after_long_help = "Example:\n  reveille template preview welcome --value name=Ann")]
    Preview {
        /// NAME, which is the newest version, or NAME@VERSION
        name: String,
        /// Address of the recipient
        #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
        recipient: Option<String>,
        /// A variable of the recipient; may be repeated
        #[arg(long = "value", value_name = "NAME=VALUE", value_parser = parse_pair)]
        values: Vec<(String, String)>,
    },
    /// What an email says to one recipient; needs no cluster and sends nothing
    ///
    /// The flags are those of `schedule create`, and so is the code that renders: what passes here composes there.
    /// Message-ID, run and fence are stand-ins.
    #[command(after_long_help = "\
Examples:
  reveille template render --subject 'Good morning, {{ name }}' --text body.txt --recipients people.csv --row 2
  reveille template render --inline-text 'Hello {{ name }}' --variable name=Ann
  reveille template render --text body.txt --html body.html --recipients people.csv --raw | less")]
    Render(Box<RenderArgs>),
    /// Send one email to one address through the cluster, wait, and say which relay took it or refused it
    ///
    /// The content is that of a stored template, or of the flags.
    ///
    /// It is a run of its own, of no schedule: `run list` shows it, with the cause `test`. What is not sent within
    /// --finish-within is never sent. Exit code 0: a relay took it. 1: it was refused, or not sent in time.
    /// 4: the address has opted out. 8: in doubt, or still at the relay: it may have arrived.
    #[command(after_long_help = "\
Examples:
  reveille template send-test welcome --to you@example.com --values ann.yaml
  reveille template send-test welcome@2 --to you@example.com --value name=Ann
  reveille template send-test --to you@example.com --sender news@example.com --subject Hello --inline-text Hi
  reveille template send-test --to you@example.com --sender 'News <news@example.com>' \\
      --subject 'Good morning, {{ name }}' --text body.txt --recipients people.csv --row 2 --pool bulk")]
    SendTest(Box<SendTestArgs>),
}

/// `template put`.
#[derive(Debug, Args)]
pub struct PutTemplateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    #[command(flatten)]
    pub etag: EtagArgs,
    /// Check everything, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentChange,
}

/// `template render`.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// Which row of the recipients, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    /// Print the email as a relay gets it: encoded, with all header fields
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    #[command(flatten)]
    pub content: ContentChange,
}

/// `template send-test`.
#[derive(Debug, Args)]
pub struct SendTestArgs {
    /// A stored template: NAME, which is the newest version, or NAME@VERSION
    #[arg(conflicts_with_all = CONTENT_FLAGS)]
    pub name: Option<String>,
    /// The address that gets it
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub to: String,
    /// CSV whose row has the variables; its address gets nothing
    #[arg(long, value_name = "FILE.csv")]
    pub recipients: Option<PathBuf>,
    /// Which row of it, from 1
    #[arg(long, value_name = "N", default_value_t = 1, requires = "recipients", value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    /// Leave out rows that cannot be used
    #[arg(long, requires = "recipients")]
    pub skip_bad_rows: bool,
    /// The recipient's variables: YAML or JSON with a value for each name; replaces those of the row
    #[arg(long = "values", value_name = "FILE")]
    pub values_file: Option<PathBuf>,
    /// A variable of the recipient; may be repeated, and replaces those of the row and of the file
    #[arg(long = "value", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub values: Vec<(String, String)>,
    /// What is not sent this long after the call expires, from 1s to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1m")]
    pub finish_within: SignedDuration,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Check it with the cluster, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentChange,
}
