//! The attachments of an email: the layers around its bodies, and the parts behind them (RFC 2046, 2183, 2387).
//!
//! ```text
//! multipart/mixed          if files are listed
//!   multipart/related      if the HTML shows files
//!     the bodies
//!     files that the HTML shows
//!   files that are listed
//! ```
//!
//! All that is behind the bodies is the same in each email of a content, so it is encoded once
//! ([`encode_attachments`]).

use reveille_ledger::content::{Attachment, Content};

use super::body::{BASE64, base64_len, base64_lines};
use super::check::refuse;
use super::mime::{boundary, field, hex};
use super::{ContentError, mime};

/// Maximum bytes of a file name.
const NAME_BYTES_MAX: usize = 255;
/// Maximum bytes of a media type with its parameters, and of a `Content-ID`.
const TYPE_BYTES_MAX: usize = 200;
/// A longer file name is divided among lines (RFC 2231).
const NAME_PIECE_MAX: usize = 56;
/// Bytes of a part's header fields, for estimates.
const PART_HEAD_BYTES: usize = 1_024;

/// Which attachments an email has.
#[derive(Clone, Copy)]
struct Layers {
    mixed: bool,
    related: bool,
}

impl Layers {
    fn of<'a>(attachments: impl IntoIterator<Item = &'a Attachment>) -> Layers {
        let mut layers = Layers { mixed: false, related: false };
        for attachment in attachments {
            match attachment.content_id {
                Some(_) => layers.related = true,
                None => layers.mixed = true,
            }
        }
        layers
    }
}

/// Returns the boundaries of both layers. Neither begins with the other, nor with that of the bodies.
fn boundaries(seed: &[u8; 32]) -> [String; 2] {
    ["=_m", "=_r"].map(|layer| boundary(seed).replacen("=_", layer, 1))
}

/// Writes what is before the bodies. `root` is the media type of the bodies together.
pub(super) fn begin(out: &mut Vec<u8>, attachments: &[Attachment], seed: &[u8; 32], root: &str) {
    let (layers, [mixed, related]) = (Layers::of(attachments), boundaries(seed));
    if layers.mixed {
        field(out, "Content-Type", &format!("multipart/mixed; boundary=\"{mixed}\""));
        out.extend_from_slice(format!("\r\n--{mixed}\r\n").as_bytes());
    }
    if layers.related {
        field(out, "Content-Type", &format!("multipart/related; type=\"{root}\";\r\n boundary=\"{related}\""));
        out.extend_from_slice(format!("\r\n--{related}\r\n").as_bytes());
    }
}

/// Returns the MIME parts of the attachments and the closing boundaries: bytes that are equal in each email of a
/// content. `seed` is that of the emails' stamps. Lines end with CRLF, and none begins with a dot. Empty without
/// attachments.
pub fn encode_attachments(attachments: &[(Attachment, Vec<u8>)], seed: &[u8; 32]) -> Vec<u8> {
    let all = || attachments.iter().map(|(attachment, _)| attachment);
    let (layers, [mixed, related]) = (Layers::of(all()), boundaries(seed));
    let mut out = Vec::with_capacity(end_len(all()));
    let mut layer = |is_there: bool, boundary: &str, is_shown: bool| {
        for (attachment, bytes) in attachments.iter().filter(|(one, _)| one.content_id.is_some() == is_shown) {
            out.extend_from_slice(format!("\r\n--{boundary}\r\n").as_bytes());
            part(&mut out, attachment, bytes);
        }
        if is_there {
            out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        }
    };
    layer(layers.related, &related, true);
    layer(layers.mixed, &mixed, false);
    out
}

/// Returns the length of [`encode_attachments`], or a little more.
pub fn end_len<'a>(attachments: impl IntoIterator<Item = &'a Attachment>) -> usize {
    let bytes = |size: u64| base64_len(usize::try_from(size).unwrap_or(usize::MAX));
    attachments.into_iter().map(|one| bytes(one.size).saturating_add(PART_HEAD_BYTES)).fold(0, usize::saturating_add)
}

