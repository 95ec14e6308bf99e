//! Composes the bytes of an email from content and recipient.
//!
//! The admin service calls [`Compiled::new`] to refuse content that could not be sent. `worker/composition.rs` compiles
//! a run's content once and calls [`Compiled::compose`] for each recipient, before the gate (P5). Guarantees:
//! - **The same bytes** for the same recipient and stamp: a retry differs only in `Date` and `X-Reveille-Fence`.
//! - **One message**: CRLF everywhere, no line above 998 octets, and no field that data could add, override or break.
//! - **Bounded** time (fuel) and memory ([`RENDERED_BYTES_MAX`]); a panic becomes a [`ContentError`].
//!
//! It does not know relays or dot-stuffing, and uses no random numbers and no clock. Reading order: `check.rs`,
//! `controls.rs`, `language/mod.rs`, `render.rs`, `values.rs`, `mail.rs` (`stamp.rs`, `mime.rs`, `body.rs`,
//! `attached.rs`), `prepared.rs` (`split.rs`, `form.rs`: work done once for many recipients), `preview.rs`.

mod attached;
mod body;
mod check;
mod controls;
mod form;
mod functions;
mod language;
mod mail;
mod mime;
mod prepared;
mod preview;
mod render;
mod split;
mod stamp;
mod values;
mod variables;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use reveille_ledger::address::{Address, Mailbox};
use reveille_ledger::content::{Attachment, Content, Recipient};

pub use attached::{encode_attachments, end_len};
pub use check::check_proposed;
use check::refuse;
pub use controls::control_in;
use controls::not_one_line;
use mail::{one_line, write_header};
use prepared::{Body, Field, PreparedContent};
pub use preview::Preview;
use render::{HTML, Templates};
pub use stamp::{Stamp, message_id};
use values::Variables;
pub use variables::{built_in, columns_used, is_variable};

/// Maximum bytes of a rendered subject or header value: one line.
pub const HEADER_BYTES_MAX: usize = 998;
/// Maximum bytes of the template of a subject or a header value.
pub const HEADER_TEMPLATE_BYTES_MAX: usize = 4_096;
/// Maximum bytes of a rendered text or html part, before it is encoded.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of the value of one variable.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of the field List-Unsubscribe: it fits one line with its name.
pub const LIST_UNSUBSCRIBE_BYTES_MAX: usize = 960;
/// Maximum number of mailboxes in the `Cc` header.
const CC_MAX: usize = 10;
/// Name of the built-in variable with the recipient's address as given.
const RECIPIENT: &str = "recipient";
/// Name of the built-in variable with the run's name, such as `r12.0`.
const RUN: &str = "run";
/// The built-in variables and their values, for messages.
const BUILT_IN: [(&str, &str); 2] = [(RECIPIENT, "the recipient's address"), (RUN, "the run's name")];

const SUBJECT: &str = "subject";
const TEXT: &str = "text";

/// Reason why content cannot be sent: to any recipient, or to one of them while others may get it. Deterministic, even
/// for a panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}: {message}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct ContentError {
    /// `sender`, `subject`, `text`, `html`, `headers.NAME`, `variables.NAME`, `columns`, `recipient` …
    pub field: String,
    /// Line within the field, from 1. `None` if no single line is wrong.
    pub line: Option<u32>,
    /// Description of the problem, and the next step.
    pub message: String,
}

/// Content that compiles, ready for any recipient with the given columns.
#[derive(Debug)]
pub struct Compiled {
    sender: Mailbox,
    reply_to: Option<Mailbox>,
    cc: Vec<Mailbox>,
    headers: Vec<String>,
    has_text: bool,
    has_html: bool,
    is_bulk: bool,
    attachments: Vec<Attachment>,
    templates: Templates,
    variables: Variables,
    /// Columns that the subject or a header uses, each with the name of one such field.
    in_headers: Vec<(usize, String)>,
    /// True after the first email was composed.
    is_begun: AtomicBool,
    prepared: OnceLock<PreparedContent>,
    /// The content without prepared parts.
    unprepared: PreparedContent,
}

/// The email for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// The recipient's address in its wire form, for `RCPT TO`.
    pub to: String,
    /// Headers, empty line, body; every line ends with CRLF. If the content has attachments, the email goes on with
    /// [`encode_attachments`].
    pub data: Vec<u8>,
}

