//! Validates the content of a schedule, a campaign or a message: given in the request, or a template.

use reveille_cluster::file_store::encode_attachment;
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::content::{Attachment, Content, ContentChoice};
use reveille_ledger::refusal::CommandRefusal;
use reveille_proto::admin::v1::{self, ErrorReason};

use super::{Fields, NAME_MAX};

/// A content as the ledger's command names it, and the content itself.
#[derive(Debug)]
pub struct CheckedContent {
    /// The content, or the version of a template that has it.
    pub choice: ContentChoice,
    /// The content, given inline or read from the version of the template.
    pub content: Content,
}

impl From<Content> for CheckedContent {
    fn from(content: Content) -> CheckedContent {
        CheckedContent { choice: content.clone().into(), content }
    }
}

impl CheckedContent {
    /// Returns the path of a field of the content. The content of a template is no field of the request, so the message
    /// names its field.
    pub fn place(&self, prefix: &str, field: &str, message: String) -> (String, String) {
        let template = self.choice.template();
        match (template, field) {
            (Some(template), _) => (format!("{prefix}template"), format!("'{template}', {field}: {message}")),
            (None, "content") => (format!("{prefix}content"), message),
            (None, field) => (format!("{prefix}content.{field}"), message),
        }
    }
}

/// Reads `NAME` or `NAME@VERSION`.
pub fn template_name(text: &str) -> Result<(&str, Option<u32>), String> {
    let Some((name, version)) = text.split_once('@') else { return Ok((text, None)) };
    let number = version.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| format!("{version:?} is not a version; write NAME, or NAME@3"))?;
    Ok((name, Some(number)))
}

/// Returns the content that a request gives, or that of the template that it names. `prefix` is the path of the message
/// with both fields, such as `schedule.`. `node` has the templates.
pub fn chosen_content(
    fields: &mut Fields,
    prefix: &str,
    (requested, template): (Option<v1::Content>, &str),
    (tenant, node): (&str, Option<&NodeContext>),
) -> Option<CheckedContent> {
    if template.is_empty() {
        return content(fields, &format!("{prefix}content"), requested).map(CheckedContent::from);
    }
    let field = format!("{prefix}template");
    if requested.is_some() {
        fields.refuse(field, "is named, and a content is given; give one of them");
        return None;
    }
    let (name, version) = fields.take(&field, template_name(template))?;
    let name = fields.name(&field, name, NAME_MAX);
    let unknown = || Err(CommandRefusal::NoSuchTemplate { name: name.clone(), version });
    match node.map_or_else(unknown, |node| node.template(tenant, &name, version)) {
        Ok((named, content)) => Some(CheckedContent { choice: ContentChoice::Template(named), content }),
        Err(refusal) => {
            fields.refuse_as(ErrorReason::TemplateNotFound, field, refusal.to_string());
            None
        }
    }
}

/// Checks the form of a content. `path` is its field in the request.
pub fn content(fields: &mut Fields, path: &str, requested: Option<v1::Content>) -> Option<Content> {
    let Some(requested) = requested else {
        fields.refuse(path, "is missing; give a sender, a subject, and a text or html");
        return None;
    };
    if requested.sender.trim().is_empty() {
        fields.refuse(format!("{path}.sender"), "is missing; write ADDRESS or NAME <ADDRESS>");
        return None;
    }
    let attachments = requested.attachments.into_iter().enumerate().filter_map(|(number, requested)| {
        let path = format!("{path}.attachments[{number}]");
        attachment(fields, &path, requested)
    });
    let attachments: Vec<Attachment> = attachments.collect();
    let pairs = |of: Vec<v1::Field>| of.into_iter().map(|field| (field.name, field.value)).collect();
    Some(Content {
        sender: requested.sender,
        reply_to: (!requested.reply_to.is_empty()).then_some(requested.reply_to),
        cc: requested.cc,
        subject: requested.subject,
        text: requested.text,
        html: requested.html,
        headers: pairs(requested.headers),
        variables: pairs(requested.variables),
        bulk: requested.bulk,
        attachments,
    })
}

/// Reads an attachment. Its bytes are those of the file, or it names a file by hash ([`Admin::take_files`]).
///
/// [`Admin::take_files`]: crate::server::admin::Admin::take_files
fn attachment(fields: &mut Fields, path: &str, requested: v1::Attachment) -> Option<Attachment> {
    let v1::Attachment { name, content_type, data, content_id, size, file_hash } = requested;
    let (file, size) = match file_hash.is_empty() {
        true => (encode_attachment(&data).0, data.len() as u64),
        false => (fields.take(&format!("{path}.file_hash"), file_hash.parse())?, size),
    };
    let content_type = Some(content_type).filter(|given| !given.is_empty());
    let content_type = content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    Some(Attachment { name, content_type, content_id: Some(content_id).filter(|id| !id.is_empty()), size, file })
}
