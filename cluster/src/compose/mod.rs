//! From content and recipient to the bytes of a mail.
//!
//! The admin service calls [`Compiled::new`] to refuse content that could not be sent (with the field,
//! the line and the next step); a lane compiles a run's content once and calls [`Compiled::compose`] for
//! each recipient, before the gate (P5).
//!
//! What it promises:
//! - **The same bytes.** Two calls with the same recipient and stamp give identical bytes; a retry
//!   differs by the field `X-Reveille-Fence` alone.
//! - **One message.** CRLF everywhere, no line above 998 octets, no bare CR or LF, and no field that a
//!   recipient's data or a content's header could add, override or break.
//! - **Bounded.** In time by fuel, in memory by [`RENDERED_BYTES_MAX`]; a panic on the way is caught here
//!   and is a [`ComposeError`].
//!
//! What it is not: it knows no relay and no dot-stuffing, draws nothing at random and reads no clock.
//! The address fields carry a local part that is not ASCII as UTF-8, which needs SMTPUTF8 on the way
//! (`Address::needs_smtputf8`).
//!
//! Reading order: this page, `check.rs` and `controls.rs` (what content must be), `language.rs` (what a template may say), `render.rs`, `mime.rs`, `preview.rs`.

mod check;
mod controls;
mod language;
mod mime;
mod preview;
mod render;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::Value;
use reveille_ledger::address::{Address, AddressError, Mailbox};
use reveille_ledger::content::{Content, Recipient};
use reveille_ledger::ids::{Fence, RunId, Time};

use check::{HEADERS, refuse};
pub use controls::control_in;
use controls::not_one_line;
pub use preview::Preview;
use render::{HTML, RenderError, Templates};

/// Bytes of a rendered subject or header value: what one line may hold.
pub const HEADER_BYTES_MAX: usize = 998;
/// Bytes of the template of a subject or a header value.
pub const HEADER_TEMPLATE_BYTES_MAX: usize = 4_096;
/// Bytes of a rendered text or html part, before it is encoded.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the value of one variable.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the field List-Unsubscribe: a line holds it, with its name.
pub const LIST_UNSUBSCRIBE_BYTES_MAX: usize = 960;
/// The built-in variable: the recipient's address as given.
pub const RECIPIENT: &str = "recipient";

const SUBJECT: &str = "subject";
const TEXT: &str = "text";

/// Why content cannot be sent to anybody. Deterministic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}: {message}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct ContentError {
    /// `sender`, `subject`, `text`, `html`, `headers.NAME`, `variables.NAME`, `columns` …
    pub field: String,
    /// Line within the field, from 1, where one is to blame.
    pub line: Option<u32>,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Why this recipient's mail cannot be composed, while others' may. Deterministic, a panic included:
/// the same recipient fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// The recipient's address.
    #[error("the recipient's address: {0}")]
    Address(#[from] AddressError),
    /// A value of the recipient, or what a field becomes with it.
    #[error("{field}{}: {message}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Field {
        /// The field, or `columns.NAME`.
        field: String,
        /// Line within the field's template.
        line: Option<u32>,
        /// What is wrong.
        message: String,
    },
    /// The stamp is not fit for a header: a fault of the caller.
    #[error("the stamp's {0} cannot stand in a header")]
    Stamp(&'static str),
    /// A defect in this code or in a library.
    #[error("composing panicked: {0}")]
    Panicked(String),
}

/// What one hand-off adds to the content. All but the fence stays the same for a (run, recipient).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// From [`message_id`], without angle brackets.
    pub message_id: String,
    /// The claim row's.
    pub fence: Fence,
    /// The run's date.
    pub date: Time,
    /// The run.
    pub run: RunId,
    /// Fixed for the run; the MIME boundary is made of it.
    pub boundary_seed: [u8; 32],
    /// The recipient's way to opt out, as `Unsubscribe::header` writes it; none where the content is no bulk mail.
    pub list_unsubscribe: Option<String>,
}

