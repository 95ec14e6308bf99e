//! The header fields of an email (RFC 5322, 2045 and 2047), written into a buffer.
//!
//! Only [`super::Compiled`] and `stamp.rs` call this, with text without control characters. The output depends on the
//! arguments only (no random boundary, no clock). Lines end with CRLF, have at most 998 octets, and are folded at 78
//! where possible. The bodies are in `body.rs`. The builder of lettre is not used because it panics on some input and
//! draws random boundaries.

use data_encoding::BASE64;
use reveille_ledger::address::Mailbox;

/// Digits for [`hex`].
pub(super) const LOWER: &[u8; 16] = b"0123456789abcdef";
/// Digits for [`hex`].
pub(super) const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Preferred maximum length of a line without its CRLF (RFC 5322 2.1.1).
const LINE_GOOD: usize = 78;
/// Maximum length of a line without its CRLF (RFC 5322 2.1.1).
const LINE_MAX: usize = 998;
/// Maximum encoded text in one encoded-word of 75 characters (RFC 2047 2), without `=?utf-8?q??=`.
const ENCODED_MAX: usize = 63;

/// Writes a field whose value is not folded.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    for piece in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Writes a field of free text: unchanged if possible, otherwise in encoded-words.
pub(super) fn unstructured(out: &mut Vec<u8>, name: &str, value: &str) {
    let folded = if is_plain(value) { fold(name, value) } else { None };
    let folded = folded.unwrap_or_else(|| encoded_words(name.len() + 2, value));
    field(out, name, &folded);
}

/// Writes a field of one mailbox.
pub(super) fn mailbox(out: &mut Vec<u8>, name: &str, mailbox: &Mailbox) {
    mailboxes(out, name, std::slice::from_ref(mailbox));
}

/// Writes a field of several mailboxes, each on a line of its own; nothing for none.
pub(super) fn mailboxes(out: &mut Vec<u8>, name: &str, mailboxes: &[Mailbox]) {
    let Some((first, others)) = mailboxes.split_first() else { return };
    let mut value = mailbox_text(name.len() + 2, first);
    for mailbox in others {
        value.push_str(",\r\n ");
        value.push_str(&mailbox_text(1, mailbox));
    }
    field(out, name, &value);
}

/// Returns a mailbox as text that begins after `before` characters of its line.
fn mailbox_text(before: usize, mailbox: &Mailbox) -> String {
    let wire = mailbox.address.wire();
    let Some(display) = &mailbox.name else { return wire };
    let phrase = phrase(before, display);
    let last_line = phrase.rsplit('\n').next().map_or(0, str::len);
    let used = last_line + if phrase.contains('\n') { 0 } else { before };
    let blank = if used + 3 + wire.len() > LINE_GOOD { "\r\n " } else { " " };
    format!("{phrase}{blank}<{wire}>")
}

/// Returns a boundary that occurs in no quoted-printable or base64 text: neither contains `=_`.
pub(super) fn boundary(seed: &[u8; 32]) -> String {
    let mut text = String::with_capacity(34);
    text.push_str("=_");
    seed.iter().take(16).for_each(|byte| text.extend(hex(*byte, LOWER)));
    text
}

/// Returns a byte as two digits.
pub(super) fn hex(byte: u8, digits: &[u8; 16]) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from(digits[usize::from(digit)]))
}

fn is_plain(value: &str) -> bool {
    // "=?" would be read as the beginning of an encoded-word.
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !value.contains("=?")
}

/// Folds plain text at single blanks. `None` if that would change the text or leave a line too long.
fn fold(name: &str, value: &str) -> Option<String> {
    if name.len() + 2 + value.len() <= LINE_GOOD && value == value.trim() {
        return Some(value.to_owned());
    }
    let mut folded = String::with_capacity(value.len() + 32);
    let mut width = name.len() + 1;
    for word in value.split(' ') {
        if word.is_empty() || word.len() >= LINE_MAX {
            return None;
        }
        let first = folded.is_empty();
        if !first && width + 1 + word.len() > LINE_GOOD {
            folded.push_str("\r\n ");
            width = 1;
        } else {
            folded.push_str(if first { "" } else { " " });
            width += 1;
        }
        folded.push_str(word);
        width += word.len();
        if width > LINE_MAX {
            return None;
        }
    }
    Some(folded)
}

fn phrase(used: usize, name: &str) -> String {
    let short = used + name.len() + 2 <= LINE_GOOD;
    let atoms =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" !#$%&'*+-/=?^_`{|}~".contains(&byte));
    match (short && is_plain(name), atoms(name)) {
        (true, true) => name.to_owned(),
        (true, false) => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
        (false, _) => encoded_words(used, name),
    }
}

