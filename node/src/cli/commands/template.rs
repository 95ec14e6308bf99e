//! `reveille template …`. `render` composes one email with the same code as the nodes, and prints it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use reveille_cluster::compose::{Compiled, ContentError, Stamp, check_proposed, encode_attachments, message_id};
use reveille_cluster::file_store::encode_attachment;
use reveille_ledger::LEVEL;
use reveille_ledger::address::Address;
use reveille_ledger::content::{Attachment, Content, Recipient};
use reveille_ledger::ids::{Epoch, Fence, RunId};
use reveille_ledger::limits::limits;
use reveille_proto::admin::v1::{self, DeleteTemplateRequest, Field, ListTemplatesRequest};
use serde::Serialize;

use super::schedule::body;
use super::send_test::SendTestArgs;
use super::stored_template::{PutTemplateArgs, lines_of};
use super::{
    CommandContext, ContentArgs, DeleteArgs, Failure, OfTenant, Paging, RecipientArgs, ShowArgs, Stop, View, format,
    send_test, stored_template,
};
use crate::cli::args::content::{parse_address, parse_pair};
use crate::cli::attachments;
use crate::cli::view::own_objects;

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
    Delete(DeleteArgs),
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
    pub content: ContentArgs,
}

/// Sender and recipient, if the user names none.
const SENDER: &str = "sender@example.com";
const RECIPIENT: &str = "recipient@example.com";
/// Ids that no real email has: no run opens at log index 0.
const RUN: RunId = RunId { index: 0, place: 0 };
const FENCE: Fence = Fence { group: 1, epoch: Epoch(0), index: 0, place: 0 };

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<TemplateCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        TemplateCommand::Put(args) => stored_template::put(context, tenant, *args).await,
        TemplateCommand::Show(args) => stored_template::show(context, tenant, args).await,
        TemplateCommand::List(paging) => {
            context.list_of(paging, ListTemplatesRequest { tenant, ..ListTemplatesRequest::default() }).await
        }
        TemplateCommand::Delete(DeleteArgs { name, dry_run, etag }) => {
            let request = DeleteTemplateRequest { tenant, name, validate_only: dry_run, etag: etag.to_wire() };
            stored_template::delete(context, request).await
        }
        TemplateCommand::Preview { name, recipient, values } => {
            stored_template::preview(context, tenant, &name, (recipient, values)).await
        }
        TemplateCommand::Render(args) => render(context, *args),
        TemplateCommand::SendTest(args) => Box::pin(send_test::run(context, tenant, *args)).await,
    }
}

fn render(context: &CommandContext<'_>, args: RenderArgs) -> Result<(), Stop> {
    let (columns, recipient) = recipient(&args.recipients, args.row)?;
    let places = Places::of(&args);
    let files = files(&args.content)?;
    let content = content(args.content, &files)?;
    let compiled = check_proposed(&content, &columns, limits(LEVEL)).and_then(|()| Compiled::new(&content, &columns));
    let refused = |error: ContentError| places.at(&error.field, error.line, &error.message);
    let compiled = compiled.map_err(refused)?;
    let preview = compiled.preview(&recipient, RUN).map_err(refused)?;
    let stamp = Stamp {
        message_id: message_id(0, 0, RUN, 0, compiled.sender().domain()),
        run: RUN,
        fence: Some(FENCE),
        date: Timestamp::now().into(),
        boundary_seed: [0; 32],
        // The base URL of unsubscribe links is part of a node's configuration.
        list_unsubscribe: None,
    };
    let mail = compiled.compose(&recipient, &stamp).map_err(refused)?;
    let whole = [mail.data, encode_attachments(&files, &stamp.boundary_seed)].concat();
    let raw = String::from_utf8_lossy(&whole).into_owned();
    if args.raw {
        return context.terminal.raw(&raw);
    }
    let cc = (!content.cc.is_empty()).then(|| ("Cc".to_owned(), content.cc.join(", ")));
    context.terminal.show(&MailView {
        sender: content.sender,
        recipient: recipient.address,
        reply_to: content.reply_to,
        subject: preview.subject,
        headers: cc.into_iter().chain(preview.headers).map(|(name, value)| Field { name, value }).collect(),
        text: preview.text,
        html: preview.html,
        raw,
    })
}

