//! Reads as much of the MIME structure as is needed to show an email (RFC 2045, 2046). It finds the first text part and
//! the first HTML part, and lists the others. It never fails: for any bytes it returns something to show.

use percent_encoding::percent_decode_str;
use reveille_sink::headers;

use super::decode::{decoded, to_text, words};

/// Maximum nesting depth of multiparts. A deeper multipart is listed as one part.
const DEPTH_MAX: u8 = 8;
/// Maximum number of parts that are read, multiparts included.
const PARTS_MAX: usize = 100;

/// The parts of an email for its page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) text: Option<String>,
    pub(super) html: Option<String>,
    pub(super) parts: Vec<Part>,
}

/// A part that the page lists without its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: String,
    /// File name. Empty if the part has none.
    pub(super) name: String,
    /// Decoded size in bytes.
    pub(super) bytes: usize,
}

/// Parses a whole message.
pub(super) fn view(message: &[u8]) -> View {
    let mut view = View::default();
    walk(message, 0, &mut view, &mut 0);
    view
}

fn walk(entity: &[u8], depth: u8, view: &mut View, seen: &mut usize) {
    *seen += 1;
    if *seen > PARTS_MAX {
        return;
    }
    let (head, body) = headers::split(entity);
    let kind = Value::of(head, "Content-Type").unwrap_or_else(|| Value::parse("text/plain"));
    if kind.word.starts_with("multipart/")
        && depth < DEPTH_MAX
        && let Some(boundary) = kind.parameter("boundary").filter(|boundary| !boundary.is_empty())
    {
        return pieces(body, boundary).into_iter().for_each(|piece| walk(piece, depth + 1, view, seen));
    }
    leaf(head, body, &kind, view);
}

fn leaf(head: &[u8], body: &[u8], kind: &Value, view: &mut View) {
    let encoding = Value::of(head, "Content-Transfer-Encoding").map(|value| value.word).unwrap_or_default();
    let bytes = decoded(&encoding, body);
    let disposition = Value::of(head, "Content-Disposition");
    let attached = disposition.as_ref().is_some_and(|disposition| disposition.word == "attachment");
    let slot = match kind.word.as_str() {
        "text/plain" if !attached => &mut view.text,
        "text/html" if !attached => &mut view.html,
        _ => return list(kind, disposition.as_ref(), bytes.len(), view),
    };
    if slot.is_some() {
        return list(kind, disposition.as_ref(), bytes.len(), view);
    }
    *slot = Some(to_text(&bytes, kind.parameter("charset").unwrap_or("utf-8")));
}

fn list(kind: &Value, disposition: Option<&Value>, bytes: usize, view: &mut View) {
    let plain = disposition.and_then(|value| value.parameter("filename")).or_else(|| kind.parameter("name"));
    let name = disposition.and_then(|value| value.extended("filename"));
    let name = name.unwrap_or_else(|| words(plain.unwrap_or_default()));
    view.parts.push(Part { kind: kind.word.clone(), name, bytes });
}

/// Returns the parts between the lines `--boundary`, up to `--boundary--` or the end of the body.
fn pieces<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
    let (mut pieces, mut start, mut at) = (Vec::new(), None, 0);
    while pieces.len() < PARTS_MAX {
        let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) else { break };
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or_default().trim_ascii_end();
        let mark = line.strip_prefix(b"--").and_then(|line| line.strip_prefix(boundary.as_bytes()));
        if let Some(after @ (b"" | b"--")) = mark {
            pieces.extend(start.and_then(|start| body.get(start..at)).map(without_line_end));
            start = Some(at + length);
            if after == b"--" {
                return pieces;
            }
        }
        at += length;
    }
    pieces.extend(start.and_then(|start| body.get(start..)));
    pieces
}

/// Removes the line end before a boundary, because it belongs to the boundary.
fn without_line_end(piece: &[u8]) -> &[u8] {
    let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
    piece.strip_suffix(b"\r").unwrap_or(piece)
}

/// A header value of the form `word; name=value; name="value"`.
struct Value {
    /// In lower case.
    word: String,
    parameters: Vec<(String, String)>,
}