/// Where a variable's value comes from.
#[derive(Debug)]
enum Source {
    Same(Value),
    Column(usize),
    Recipient,
}

/// Content that is known to compile, ready for any recipient with these columns.
#[derive(Debug)]
pub struct Compiled {
    sender: Mailbox,
    reply_to: Option<Mailbox>,
    headers: Vec<String>,
    has_text: bool,
    has_html: bool,
    is_bulk: bool,
    templates: Templates,
    variables: Vec<(String, Source)>,
    /// Columns that the subject or a header uses, and which of them.
    in_headers: Vec<(usize, String)>,
}

impl Compiled {
    /// Compiles `content` for an audience with these `columns`. A column stands before a variable of
    /// the same name.
    ///
    /// # Errors
    /// The first [`ContentError`]: an address, a size, a header that is not allowed, a template that does
    /// not compile or uses a variable that nobody sets.
    pub fn new(content: &Content, columns: &[String]) -> Result<Compiled, ContentError> {
        let compile = || Self::compile(content, columns);
        catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| {
            refuse("content", format!("compiling panicked ({}); please report this content", panic_text(&*panic)))
        })
    }

    fn compile(content: &Content, columns: &[String]) -> Result<Compiled, ContentError> {
        check::sizes(content)?;
        check::names(content, columns)?;
        let sender = check::mailbox("sender", &content.sender)?;
        let reply_to = content.reply_to.as_deref().map(|text| check::mailbox("reply_to", text)).transpose()?;
        let headers = check::headers(content)?;
        check::characters(content)?;

        let constant: BTreeSet<&str> = content
            .variables
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !columns.iter().any(|column| column == name))
            .collect();
        let mut known = constant.clone();
        known.extend(columns.iter().map(String::as_str));
        known.insert(RECIPIENT);

        let mut templates = Templates::new();
        let mut settled = Vec::new();
        if templates.add(SUBJECT, &content.subject, &known, &constant)? {
            settled.push(SUBJECT.to_owned());
        }
        for (field, (_, value)) in headers.iter().zip(&content.headers) {
            if templates.add(field, value, &known, &constant)? {
                settled.push(field.clone());
            }
        }
        for (field, source) in [(TEXT, &content.text), (HTML, &content.html)] {
            if let Some(source) = source {
                templates.add(field, source, &known, &constant)?;
            }
        }
        let variables = sources(content, columns, &templates.used());
        let in_headers = in_headers(content, columns, &headers, &templates)?;
        let compiled = Compiled {
            sender,
            reply_to,
            headers,
            has_text: content.text.is_some(),
            has_html: content.html.is_some(),
            is_bulk: content.bulk,
            templates,
            variables,
            in_headers,
        };
        compiled.check_settled(&settled)?;
        Ok(compiled)
    }

    /// Header fields that are the same for everybody are rendered once, so that a fault shows at once.
    fn check_settled(&self, fields: &[String]) -> Result<(), ContentError> {
        let same = self.variables.iter().filter_map(|(name, source)| match source {
            Source::Same(value) => Some((name.as_str(), value.clone())),
            Source::Column(_) | Source::Recipient => None,
        });
        let values = Value::from_pairs(same);
        for field in fields {
            self.header_text(field, &values).map_err(|error| match error {
                ComposeError::Field { field, line, message } => ContentError { field, line, message },
                other => ContentError { field: field.clone(), line: None, message: other.to_string() },
            })?;
        }
        Ok(())
    }

    /// What of a recipient's values could not be sent: places among the columns, and why. A value that a
    /// header uses is one line of that header's length at most, whatever the template makes of it: a
    /// recipient who cannot be sent to is found when the list is given, not when the mail is due.
    pub fn misfits(&self, values: &[String]) -> Vec<(usize, String)> {
        let misfit = |(place, field): &(usize, String)| {
            let why = not_one_line(values.get(*place)?, field)?;
            Some((*place, why))
        };
        self.in_headers.iter().filter_map(misfit).collect()
    }

    /// The sender's address: for `MAIL FROM`, and its domain for [`message_id`].
    pub fn sender(&self) -> &Address {
        &self.sender.address
    }

    /// Must each mail carry its recipient's way to opt out ([`Stamp::list_unsubscribe`])?
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// The bytes of one recipient's mail.
    ///
    /// # Errors
    /// A [`ComposeError`]: this recipient cannot be sent this content; others may.
    pub fn compose(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Vec<u8>, ComposeError> {
        let write = || self.write(recipient, stamp);
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| Err(ComposeError::Panicked(panic_text(&*panic))))
    }

    fn write(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Vec<u8>, ComposeError> {
        let to = Mailbox::parse(&recipient.address)?;
        let values = self.values(recipient, &to)?;
        let mut out = Vec::with_capacity(8 * 1024);
        mime::mailbox(&mut out, "From", &self.sender);
        mime::mailbox(&mut out, "To", &to);
        if let Some(reply_to) = &self.reply_to {
            mime::mailbox(&mut out, "Reply-To", reply_to);
        }
        mime::unstructured(&mut out, "Subject", &self.header_text(SUBJECT, &values)?);
        write_stamp(&mut out, stamp)?;
        for field in &self.headers {
            let value = self.header_text(field, &values)?;
            // An empty value is how a template leaves a field out.
            if !value.is_empty() {
                mime::unstructured(&mut out, field.strip_prefix(HEADERS).unwrap_or(field), &value);
            }
        }
        mime::field(&mut out, "MIME-Version", "1.0");
        self.write_body(&mut out, &values, &stamp.boundary_seed)?;
        Ok(out)
    }

    fn write_body(&self, out: &mut Vec<u8>, values: &Value, seed: &[u8; 32]) -> Result<(), ComposeError> {
        let render = |field: &str| {
            self.templates.render(field, values, RENDERED_BYTES_MAX).map_err(|error| in_field(field, error))
        };
        let parts = [(self.has_text, TEXT, "text/plain"), (self.has_html, HTML, "text/html")];
        if !(self.has_text && self.has_html) {
            for (_, field, media_type) in parts.into_iter().filter(|(present, ..)| *present) {
                mime::part(out, media_type, &render(field)?);
            }
            return Ok(());
        }
        let boundary = mime::boundary(seed);
        mime::field(out, "Content-Type", &format!("multipart/alternative; boundary=\"{boundary}\""));
        for (_, field, media_type) in parts {
            out.extend_from_slice(format!("\r\n--{boundary}\r\n").as_bytes());
            mime::part(out, media_type, &render(field)?);
        }
        out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        Ok(())
    }

    fn values(&self, recipient: &Recipient, to: &Mailbox) -> Result<Value, ComposeError> {
        let mut values = Vec::with_capacity(self.variables.len());
        for (name, source) in &self.variables {
            let value = match source {
                Source::Same(value) => value.clone(),
                Source::Recipient => Value::from(to.address.as_given()),
                Source::Column(place) => match recipient.values.get(*place) {
                    Some(value) if value.len() > VALUE_BYTES_MAX => {
                        let message = format!("the value is longer than {VALUE_BYTES_MAX} bytes");
                        return Err(ComposeError::Field { field: format!("columns.{name}"), line: None, message });
                    }
                    Some(value) => Value::from(value.as_str()),
                    // A short row: undefined, so that only templates that ask for it fail.
                    None => continue,
                },
            };
            values.push((name.as_str(), value));
        }
        Ok(Value::from_pairs(values))
    }

    /// Renders a subject or a header value: one trimmed line without control characters.
    fn header_text(&self, field: &str, values: &Value) -> Result<String, ComposeError> {
        let rendered =
            self.templates.render(field, values, HEADER_BYTES_MAX).map_err(|error| in_field(field, error))?;
        let text = rendered.replace('\t', " ");
        if let Some(character) = text.chars().find(|character| character.is_control()) {
            let message =
                format!("contains a control character (U+{:04X}); a header is one line of text", u32::from(character));
            return Err(in_field(field, RenderError { line: None, message }));
        }
        Ok(text.trim().to_owned())
    }
}