/// Returns the columns, and the recipient in the chosen row.
fn recipient(args: &RecipientArgs, row: u32) -> Result<(Vec<String>, Recipient), Failure> {
    let named = |address: &str, values: Vec<String>| {
        let read =
            Address::parse(address).map_err(|error| Failure::usage("--to", error.to_string(), "LOCAL@DOMAIN"))?;
        Ok::<_, Failure>(Recipient { address: read.as_given().to_owned(), key: read.key(), values })
    };
    if !args.is_given() {
        return Ok((Vec::new(), named(RECIPIENT, Vec::new())?));
    }
    if args.sealed.is_some() {
        let message = "a template is rendered here, and a sealed audience is on the nodes";
        return Err(Failure::usage("--audience", message, "--to ADDRESS with --variable, or --recipients FILE.csv"));
    }
    let listed = body::recipients(args)?;
    let count = listed.audience.recipients.len();
    let place = usize::try_from(row).unwrap_or(usize::MAX) - 1;
    let Some(chosen) = listed.audience.recipients.into_iter().nth(place) else {
        let there = format::counted(count as u64, "recipient");
        return Err(Failure::usage("--row", format!("there is no row {row}: {there}"), "a row from 1 on"));
    };
    Ok((listed.audience.columns, named(&chosen.address, chosen.values)?))
}

fn content(args: ContentArgs, files: &[(Attachment, Vec<u8>)]) -> Result<Content, Failure> {
    let (text, html) = body::texts(args.texts)?;
    Ok(Content {
        sender: args.sender.unwrap_or_else(|| SENDER.to_owned()),
        reply_to: args.reply_to,
        cc: args.cc,
        subject: args.subject.unwrap_or_default(),
        text,
        html,
        headers: args.headers,
        variables: args.variables,
        bulk: args.bulk,
        attachments: files.iter().map(|(attachment, _)| attachment.clone()).collect(),
    })
}

/// Reads the attachments.
fn files(args: &ContentArgs) -> Result<Vec<(Attachment, Vec<u8>)>, Failure> {
    let read =
        attachments::read(&args.attachments)?.into_iter().map(|v1::Attachment { name, content_type, data, .. }| {
            let (file, size) = (encode_attachment(&data).0, data.len() as u64);
            (Attachment { name, content_type, content_id: None, size, file }, data)
        });
    Ok(read.collect())
}

/// Where the user gave each field: a file, or a flag.
struct Places {
    text: Option<PathBuf>,
    html: Option<PathBuf>,
    recipients: Option<PathBuf>,
}

impl Places {
    fn of(args: &RenderArgs) -> Places {
        let texts = &args.content.texts;
        let recipients = args.recipients.recipients.clone();
        Places { text: texts.text.clone(), html: texts.html.clone(), recipients }
    }

    fn at(&self, field: &str, line: Option<u32>, message: &str) -> Failure {
        let (file, flag) = match field {
            "text" => (self.text.as_ref(), "--inline-text"),
            "html" => (self.html.as_ref(), "--inline-html"),
            "sender" => (None, "--sender"),
            "reply_to" => (None, "--reply-to"),
            "subject" => (None, "--subject"),
            "content" => (None, "--text or --html"),
            field if field.starts_with("cc") => (None, "--cc"),
            field if field.starts_with("headers") => (None, "--header"),
            field if field.starts_with("variables") => (None, "--variable"),
            _ => (self.recipients.as_ref(), "--recipients"),
        };
        let place = file.map_or_else(|| flag.to_owned(), |path| path.display().to_string());
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let next = "fix it; the variables are the columns of --recipients, each --variable, recipient and run";
        Failure::file(format!("{place}{line}"), message).then(next)
    }
}

/// An email as one recipient sees it, rendered without a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct MailView {
    /// The sender's address.
    pub sender: String,
    /// The recipient's address.
    pub recipient: String,
    /// The address for replies, if it is not the sender.
    pub reply_to: Option<String>,
    /// The rendered subject.
    pub subject: String,
    /// Header fields that the content adds.
    #[serde(serialize_with = "crate::api_json::serialize_all")]
    pub headers: Vec<Field>,
    /// The plain text; null without one.
    pub text: Option<String>,
    /// The HTML text; null without one.
    pub html: Option<String>,
    /// The message as a relay receives it.
    pub raw: String,
}

own_objects!(MailView);

impl View for MailView {
    const NAME: &'static str = "recipient";

    fn text(&self, _paint: bool) -> String {
        let mut lines = vec![format!("From: {}", self.sender), format!("To: {}", self.recipient)];
        lines.extend(self.reply_to.iter().map(|address| format!("Reply-To: {address}")));
        lines.extend(lines_of(&self.subject, &self.headers, (&self.text, &self.html)));
        lines.join("\n")
    }
}
