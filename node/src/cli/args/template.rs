//! `reveille template …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::schedule::parse_address;
use super::{ContentChange, RecipientArgs};

#[derive(Debug, Args)]
pub struct TemplateArgs {
    #[command(subcommand)]
    pub command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// What an email says to one recipient; needs no cluster and sends nothing
    ///
    /// The flags are those of `schedule create`, and so is the code that renders: what passes here composes there.
    /// Message-ID, run and fence are stand-ins.
    #[command(after_long_help = "\
Examples:
  reveille template render --subject 'Good morning, {{ name }}' --text body.txt --recipients people.csv --row 2
  reveille template render --inline-text 'Hello {{ name }}' --var name=Ann
  reveille template render --text body.txt --html body.html --recipients people.csv --raw | less")]
    Render(Box<RenderArgs>),
    /// Send one email to one address by the cluster's own road, wait, and say which relay took it or refused it
    ///
    /// It is a run of its own, of no schedule: `run list` shows it, with the cause `test`. What is not sent within
    /// --timeout (a minute) is never sent. Exit code 0: a relay took it. 1: it was refused, or not sent in time.
    /// 4: the address has opted out. 8: in doubt, or still at the relay: it may have arrived.
    #[command(after_long_help = "\
Examples:
  reveille template send-test --to you@example.com --sender news@example.com --subject Hello --inline-text Hi
  reveille template send-test --to you@example.com --sender 'News <news@example.com>' \\
      --subject 'Good morning, {{ name }}' --text body.txt --recipients people.csv --row 2 --pool bulk")]
    SendTest(Box<SendTestArgs>),
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
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Check it with the cluster, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentChange,
}