impl Compiled {
    /// Compiles `content` for an audience with these `columns`. A column overrides a variable of the same name.
    ///
    /// # Errors
    /// Returns the first [`ContentError`]: an address, a size, a header that is not allowed, or a template that does
    /// not compile or uses an unknown variable.
    pub fn new(content: &Content, columns: &[String]) -> Result<Compiled, ContentError> {
        let compile = || Self::compile(content, columns);
        catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| {
            refuse("content", format!("compiling panicked ({}); please report this content", panic_text(&*panic)))
        })
    }

    /// Compiles `content` for an audience that is not known yet: it has the columns that the content uses.
    ///
    /// # Errors
    /// As [`Compiled::new`].
    pub fn for_any_audience(content: &Content) -> Result<Compiled, ContentError> {
        Compiled::new(content, &columns_used(content))
    }

    fn compile(content: &Content, columns: &[String]) -> Result<Compiled, ContentError> {
        check::sizes(content)?;
        check::names(content, columns)?;
        let sender = check::mailbox("sender", &content.sender)?;
        let reply_to = content.reply_to.as_deref().map(|text| check::mailbox("reply_to", text)).transpose()?;
        if content.cc.len() > CC_MAX {
            return refuse("cc", format!("{} addresses are more than {CC_MAX}; remove some", content.cc.len()));
        }
        let cc = content.cc.iter().enumerate().map(|(number, text)| check::mailbox(&format!("cc[{number}]"), text));
        let cc = cc.collect::<Result<_, _>>()?;
        let headers = check::headers(content)?;
        check::characters(content)?;
        attached::check(content)?;

        let constant: BTreeSet<&str> = content
            .variables
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !columns.iter().any(|column| column == name))
            .collect();
        let mut known = constant.clone();
        known.extend(columns.iter().map(String::as_str));
        known.extend(BUILT_IN.map(|(name, _)| name));

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
        let variables = Variables::new(content, columns, &templates.used());
        let in_headers = values::in_headers(content, columns, &headers, &templates)?;
        let compiled = Compiled {
            sender,
            reply_to,
            cc,
            unprepared: PreparedContent::none(headers.len()),
            headers,
            has_text: content.text.is_some(),
            has_html: content.html.is_some(),
            is_bulk: content.bulk,
            attachments: content.attachments.clone(),
            templates,
            variables,
            in_headers,
            is_begun: AtomicBool::new(false),
            prepared: OnceLock::new(),
        };
        compiled.check_settled(&settled)?;
        Ok(compiled)
    }

    /// Renders header fields that are the same for all recipients once, so that errors are found at once.
    fn check_settled(&self, fields: &[String]) -> Result<(), ContentError> {
        let values = self.variables.same();
        for field in fields {
            one_line(field, &self.header_text(field, &values)?)?;
        }
        Ok(())
    }

    /// Returns which of a recipient's values could not be sent: the column's position and the reason. A value that a
    /// header uses must be one line of that header's maximum length, whatever the template does with it. So unusable
    /// values are found when the list is given, not when the email is due.
    pub fn misfits(&self, values: &[String]) -> Vec<(usize, String)> {
        let misfit = |(column, field): &(usize, String)| {
            let why = not_one_line(values.get(*column)?, field)?;
            Some((*column, why))
        };
        self.in_headers.iter().filter_map(misfit).collect()
    }

    /// Returns the sender's address, for `MAIL FROM`. Its domain is for [`message_id`].
    pub fn sender(&self) -> &Address {
        &self.sender.address
    }

    /// Returns true if each email must have a way to opt out ([`Stamp::list_unsubscribe`]).
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// Composes the email for one recipient.
    ///
    /// # Errors
    /// A [`ContentError`]: this recipient cannot be sent this content. Others may.
    pub fn compose(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Composed, ContentError> {
        // The first email may be the only one, so the content is prepared for the second.
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            return self.compose_whole(recipient, stamp);
        }
        self.caught(|| self.write(self.prepared.get_or_init(|| self.prepare()), recipient, stamp))
    }

    /// Composes the same email with each field rendered whole by the template engine. Tests and the example `compose`
    /// compare [`Compiled::compose`] with it.
    ///
    /// # Errors
    /// The same errors as [`Compiled::compose`].
    pub fn compose_whole(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Composed, ContentError> {
        self.caught(|| self.write(&self.unprepared, recipient, stamp))
    }

    fn caught(&self, write: impl FnOnce() -> Result<Composed, ContentError>) -> Result<Composed, ContentError> {
        catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|panic| refuse("composing", format!("panicked: {}", panic_text(&*panic))))
    }

    /// Prepares all parts that are the same for all recipients.
    fn prepare(&self) -> PreparedContent {
        let header = |field: &str| {
            let encode = |rendered: &str| {
                let mut encoded = Vec::new();
                write_header(&mut encoded, field, rendered).ok().map(|()| encoded)
            };
            Field::new((&self.templates, field, &self.variables), encode)
        };
        let body = |field: &str| Body::new(&self.templates, field, &self.variables);
        let headers = self.headers.iter().map(|field| header(field)).collect();
        PreparedContent { subject: header(SUBJECT), headers, text: body(TEXT), html: body(HTML) }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

pub mod return_path;
#[cfg(test)]
mod tests;
pub mod unsubscribe;
