//! Checks of content before its templates are compiled: sizes, names, addresses, header fields.
//!
//! [`super::Compiled::new`] calls this; [`check_proposed`] is called only where content is proposed. Each refusal names
//! the field and the next step.

use std::collections::BTreeSet;

use reveille_ledger::address::Mailbox;
use reveille_ledger::content::Content;
use reveille_ledger::limits::LedgerLimits;

use super::controls::{control_in, line_of_control};
use super::render::HTML;
use super::variables::built_in;
use super::{ContentError, HEADER_TEMPLATE_BYTES_MAX, SUBJECT, TEXT, VALUE_BYTES_MAX};

/// Maximum number of header fields that content may add.
const HEADERS_MAX: usize = 64;

/// Header fields that bulk content may not add: Reveille writes them.
const BULK: [&str; 2] = ["list-unsubscribe", "list-unsubscribe-post"];

/// Prefix of a header's name in the name of a field.
pub(super) const HEADERS: &str = "headers.";

/// Header fields that Reveille or the relays write. All `Content-*`, `Resent-*` and `X-Reveille-*` are reserved too.
const RESERVED: [&str; 14] = [
    "from",
    "to",
    "cc",
    "bcc",
    "sender",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "return-path",
    "received",
    "delivered-to",
    "dkim-signature",
];

pub(super) fn refuse<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, ContentError> {
    Err(ContentError { field: field.into(), line: None, message: message.into() })
}

pub(super) fn mailbox(field: &str, text: &str) -> Result<Mailbox, ContentError> {
    if text.contains("{{") {
        return refuse(field, "is an address, not a template; write the address itself");
    }
    Mailbox::parse(text).or_else(|error| refuse(field, format!("{error}; write ADDRESS or NAME <ADDRESS>")))
}

/// Checks that proposed content and its attachments are within the ledger's limits, and that neither its variables nor
/// the columns have the name of a built-in variable. Content that the ledger has already accepted is sent all the
/// same: a release may have lower limits or further built-in variables.
pub fn check_proposed(content: &Content, columns: &[String], limits: &LedgerLimits) -> Result<(), ContentError> {
    let (bytes, most) = (content.encoded_len(), limits.content_bytes_max);
    if bytes > most {
        return refuse("content", format!("has {bytes} bytes, more than {most}; link to large parts instead"));
    }
    let (count, most) = (content.attachments.len(), limits.attachments_max);
    if count > most {
        return refuse("attachments", format!("{count} are more than {most}; link to some instead"));
    }
    let (bytes, most) = (content.attached_bytes(), limits.attachment_bytes_max);
    if bytes > most as u64 {
        return refuse("attachments", format!("have {bytes} bytes together, more than {most}; link to large files"));
    }
    let taken = |name: &str| built_in(name).map(|value| format!("'{name}' is a built-in variable ({value})"));
    if let Some((name, taken)) = content.variables.iter().find_map(|(name, _)| Some((name, taken(name)?))) {
        return refuse(format!("variables.{name}"), format!("{taken}; choose another name"));
    }
    match columns.iter().find_map(|column| taken(column)) {
        Some(taken) => refuse("columns", format!("{taken}; rename the column")),
        None => Ok(()),
    }
}

pub(super) fn sizes(content: &Content) -> Result<(), ContentError> {
    if content.text.is_none() && content.html.is_none() {
        return refuse("content", "has neither text nor html; give one of them, or both");
    }
    if content.subject.len() > HEADER_TEMPLATE_BYTES_MAX {
        return refuse(SUBJECT, format!("is longer than {HEADER_TEMPLATE_BYTES_MAX} bytes; shorten it"));
    }
    Ok(())
}

/// Checks that texts have no unreadable control characters, and that the subject and headers are one line each.
pub(super) fn characters(content: &Content) -> Result<(), ContentError> {
    let one_line = |field: String, text: &str| match text.chars().find(|one| one.is_control() && *one != '\t') {
        None => Ok(()),
        Some(one) => refuse(
            field,
            format!("contains a control character (U+{:04X}); a header is one line of text", u32::from(one)),
        ),
    };
    one_line(SUBJECT.to_owned(), &content.subject)?;
    content.headers.iter().try_for_each(|(name, value)| one_line(format!("{HEADERS}{name}"), value))?;
    let texts = [(TEXT, &content.text), (HTML, &content.html)];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text.as_deref()?))) {
        if let Some(message) = control_in(text) {
            return Err(ContentError { field: field.to_owned(), line: line_of_control(text), message });
        }
    }
    for (name, value) in &content.variables {
        if let Some(message) = control_in(value) {
            return refuse(format!("variables.{name}"), message);
        }
    }
    Ok(())
}

pub(super) fn names(content: &Content, columns: &[String]) -> Result<(), ContentError> {
    let mut seen = BTreeSet::new();
    for (name, value) in &content.variables {
        let field = format!("variables.{name}");
        if !is_name(name) {
            return refuse(field, "is not a name; use letters, digits and '_', not beginning with a digit");
        }
        if !seen.insert(name) {
            return refuse(field, "is given twice; remove one of them");
        }
        if value.len() > VALUE_BYTES_MAX {
            return refuse(field, format!("is longer than {VALUE_BYTES_MAX} bytes; put it into the text itself"));
        }
    }
    let mut seen = BTreeSet::new();
    for column in columns {
        if !seen.insert(column.as_str()) {
            return refuse("columns", format!("'{column}' stands there twice; rename one of them"));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Checks the content's headers, and returns their names as fields, in order.
pub(super) fn headers(content: &Content) -> Result<Vec<String>, ContentError> {
    if content.headers.len() > HEADERS_MAX {
        return refuse("headers", format!("are more than {HEADERS_MAX}; remove some"));
    }
    // Names of header fields have no case.
    let (mut fields, mut seen) = (Vec::with_capacity(content.headers.len()), BTreeSet::new());
    for (name, value) in &content.headers {
        let field = format!("{HEADERS}{name}");
        let lower = name.to_ascii_lowercase();
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !fits {
            return refuse("headers", format!("{name:?} is not a header's name; use 1 to 64 letters, digits and '-'"));
        }
        let reserved = ["content-", "resent-", "x-reveille-"].iter().any(|prefix| lower.starts_with(prefix));
        if reserved || RESERVED.contains(&lower.as_str()) {
            return refuse(field, "is written by Reveille or on the way; remove it");
        }
        if content.bulk && BULK.contains(&lower.as_str()) {
            return refuse(field, "is written by Reveille on bulk email; remove it, or do not mark it as bulk");
        }
        if value.len() > HEADER_TEMPLATE_BYTES_MAX {
            return refuse(field, format!("is longer than {HEADER_TEMPLATE_BYTES_MAX} bytes; shorten it"));
        }
        if !seen.insert(lower) {
            return refuse(field, "is given twice; remove one of them");
        }
        fields.push(field);
    }
    Ok(fields)
}
