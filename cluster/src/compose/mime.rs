//! The words of RFC 5322, 2045 and 2047 that a mail needs, written into a buffer.
//!
//! Called by [`super::Compiled`] only, with text that is clean: no CR, LF, NUL or other control
//! character in a header. Everything is a function of its arguments (no random boundary, no clock), ends
//! its lines with CRLF and keeps them within 998 octets; header lines fold at 78 where they can, bodies
//! at 76. It is written by hand because lettre's builder panics on some input and draws its boundaries.

use reveille_ledger::address::Mailbox;

/// A line that readers and relays take without trouble, without its CRLF.
const LINE_GOOD: usize = 78;
/// A line at most (RFC 5322 2.1.1), without its CRLF.
const LINE_MAX: usize = 998;
/// Encoded text in one encoded-word of 75 characters (RFC 2047 2): what `=?utf-8?q??=` leaves.
const ENCODED_MAX: usize = 63;

/// Writes a field whose value has no blanks to fold at and needs none.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
}

/// Writes a field of free text: as it is where it can, else in encoded-words.
pub(super) fn unstructured(out: &mut Vec<u8>, name: &str, value: &str) {
    let folded = if is_plain(value) { fold(name, value) } else { None };
    let folded = folded.unwrap_or_else(|| encoded_words(name.len() + 2, value));
    field(out, name, &folded);
}

/// Writes a field of one mailbox.
pub(super) fn mailbox(out: &mut Vec<u8>, name: &str, mailbox: &Mailbox) {
    let wire = mailbox.address.wire();
    let Some(display) = &mailbox.name else { return field(out, name, &wire) };
    let phrase = phrase(name.len() + 2, display);
    let last_line = phrase.rsplit('\n').next().map_or(0, str::len);
    let used = last_line + if phrase.contains('\n') { 0 } else { name.len() + 2 };
    let blank = if used + 3 + wire.len() > LINE_GOOD { "\r\n " } else { " " };
    field(out, name, &format!("{phrase}{blank}<{wire}>"));
}

/// A boundary that stands in no quoted-printable and no base64 text: both never write `=_`.
pub(super) fn boundary(seed: &[u8; 32]) -> String {
    seed.iter().take(16).fold("=_".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Writes one part: its two header fields, an empty line, and the text with CRLF line ends.
pub(super) fn part(out: &mut Vec<u8>, media_type: &str, text: &str) {
    let text = canonical(text);
    field(out, "Content-Type", &format!("{media_type}; charset=utf-8"));
    let (encoding, body) = transfer(&text);
    field(out, "Content-Transfer-Encoding", encoding);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
}

fn is_plain(value: &str) -> bool {
    // "=?" would be read as the beginning of an encoded-word.
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !value.contains("=?")
}

/// Folds plain text at single blanks; none when that would change it or leave a line too long.
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

/// Encodes text as a row of encoded-words, one a line; `used` characters stand on the first line already.
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
                _ => words.push_str(&format!("={byte:02X}")),
            }
        }
    } else {
        words.push_str(&base64(chunk.as_bytes()));
    }
    words.push_str("?=");
}

/// What stands for itself in a Q encoded-word, also inside a phrase (RFC 2047 5.3).
fn is_q_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!*+-/".contains(&byte)
}

/// Any line end becomes CRLF, and the text ends with one.
fn canonical(text: &str) -> String {
    let mut lines = text.replace("\r\n", "\n").replace('\r', "\n");
    if !lines.ends_with('\n') {
        lines.push('\n');
    }
    lines.replace('\n', "\r\n")
}

/// The shorter of the two encodings, quoted-printable when they are equal.
fn transfer(text: &str) -> (&'static str, Vec<u8>) {
    let escaped = text.bytes().filter(|byte| !is_printable(*byte) && !matches!(byte, b'\r' | b'\n')).count();
    if text.len() + 2 * escaped <= text.len().div_ceil(3) * 4 {
        ("quoted-printable", quoted_printable(text))
    } else {
        ("base64", base64_lines(text.as_bytes()))
    }
}