impl Value {
    fn of(head: &[u8], name: &str) -> Option<Self> {
        headers::first(head, name).map(|value| Self::parse(&value))
    }

    fn parse(value: &str) -> Self {
        let mut pieces = split_unquoted(value).into_iter();
        let word = pieces.next().unwrap_or_default().trim().to_ascii_lowercase();
        let parameters = pieces.filter_map(|piece| {
            let (name, value) = piece.split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), unquoted(value.trim())))
        });
        Self { word, parameters: parameters.collect() }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Value {
    /// Returns a parameter that is encoded, also one in pieces (RFC 2231).
    fn extended(&self, name: &str) -> Option<String> {
        let pieces = (0..PARTS_MAX).map_while(|number| self.parameter(&format!("{name}*{number}*")));
        let encoded = self.parameter(&format!("{name}*")).map_or_else(|| pieces.collect(), str::to_owned);
        let text = encoded.splitn(3, '\'').nth(2)?;
        Some(percent_decode_str(text).decode_utf8_lossy().into_owned())
    }
}

/// Splits at each `;` outside of quotes.
fn split_unquoted(value: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    value
        .split(|character| {
            let splits = character == ';' && !quoted;
            quoted ^= character == '"' && !escaped;
            escaped = character == '\\' && quoted && !escaped;
            splits
        })
        .collect()
}

fn unquoted(value: &str) -> String {
    match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        None => value.to_owned(),
        Some(inside) => {
            let mut escaped = false;
            let keep = |character: &char| {
                escaped = *character == '\\' && !escaped;
                !escaped
            };
            inside.chars().filter(keep).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_nested_message_are_found_and_decoded() {
        let message = b"Content-Type: multipart/mixed; boundary=\"outer;1\"\r\n\r\npreamble\r\n--outer;1\r\n\
            Content-Type: multipart/alternative;\r\n boundary=inner\r\n\r\n--inner\r\n\
            Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
            gr=C3=BC=\r\nn 1=2\r\n--inner\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n\
            PGI+aGk8\r\nL2I+\r\n--inner--\r\n--outer;1\r\nContent-Type: application/pdf\r\n\
            Content-Disposition: attachment; filename=\"a \\\"b\\\".pdf\"\r\n\r\n12345\r\n--outer;1--\r\nepilogue";
        let part = Part { kind: "application/pdf".into(), name: "a \"b\".pdf".into(), bytes: 5 };
        assert_eq!(
            view(message),
            View { text: Some("grün 1=2".into()), html: Some("<b>hi</b>".into()), parts: vec![part] }
        );
    }

    #[test]
    fn encoded_file_name_is_decoded() {
        let named = |parameters: &str| {
            let head = "Content-Type: application/pdf\r\nContent-Disposition: attachment;\r\n ";
            view(format!("{head}{parameters}\r\n\r\nx").as_bytes()).parts.remove(0).name
        };
        assert_eq!(named("filename*=utf-8''Zo%C3%AB%201.pdf"), "Zoë 1.pdf");
        assert_eq!(named("filename*0*=utf-8''Zo%C3;\r\n filename*1*=%AB.pdf"), "Zoë.pdf");
        assert_eq!(named("filename*=broken; filename=\"a.pdf\""), "a.pdf");
    }

    #[test]
    fn plain_message_is_its_text_and_broken_mime_shows_something() {
        assert_eq!(view(b"Subject: x\r\n\r\nhello").text.as_deref(), Some("hello"));
        let broken = view(b"Content-Type: multipart/mixed\r\n\r\nno boundary");
        assert_eq!(broken.parts.first().map(|part| part.bytes), Some(11));
        let cut = view(b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhalf");
        assert_eq!(cut.text.as_deref(), Some("half"));
    }

    #[test]
    fn nested_multiparts_end_somewhere() {
        let level = |number| format!("Content-Type: multipart/mixed; boundary=b{number}\r\n\r\n--b{number}\r\n");
        let message = (0..50).map(level).collect::<String>().into_bytes();
        assert_eq!(view(&message).parts.len(), 1);
        let many = [b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_vec(), b"--b\r\n\r\nx\r\n".repeat(5_000)];
        assert!(view(&many.concat()).parts.len() < PARTS_MAX);
    }
}
