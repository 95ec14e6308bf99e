//! Finds the end of a message's header section and parses its fields (RFC 5322 2.2, unfolded). Called for each accepted
//! email, once for the record and again for the page. Never fails: it skips lines that are not fields.

/// A field as it is in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// Name of the field.
    pub name: &'a str,
    /// Bytes after the colon, folding included.
    raw: &'a [u8],
}

impl HeaderField<'_> {
    /// Returns the value on one line, trimmed. Bytes that are not UTF-8 are replaced.
    pub fn value(&self) -> String {
        let mut text = String::from_utf8_lossy(self.raw).into_owned();
        text.retain(|c| c != '\r' && c != '\n');
        let trimmed = text.trim();
        if trimmed.len() == text.len() { text } else { trimmed.to_owned() }
    }
}

/// Splits a message into its header section and its body. The empty line between them belongs to neither.
pub fn split(message: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(rest) = message.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(body) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) {
            return (message.get(..at).unwrap_or_default(), body);
        }
        at += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
    }
    (message, &[])
}

/// Returns the fields of a header section, in order.
pub fn fields(head: &[u8]) -> impl Iterator<Item = HeaderField<'_>> {
    let mut rest = head;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = field_end(rest);
            let (field, after) = rest.split_at(end);
            rest = after;
            if let Some(field) = parse(field) {
                return Some(field);
            }
        }
        None
    })
}

/// Returns the value of the first field with this name in any case. `None`: there is no such field.
pub fn first(head: &[u8], name: &str) -> Option<String> {
    fields(head).find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value())
}

/// Returns the length of the first field, including all its folded lines.
fn field_end(section: &[u8]) -> usize {
    let mut at = 0;
    while let Some(line) = section.get(at..) {
        match line.iter().position(|byte| *byte == b'\n') {
            None => break,
            Some(end) => at += end + 1,
        }
        if !matches!(section.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
    section.len()
}

fn parse(field: &[u8]) -> Option<HeaderField<'_>> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (name, value) = field.split_at_checked(colon)?;
    let name = std::str::from_utf8(name).ok()?.trim_end();
    let raw = value.get(1..)?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())).then_some(HeaderField { name, raw })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_fields_are_read_on_one_line_and_body_starts_after_empty_line() {
        let message = b"Subject: one\r\n two\r\nno field\r\nX-Reveille-Fence:1.2.3.4\r\n\r\nbody: not a field\r\n";
        let (head, body) = split(message);
        let read: Vec<_> = fields(head).map(|field| (field.name, field.value())).collect();
        assert_eq!(read, [("Subject", "one two".to_owned()), ("X-Reveille-Fence", "1.2.3.4".to_owned())]);
        assert_eq!(body, b"body: not a field\r\n");
        assert_eq!(first(head, "SUBJECT").as_deref(), Some("one two"));
    }

    #[test]
    fn message_without_empty_line_is_all_header_and_empty_one_is_nothing() {
        assert_eq!(split(b"Subject: x\r\n"), (&b"Subject: x\r\n"[..], &b""[..]));
        assert_eq!(split(b"\r\nbody"), (&b""[..], &b"body"[..]));
        assert_eq!(fields(b"").count(), 0);
    }
}
