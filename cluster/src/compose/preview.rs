//! Shows the parts of an email before they are encoded, for its author. The code that composes the email renders them.

use reveille_ledger::content::Recipient;
use reveille_ledger::ids::RunId;

use super::check::{self, HEADERS};
use super::mail::{is_left_out, unbroken};
use super::render::HTML;
use super::values::Values;
use super::{Compiled, ContentError, SUBJECT, TEXT, one_line};

/// The rendered parts of one email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The subject.
    pub subject: String,
    /// The content's header fields, without those that the email leaves out.
    pub headers: Vec<(String, String)>,
    /// The plain text, if the content has one.
    pub text: Option<String>,
    /// The HTML, if the content has one.
    pub html: Option<String>,
}

impl Compiled {
    /// Renders the parts of the email of this run for one recipient. [`Compiled::compose`] may still refuse it.
    ///
    /// # Errors
    /// The [`ContentError`] that composing it would return.
    pub fn preview(&self, recipient: &Recipient, run: RunId) -> Result<Preview, ContentError> {
        let to = check::mailbox("recipient", &recipient.address)?;
        let values = Values::new(&self.variables, recipient, &to, run)?;
        let part = |is_there: bool, field: &str| is_there.then(|| self.body_text(field, &values)).transpose();
        let header = |field: &str| one_line(field, &unbroken(&self.header_text(field, values.for_templates())?));
        let mut headers = Vec::new();
        for field in &self.headers {
            let (name, value) = (field.strip_prefix(HEADERS).unwrap_or(field), header(field)?);
            if !is_left_out(name, &value) {
                headers.push((name.to_owned(), value));
            }
        }
        let subject = header(SUBJECT)?;
        Ok(Preview { subject, headers, text: part(self.has_text, TEXT)?, html: part(self.has_html, HTML)? })
    }
}