/// What stands for itself in quoted-printable, a blank at the end of a line aside.
fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'<' | b'>'..=b'~' | b'\t')
}

fn quoted_printable(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    for line in text.split_terminator("\r\n") {
        let mut width = 0;
        let mut bytes = line.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let last = bytes.peek().is_none();
            let literal = is_printable(byte) && !(last && matches!(byte, b' ' | b'\t'));
            let needs = if literal { 1 } else { 3 };
            // 76 with the "=" of a soft line break; the last character of a line needs none.
            if width + needs > if last { 76 } else { 75 } {
                out.extend_from_slice(b"=\r\n");
                width = 0;
            }
            if literal {
                out.push(byte)
            } else {
                out.extend_from_slice(format!("={byte:02X}").as_bytes())
            }
            width += needs;
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn base64_lines(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() * 3 / 2);
    // 57 octets are 76 characters.
    for line in bytes.chunks(57) {
        out.extend_from_slice(base64(line).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) & 63;
            text.push(if place > group.len() { '=' } else { char::from(ALPHABET[digit as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unbase64(text: &str) -> Vec<u8> {
        let value = |character: char| match character {
            'A'..='Z' => u32::from(character) - 65,
            'a'..='z' => u32::from(character) - 71,
            '0'..='9' => u32::from(character) + 4,
            '+' => 62,
            _ => 63,
        };
        let digits: Vec<u32> = text.chars().filter(|c| !"=\r\n".contains(*c)).map(value).collect();
        let groups = digits.chunks(4).flat_map(|group| {
            let number = group.iter().fold(0, |number, digit| number << 6 | digit) << (6 * (4 - group.len()));
            number.to_be_bytes()[1..group.len()].to_vec()
        });
        groups.collect()
    }

    fn unquote(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            match (first, tail) {
                (b'=', [b'\r', b'\n', after @ ..]) => rest = after,
                (b'=', [high, low, after @ ..]) => {
                    let digits = format!("{}{}", char::from(*high), char::from(*low));
                    bytes.push(u8::from_str_radix(&digits, 16).expect("two hexadecimal digits"));
                    rest = after;
                }
                _ => bytes.push(*first),
            }
        }
        bytes
    }

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

    #[test]
    fn a_body_has_short_lines_that_end_with_crlf() {
        assert_eq!(quoted_printable(&canonical("a=b \nü\t\r\rend")), b"a=3Db=20\r\n=C3=BC=09\r\n\r\nend\r\n");
        let mut out = Vec::new();
        part(&mut out, "text/plain", "漢字");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n5ryi5a2XDQo=\r\n"
        );
    }

    proptest! {
        #[test]
        fn a_field_reads_back_as_it_was_whatever_its_text(value in "[ -~]{0,300}|[ a-zä漢😀=?_]{0,120}|[a-z]{900,998}", name in "[A-Za-z-]{1,64}") {
            let value = value.trim();
            let field = written(&name, value);
            prop_assert_eq!(read_field(&field), value);
            for line in field.strip_suffix("\r\n").unwrap_or_default().split("\r\n") {
                prop_assert!(line.len() <= LINE_MAX && line.is_ascii(), "{}", line);
                prop_assert!(line.contains("=?") || !line.trim().is_empty());
            }
        }

        #[test]
        fn a_body_reads_back_as_it_was(text in "(?s)([ -~äöü\t\r\n]{0,200}|.{0,100}|[a ]{60,90})") {
            let text = canonical(&text);
            prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
            let (encoding, body) = transfer(&text);
            let body = String::from_utf8(body).expect("ASCII");
            prop_assert!(body.ends_with("\r\n") && body.is_ascii() && body.split("\r\n").all(|line| line.len() <= 76));
            prop_assert!(!body.contains(" \r\n") && !body.contains("\t\r\n"));
            let read = if encoding == "base64" { unbase64(&body) } else { unquote(&body) };
            prop_assert_eq!(String::from_utf8(read).ok(), Some(text));
        }
    }
}
