//! Writes one email, field by field: prepared parts, and the rest rendered for its recipient.
//!
//! Called by [`Compiled::compose`]. Without prepared parts the same code renders the whole email.

use std::borrow::Cow;

use minijinja::Value;
use reveille_ledger::content::Recipient;

use super::check::{self, HEADERS, refuse};
use super::prepared::{self, Body, Field, PreparedContent};
use super::render::HTML;
use super::values::Values;
use super::{
    Compiled, Composed, ContentError, HEADER_BYTES_MAX, RENDERED_BYTES_MAX, SUBJECT, Stamp, TEXT, attached, body, mime,
    stamp,
};

impl Compiled {
    /// Writes an email: the prepared parts, and the rest rendered.
    pub(super) fn write(
        &self,
        prepared: &PreparedContent,
        recipient: &Recipient,
        stamp: &Stamp,
    ) -> Result<Composed, ContentError> {
        let to = check::mailbox("recipient", &recipient.address)?;
        let values = Values::new(&self.variables, recipient, &to, stamp.run)?;
        let mut out = Vec::with_capacity(prepared.size());
        mime::mailbox(&mut out, "From", &self.sender);
        mime::mailbox(&mut out, "To", &to);
        mime::mailboxes(&mut out, "Cc", &self.cc);
        if let Some(reply_to) = &self.reply_to {
            mime::mailbox(&mut out, "Reply-To", reply_to);
        }
        self.write_field(&mut out, SUBJECT, &prepared.subject, &values)?;
        let is_auto_submitted = |field: &String| {
            field.strip_prefix(HEADERS).is_some_and(|name| name.eq_ignore_ascii_case(stamp::AUTO_SUBMITTED))
        };
        stamp::write(&mut out, stamp, !self.headers.iter().any(is_auto_submitted))?;
        for (field, ready) in self.headers.iter().zip(&prepared.headers) {
            self.write_field(&mut out, field, ready, &values)?;
        }
        mime::field(&mut out, "MIME-Version", "1.0");
        self.write_body(&mut out, prepared, &values, &stamp.boundary_seed)?;
        Ok(Composed { to: to.address.wire(), data: out })
    }

    fn write_field(
        &self,
        out: &mut Vec<u8>,
        field: &str,
        ready: &Field,
        values: &Values<'_>,
    ) -> Result<(), ContentError> {
        let filled = match ready {
            Field::Same(encoded) => {
                out.extend_from_slice(encoded);
                return Ok(());
            }
            Field::Filled(expressions, text) => prepared::fill(expressions, text, values, HEADER_BYTES_MAX),
            Field::Whole => None,
        };
        let text = filled.map_or_else(|| self.header_text(field, values.for_templates()), Ok)?;
        write_header(out, field, &text)
    }

    fn write_body(
        &self,
        out: &mut Vec<u8>,
        prepared: &PreparedContent,
        values: &Values<'_>,
        seed: &[u8; 32],
    ) -> Result<(), ContentError> {
        let text = self.has_text.then_some((TEXT, "text/plain", &prepared.text));
        let html = self.has_html.then_some((HTML, "text/html", &prepared.html));
        let root = match (text, html) {
            (Some(_), Some(_)) => "multipart/alternative",
            (one, other) => one.or(other).map_or("text/plain", |(_, media_type, _)| media_type),
        };
        attached::begin(out, &self.attachments, seed, root);
        let (Some(text), Some(html)) = (text, html) else {
            return text.or(html).map_or(Ok(()), |part| self.write_part(out, part, values));
        };
        let boundary = mime::boundary(seed);
        mime::field(out, "Content-Type", &format!("{root}; boundary=\"{boundary}\""));
        for part in [text, html] {
            out.extend_from_slice(format!("\r\n--{boundary}\r\n").as_bytes());
            self.write_part(out, part, values)?;
        }
        out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        Ok(())
    }

    fn write_part(
        &self,
        out: &mut Vec<u8>,
        (field, media_type, ready): (&str, &str, &Body),
        values: &Values<'_>,
    ) -> Result<(), ContentError> {
        let filled = match ready {
            Body::Lines(expressions, lines) if lines.write(out, media_type, expressions, values) => return Ok(()),
            Body::Filled(expressions, text) => prepared::fill(expressions, text, values, RENDERED_BYTES_MAX),
            Body::Lines(..) | Body::Whole => None,
        };
        let text = filled.map_or_else(|| self.body_text(field, values), Ok)?;
        body::part(out, media_type, &text);
        Ok(())
    }

    /// Renders a subject or a header.
    pub(super) fn header_text(&self, field: &str, values: &Value) -> Result<String, ContentError> {
        self.templates.render(field, values, HEADER_BYTES_MAX)
    }

    /// Renders the text or the html.
    pub(super) fn body_text(&self, field: &str, values: &Values<'_>) -> Result<String, ContentError> {
        self.templates.render(field, values.for_templates(), RENDERED_BYTES_MAX)
    }
}

/// Writes a rendered subject or header. A header with an empty value is left out, so a template can omit it.
pub(super) fn write_header(out: &mut Vec<u8>, field: &str, rendered: &str) -> Result<(), ContentError> {
    let text = one_line(field, &unbroken(rendered))?;
    match field.strip_prefix(HEADERS) {
        None => mime::unstructured(out, "Subject", &text),
        Some(name) if is_left_out(name, &text) => {}
        Some(name) => mime::unstructured(out, name, &text),
    }
    Ok(())
}

/// Returns true if the email does not have a header with this value.
pub(super) fn is_left_out(name: &str, value: &str) -> bool {
    // RFC 3834 section 5.1: `no` means the same as a missing field.
    value.is_empty() || name.eq_ignore_ascii_case(stamp::AUTO_SUBMITTED) && value == "no"
}

/// Returns the text with a blank for each line end that a recipient's value brought into a header. No user checks
/// millions of rows against a template, and a stray line end must not cost a recipient the email. Line ends in the
/// template itself are refused earlier.
pub(super) fn unbroken(rendered: &str) -> Cow<'_, str> {
    match rendered.contains(['\r', '\n']) {
        true => Cow::Owned(rendered.replace("\r\n", " ").replace(['\r', '\n'], " ")),
        false => Cow::Borrowed(rendered),
    }
}

/// Returns a rendered subject or header as one trimmed line. Fails if it has control characters.
pub(super) fn one_line(field: &str, rendered: &str) -> Result<String, ContentError> {
    let text = rendered.replace('\t', " ");
    if let Some(character) = text.chars().find(|character| character.is_control()) {
        let message =
            format!("contains a control character (U+{:04X}); a header is one line of text", u32::from(character));
        return refuse(field, message);
    }
    Ok(text.trim().to_owned())
}