fn part(out: &mut Vec<u8>, attachment: &Attachment, bytes: &[u8]) {
    field(out, "Content-Type", &attachment.content_type);
    field(out, "Content-Transfer-Encoding", BASE64);
    let (word, id) = match &attachment.content_id {
        Some(id) => ("inline", Some(id)),
        None => ("attachment", None),
    };
    field(out, "Content-Disposition", &format!("{word}{}", file_name(&attachment.name)));
    if let Some(id) = id {
        field(out, "Content-ID", &format!("<{id}>"));
    }
    out.extend_from_slice(b"\r\n");
    base64_lines(out, bytes);
}

/// Returns the parameter with the file name: quoted if it is short ASCII, else encoded (RFC 2231, RFC 6266).
fn file_name(name: &str) -> String {
    if name.len() <= NAME_PIECE_MAX && name.is_ascii() {
        return format!(";\r\n filename=\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let mut pieces = vec![String::new()];
    for character in name.chars() {
        let mut encoded = String::new();
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            match byte.is_ascii_alphanumeric() || b"!#$&+-.^_`{|}~".contains(&byte) {
                true => encoded.push(char::from(byte)),
                false => encoded.extend(['%'].into_iter().chain(hex(byte, mime::UPPER))),
            }
        }
        match pieces.last_mut() {
            Some(piece) if piece.len() + encoded.len() <= NAME_PIECE_MAX => piece.push_str(&encoded),
            _ => pieces.push(encoded),
        }
    }
    if let [whole] = pieces.as_slice() {
        return format!(";\r\n filename*=utf-8''{whole}");
    }
    let numbered = |(number, piece): (usize, &String)| {
        let charset = if number == 0 { "utf-8''" } else { "" };
        format!(";\r\n filename*{number}*={charset}{piece}")
    };
    pieces.iter().enumerate().map(numbered).collect()
}

/// Checks names, types and ids of a content's attachments.
pub(super) fn check(content: &Content) -> Result<(), ContentError> {
    for (number, attachment) in content.attachments.iter().enumerate() {
        let refuse = |field: &str, why: String| refuse(format!("attachments[{number}].{field}"), why);
        let Attachment { name, content_type, content_id, .. } = attachment;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return refuse("name", format!("is a file name of 1 to {NAME_BYTES_MAX} bytes; give another"));
        }
        if name.contains(|one: char| one.is_control() || matches!(one, '/' | '\\')) {
            return refuse("name", "contains a slash or a control character; give the file's name alone".to_owned());
        }
        if !is_media_type(content_type) {
            return refuse("content_type", format!("{content_type:?} is no media type; write TYPE/SUBTYPE"));
        }
        let lower = content_type.to_ascii_lowercase();
        if lower.starts_with("multipart/") || lower.starts_with("message/") {
            let next = "give application/octet-stream";
            return refuse("content_type", format!("{content_type} cannot be encoded as a file (RFC 2046); {next}"));
        }
        let Some(id) = content_id else { continue };
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"<>\"\\()".contains(&byte);
        if id.is_empty() || id.len() > TYPE_BYTES_MAX || !id.bytes().all(fits) {
            return refuse("content_id", format!("{id:?} is no id; use letters, digits, '.', '-' and '@'"));
        }
        if content.attachments.iter().take(number).any(|former| former.content_id.as_ref() == Some(id)) {
            return refuse("content_id", format!("{id:?} is given twice; choose another"));
        }
        if content.html.is_none() {
            return refuse(
                "content_id",
                "is for files that the html shows, and there is no html; leave it out".to_owned(),
            );
        }
    }
    Ok(())
}

/// True for `type/subtype`, also with parameters, on one line of ASCII.
fn is_media_type(text: &str) -> bool {
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_token = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let is_type = kind.trim_ascii_end().split_once('/').is_some_and(|(one, two)| is_token(one) && is_token(two));
    is_type && text.len() <= TYPE_BYTES_MAX && parameters.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
