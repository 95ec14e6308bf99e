//! From content and recipient to the bytes of an email.
//!
//! The admin service calls [`Compiled::new`] to refuse content that could not be sent; a claim worker compiles a run's
//! content once and calls [`Compiled::compose`] for each recipient, before the gate (P5). It promises:
//! - **The same bytes** for the same recipient and stamp: a retry differs by `Date` and `X-Reveille-Fence` alone.
//! - **One message**: CRLF everywhere, no line above 998 octets, and no field that data could add, override or break.
//! - **Bounded** time (fuel) and memory ([`RENDERED_BYTES_MAX`]); a panic becomes a [`ComposeError`].
//!
//! It knows no relay and no dot-stuffing, draws nothing at random and reads no clock. Reading order: `check.rs`,
//! `controls.rs`, `language.rs`, `render.rs`, `values.rs`, `mail.rs` (`stamp.rs`, `mime.rs`, `body.rs`); `sheet.rs`
//! (`split.rs`, `form.rs`) does it once for many recipients; `preview.rs`.

mod body;
mod check;
mod controls;
mod form;
mod language;
mod mail;
mod mime;
mod preview;
mod render;
mod sheet;
mod split;
mod stamp;
mod values;
mod variables;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use reveille_ledger::address::{Address, AddressError, Mailbox};
use reveille_ledger::content::{Content, Recipient};

pub use check::check_size;
use check::refuse;
pub use controls::control_in;
use controls::not_one_line;
use mail::{one_line, write_header};
pub use preview::Preview;
use render::{HTML, RenderError, Templates};
use sheet::{Body, Field, Sheet};
pub use stamp::{Stamp, message_id};
use values::Variables;
pub use variables::{columns_used, is_variable};

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

/// Why content cannot be sent to any recipient. Deterministic.
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
    variables: Variables,
    /// Columns that the subject or a header uses, and which of them.
    in_headers: Vec<(usize, String)>,
    /// An email was composed.
    is_begun: AtomicBool,
    sheet: OnceLock<Sheet>,
    /// Nothing is ready.
    blank: Sheet,
}

/// One recipient's mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// The recipient's address in its wire form: for `RCPT TO`.
    pub to: String,
    /// Headers, empty line, body; every line ends with CRLF.
    pub data: Vec<u8>,
}

impl Compiled {
    /// Compiles `content` for an audience with these `columns`. A column stands before a variable of
    /// the same name.
    ///
    /// # Errors
    /// The first [`ContentError`]: an address, a size, a header that is not allowed, a template that does
    /// not compile or uses a variable that is not set.
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
        let variables = Variables::new(content, columns, &templates.used());
        let in_headers = values::in_headers(content, columns, &headers, &templates)?;
        let compiled = Compiled {
            sender,
            reply_to,
            blank: Sheet::blank(headers.len()),
            headers,
            has_text: content.text.is_some(),
            has_html: content.html.is_some(),
            is_bulk: content.bulk,
            templates,
            variables,
            in_headers,
            is_begun: AtomicBool::new(false),
            sheet: OnceLock::new(),
        };
        compiled.check_settled(&settled)?;
        Ok(compiled)
    }

    /// Header fields that are the same for all recipients are rendered once, so that a fault shows at once.
    fn check_settled(&self, fields: &[String]) -> Result<(), ContentError> {
        let values = self.variables.same();
        for field in fields {
            let text = self.header_text(field, &values);
            text.and_then(|text| one_line(field, &text)).map_err(|error| match error {
                ComposeError::Field { field, line, message } => ContentError { field, line, message },
                other => ContentError { field: field.clone(), line: None, message: other.to_string() },
            })?;
        }
        Ok(())
    }

    /// What of a recipient's values could not be sent: places among the columns, and why. A value that a
    /// header uses is one line of that header's length at most, whatever the template makes of it: a
    /// recipient who cannot be sent to is found when the list is given, not when the email is due.
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

    /// Must each email carry its recipient's way to opt out ([`Stamp::list_unsubscribe`])?
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// One recipient's mail.
    ///
    /// # Errors
    /// A [`ComposeError`]: this recipient cannot be sent this content; others may.
    pub fn compose(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Composed, ComposeError> {
        // The first email may be the only one: the sheet is made for the second.
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            return self.compose_whole(recipient, stamp);
        }
        self.caught(|| self.write(self.sheet.get_or_init(|| self.sheet()), recipient, stamp))
    }

    /// The same mail, each field rendered whole by the template engine: what [`Compiled::compose`] is measured
    /// against.
    ///
    /// # Errors
    /// As [`Compiled::compose`].
    pub fn compose_whole(&self, recipient: &Recipient, stamp: &Stamp) -> Result<Composed, ComposeError> {
        self.caught(|| self.write(&self.blank, recipient, stamp))
    }

    fn caught(&self, write: impl FnOnce() -> Result<Composed, ComposeError>) -> Result<Composed, ComposeError> {
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| Err(ComposeError::Panicked(panic_text(&*panic))))
    }

    /// What is the same for all recipients, made ready.
    fn sheet(&self) -> Sheet {
        let header = |field: &str| {
            let encode = |rendered: &str| {
                let mut encoded = Vec::new();
                write_header(&mut encoded, field, rendered).ok().map(|()| encoded)
            };
            Field::new((&self.templates, field, &self.variables), encode)
        };
        let body = |field: &str| Body::new(&self.templates, field, &self.variables);
        let headers = self.headers.iter().map(|field| header(field)).collect();
        Sheet { subject: header(SUBJECT), headers, text: body(TEXT), html: body(HTML) }
    }
}

fn in_field(field: &str, error: RenderError) -> ComposeError {
    ComposeError::Field { field: field.to_owned(), line: error.line, message: error.message }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests;