/// The Message-ID of a (run, recipient), without angle brackets: the same for every attempt, different
/// for every other one, also after a restore (P21).
pub fn message_id(cluster: u128, cluster_incarnation: u64, run: RunId, recipient: u32, domain: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("reveille 2026-11 message-id");
    hasher.update(&cluster.to_be_bytes());
    hasher.update(&cluster_incarnation.to_be_bytes());
    hasher.update(&run.index.to_be_bytes());
    hasher.update(&run.place.to_be_bytes());
    hasher.update(&recipient.to_be_bytes());
    let hash = hasher.finalize();
    let digits: String = hash.as_bytes().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}@{domain}")
}

fn in_field(field: &str, error: RenderError) -> ComposeError {
    ComposeError::Field { field: field.to_owned(), line: error.line, message: error.message }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// Where each variable that is used comes from: the recipient's columns before the common values.
fn sources(content: &Content, columns: &[String], used: &BTreeSet<String>) -> Vec<(String, Source)> {
    let source_of = |name: &String| {
        if name == RECIPIENT {
            return Some(Source::Recipient);
        }
        let column = columns.iter().position(|column| column == name).map(Source::Column);
        column.or_else(|| {
            let (_, value) = content.variables.iter().find(|(variable, _)| variable == name)?;
            Some(Source::Same(Value::from(value.as_str())))
        })
    };
    used.iter().filter_map(|name| source_of(name).map(|source| (name.clone(), source))).collect()
}

/// The columns that the subject and the headers use; a common value that they use is looked at here.
fn in_headers(
    content: &Content,
    columns: &[String],
    headers: &[String],
    templates: &Templates,
) -> Result<Vec<(usize, String)>, ContentError> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for field in std::iter::once(SUBJECT).chain(headers.iter().map(String::as_str)) {
        for name in templates.used_by(field) {
            if let Some(place) = columns.iter().position(|column| column == name) {
                if !found.iter().any(|(known, _)| *known == place) {
                    found.push((place, field.to_owned()));
                }
                continue;
            }
            let value = content.variables.iter().find(|(variable, _)| variable == name);
            if let Some(why) = value.and_then(|(_, value)| not_one_line(value, field)) {
                return refuse(format!("variables.{name}"), why);
            }
        }
    }
    Ok(found)
}