/// Encodes text as a sequence of encoded-words, one for each line. The first line already has `used` characters.
fn encoded_words(used: usize, text: &str) -> String {
    let escaped = text.bytes().filter(|byte| !is_q_literal(*byte) && *byte != b' ').count();
    let readable = escaped <= text.len() / 3;
    let cost = |octets: usize, quoted: usize| if readable { quoted } else { octets.div_ceil(3) * 4 };
    let mut words = String::new();
    let (mut chunk, mut octets, mut quoted) = (String::new(), 0, 0);
    let mut room = ENCODED_MAX.saturating_sub(used);
    for character in text.chars() {
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        let more: usize = bytes.iter().map(|byte| if is_q_literal(*byte) || *byte == b' ' { 1 } else { 3 }).sum();
        if cost(octets + bytes.len(), quoted + more) > room {
            push_word(&mut words, &chunk, readable);
            words.push_str("\r\n ");
            (chunk, octets, quoted, room) = (String::new(), 0, 0, ENCODED_MAX);
        }
        chunk.push(character);
        octets += bytes.len();
        quoted += more;
    }
    push_word(&mut words, &chunk, readable);
    words
}

fn push_word(words: &mut String, chunk: &str, readable: bool) {
    if chunk.is_empty() {
        return;
    }
    words.push_str(if readable { "=?utf-8?q?" } else { "=?utf-8?b?" });
    if readable {
        for byte in chunk.bytes() {
            match byte {
                b' ' => words.push('_'),
                _ if is_q_literal(byte) => words.push(char::from(byte)),
                _ => {
                    words.push('=');
                    words.extend(hex(byte, UPPER));
                }
            }
        }
    } else {
        BASE64.encode_append(chunk.as_bytes(), words);
    }
    words.push_str("?=");
}

/// Returns true if a Q encoded-word contains the byte unchanged, even inside a phrase (RFC 2047 5.3).
fn is_q_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!*+-/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::super::body::reading::{unbase64, unquote};
    use super::*;
    use proptest::prelude::*;

    /// Unfolds one field and decodes its encoded-words.
    fn read_field(field: &str) -> String {
        let (_, value) = field.split_once(": ").expect("a field");
        let value = value.strip_suffix("\r\n").expect("a line").replace("?=\r\n =?", "?==?").replace("\r\n", "");
        let value = value.trim_start();
        let mut read = Vec::new();
        let mut rest = value;
        while let Some((before, word)) = rest.split_once("=?utf-8?") {
            read.extend_from_slice(before.as_bytes());
            let (encoding, word) = word.split_at(2);
            let (word, after) = word.split_once("?=").expect("an end");
            read.extend(if encoding == "q?" { unquote(&word.replace('_', " ")) } else { unbase64(word) });
            rest = after;
        }
        read.extend_from_slice(rest.as_bytes());
        String::from_utf8(read).expect("whole characters")
    }

    fn written(name: &str, value: &str) -> String {
        let mut out = Vec::new();
        unstructured(&mut out, name, value);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn plain_text_stays_readable() {
        assert_eq!(written("Subject", "Good morning, Ann"), "Subject: Good morning, Ann\r\n");
        assert_eq!(written("Subject", "Good day Zoë"), "Subject: =?utf-8?q?Good_day_Zo=C3=AB?=\r\n");
        assert_eq!(written("Subject", "What =? is"), "Subject: =?utf-8?q?What_=3D=3F_is?=\r\n");
        assert_eq!(written("Subject", "こんにちは"), "Subject: =?utf-8?b?44GT44KT44Gr44Gh44Gv?=\r\n");
    }

    #[test]
    fn names_are_quoted_or_encoded_when_they_must_be() {
        let written = |text: &str| {
            let mut out = Vec::new();
            mailbox(&mut out, "To", &Mailbox::parse(text).expect("a mailbox"));
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written("ann@bücher.example"), "To: ann@xn--bcher-kva.example\r\n");
        assert_eq!(written("Ann Lee <a@b>"), "To: Ann Lee <a@b>\r\n");
        assert_eq!(written("\"Lee, \\\"Ann\\\"\" <a@b>"), "To: \"Lee, \\\"Ann\\\"\" <a@b>\r\n");
        assert_eq!(written("Good day Zoë <a@b>"), "To: =?utf-8?q?Good_day_Zo=C3=AB?= <a@b>\r\n");
        let long = written(&format!("{} <{}@example.com>", "long name ".repeat(30), "a".repeat(64)));
        assert!(long.lines().all(|line| line.len() <= 80), "{long}");
    }

    proptest! {
        #[test]
        fn encoded_field_decodes_to_the_same_text(value in "[ -~]{0,300}|[ a-zä漢😀=?_]{0,120}|[a-z]{900,998}", name in "[A-Za-z-]{1,64}") {
            let value = value.trim();
            let field = written(&name, value);
            prop_assert_eq!(read_field(&field), value);
            for line in field.strip_suffix("\r\n").unwrap_or_default().split("\r\n") {
                prop_assert!(line.len() <= LINE_MAX && line.is_ascii(), "{}", line);
                prop_assert!(line.contains("=?") || !line.trim().is_empty());
            }
        }
    }
}
