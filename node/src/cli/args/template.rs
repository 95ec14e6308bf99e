//! `reveille template …`.

use clap::{Args, Subcommand};

use super::{ContentChange, RecipientArgs};

/// The noun.
#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TemplateCommand,
}

/// Its verbs.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// What a mail says to one recipient; needs no cluster and sends nothing
    ///
    /// The flags are those of `schedule create`, and so is the code that renders: what passes here composes there.
    /// Message-ID, run and fence are stand-ins.
    #[command(after_long_help = "\
Examples:
  reveille template render --subject 'Good morning, {{ name }}' --text body.txt --recipients people.csv --row 2
  reveille template render --inline-text 'Hello {{ name }}' --var name=Ann
  reveille template render --text body.txt --html body.html --recipients people.csv --raw | less")]
    Render(Box<RenderArgs>),
}

/// `template render`.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// Which row of the recipients, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    /// Print the mail as a relay gets it: encoded, with all header fields
    #[arg(long)]
    pub raw: bool,
    /// To whom.
    #[command(flatten)]
    pub recipients: RecipientArgs,
    /// What.
    #[command(flatten)]
    pub content: ContentChange,
}
