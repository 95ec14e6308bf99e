//! `reveille template …`. `render` composes one email with the same code as the nodes, and prints it.

use std::path::PathBuf;

use jiff::Timestamp;
use reveille_cluster::compose::{Compiled, ContentError, Stamp, check_proposed, encode_attachments, message_id};
use reveille_cluster::file_store::encode_attachment;
use reveille_ledger::LEVEL;
use reveille_ledger::address::Address;
use reveille_ledger::content::{Attachment, Content, Recipient};
use reveille_ledger::ids::{Epoch, Fence, RunId};
use reveille_ledger::limits::limits;
use reveille_proto::admin::v1::{self, DeleteTemplateRequest, Field, ListTemplatesRequest};

use super::schedule::body;
use super::{
    CommandContext, ContentChange, Failure, OfTenant, RecipientArgs, RenderArgs, Stop, TemplateCommand, format,
    send_test, stored_template,
};
use crate::cli::attachments;
use crate::cli::view::template::MailView;

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
        TemplateCommand::Delete { name, dry_run, etag } => {
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

fn content(args: ContentChange, files: &[(Attachment, Vec<u8>)]) -> Result<Content, Failure> {
    let (text, html) = body::templates(args.texts)?;
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
fn files(args: &ContentChange) -> Result<Vec<(Attachment, Vec<u8>)>, Failure> {
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
