//! Recipients and content of an email, as flags that several commands have.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use reveille_ledger::address::Address;

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
    /// Leave out rows that cannot be used, instead of doing nothing
    #[arg(long, requires = "recipients")]
    pub skip_bad_rows: bool,
}

impl RecipientArgs {
    /// Returns whether recipients were given, by --to, --recipients or --audience.
    pub fn is_given(&self) -> bool {
        !self.to.is_empty() || self.recipients.is_some() || self.sealed.is_some()
    }
}

/// What is sent: a content, or a template.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Content")]
#[command(group = ArgGroup::new("body").args(["text", "inline_text", "html", "inline_html", "template"]).required(true).multiple(true))]
#[command(mut_arg("sender", |arg| arg.required_unless_present("template")))]
#[command(mut_arg("subject", |arg| arg.required_unless_present("template")))]
pub struct ContentOrTemplateArgs {
    /// A template instead of the content: NAME, which is its newest version now, or NAME@VERSION
    #[arg(long, value_name = "NAME[@VERSION]", conflicts_with_all = CONTENT_FLAGS)]
    pub template: Option<String>,
    #[command(flatten)]
    pub content: ContentArgs,
}

/// The flags of a content, which a template replaces.
pub const CONTENT_FLAGS: [&str; 12] = [
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

/// The fields of a content. A command that needs some of them says so.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Content")]
pub struct ContentArgs {
    /// From: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long, value_name = "ADDRESS")]
    pub sender: Option<String>,
    /// Reply-To
    #[arg(long, value_name = "ADDRESS")]
    pub reply_to: Option<String>,
    /// A Cc that each email shows, without an email of its own; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub cc: Vec<String>,
    /// Subject, a template
    #[arg(long)]
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
    /// Bulk email: each carries the header by which mail programs opt out at a click (List-Unsubscribe)
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

/// Parses the address of a recipient.
pub fn parse_address(text: &str) -> Result<String, String> {
    Address::parse(text).map(|address| address.as_given().to_owned()).map_err(|error| error.to_string())
}

/// Parses `NAME=VALUE`.
pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is written NAME=VALUE".to_owned()),
    }
}