fn write_stamp(out: &mut Vec<u8>, stamp: &Stamp) -> Result<(), ComposeError> {
    let id = &stamp.message_id;
    let fits =
        id.len() <= 512 && id.contains('@') && id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte));
    if !fits {
        return Err(ComposeError::Stamp("message id"));
    }
    let date = stamp.date.timestamp().to_zoned(jiff::tz::TimeZone::UTC);
    let date = jiff::fmt::rfc2822::to_string(&date).map_err(|_| ComposeError::Stamp("date"))?;
    mime::field(out, "Date", &date);
    mime::field(out, "Message-ID", &format!("<{id}>"));
    mime::field(out, "Auto-Submitted", "auto-generated");
    if let Some(ways) = &stamp.list_unsubscribe {
        write_list_unsubscribe(out, ways)?;
    }
    mime::field(out, "X-Reveille-Run", &stamp.run.to_string());
    mime::field(out, "X-Reveille-Fence", &stamp.fence.to_string());
    Ok(())
}

/// RFC 8058: both fields, and the relay's DKIM signature has to cover both.
fn write_list_unsubscribe(out: &mut Vec<u8>, ways: &str) -> Result<(), ComposeError> {
    let fits = ways.len() <= LIST_UNSUBSCRIBE_BYTES_MAX && ways.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !fits {
        return Err(ComposeError::Stamp("way to opt out"));
    }
    // An address in angle brackets is never cut; a second one goes on a line of its own.
    mime::field(out, "List-Unsubscribe", &ways.replace(", ", ",\r\n "));
    mime::field(out, "List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    Ok(())
}

#[cfg(test)]
mod tests;
