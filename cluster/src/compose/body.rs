//! The bodies of an email (RFC 2045): line ends, the choice of an encoding, and the encodings.
//!
//! [`super::Compiled`] calls this for a rendered text, `prepared.rs` for single lines. Quoted-printable encodes each
//! line independently, so lines may be encoded separately; base64 does not keep lines.

use super::mime::{UPPER, field, hex};

/// Value of `Content-Transfer-Encoding`.
pub(super) const QUOTED: &str = "quoted-printable";
/// Value of `Content-Transfer-Encoding`.
pub(super) const BASE64: &str = "base64";
/// Number of octets in a line of base64, which has 76 characters.
const OCTETS_A_LINE: usize = 57;

/// Writes one part: its two header fields, an empty line, and the text with CRLF line ends, in the shorter of the two
/// encodings.
pub(super) fn part(out: &mut Vec<u8>, media_type: &str, text: &str) {
    let text = canonical(text);
    let mut weight = Weight::default();
    weight.add(&text);
    if weight.is_quoted() {
        head(out, media_type, QUOTED);
        lines(&text).for_each(|line| quote_line(out, line));
    } else {
        head(out, media_type, BASE64);
        base64_lines(out, text.as_bytes());
    }
}

/// Writes the header fields of a part and the empty line after them.
pub(super) fn head(out: &mut Vec<u8>, media_type: &str, encoding: &str) {
    for piece in ["Content-Type: ", media_type, "; charset=utf-8\r\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
    field(out, "Content-Transfer-Encoding", encoding);
    out.extend_from_slice(b"\r\n");
}

/// Returns the text with CRLF for every line end, and with a line end after its last line.
pub(super) fn canonical(text: &str) -> String {
    let mut lines = text.replace("\r\n", "\n").replace('\r', "\n");
    if !lines.ends_with('\n') {
        lines.push('\n');
    }
    lines.replace('\n', "\r\n")
}

/// Returns the lines of a [`canonical`] text, without their line ends.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator("\r\n")
}

/// Sizes that decide between the two encodings of a [`canonical`] text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    bytes: usize,
    /// Number of bytes that quoted-printable writes as three characters, except blanks at the ends of lines.
    escaped: usize,
}

impl Weight {
    pub(super) fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.escaped += text.bytes().filter(|byte| !is_printable(*byte) && !matches!(byte, b'\r' | b'\n')).count();
    }

    /// Adds a line that has no line end yet.
    pub(super) fn add_line(&mut self, line: &str) {
        self.add(line);
        self.bytes += 2;
    }

    /// Returns the sum for both texts.
    pub(super) fn and(self, other: Weight) -> Weight {
        Weight { bytes: self.bytes + other.bytes, escaped: self.escaped + other.escaped }
    }

    /// Returns true if quoted-printable is not longer than base64.
    pub(super) fn is_quoted(self) -> bool {
        self.bytes + 2 * self.escaped <= self.bytes.div_ceil(3) * 4
    }
}

/// Returns true if quoted-printable writes the byte unchanged, except a blank at the end of a line.
fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'<' | b'>'..=b'~' | b'\t')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Writes a line without its line end in quoted-printable, and then CRLF.
pub(super) fn quote_line(out: &mut Vec<u8>, line: &str) {
    let Some((last, mut rest)) = line.as_bytes().split_last() else { return out.extend_from_slice(b"\r\n") };
    // A line has at most 76 characters, including the "=" of a soft line break. The last character of a text line needs
    // no "=".
    let mut width = 0;
    loop {
        let run = rest.iter().take(75 - width).take_while(|byte| is_printable(**byte)).count();
        let (literal, after) = rest.split_at(run);
        out.extend_from_slice(literal);
        width += run;
        let Some((byte, after)) = after.split_first() else { break };
        if width + if is_printable(*byte) { 1 } else { 3 } > 75 {
            out.extend_from_slice(b"=\r\n");
            (width, rest) = (0, &rest[run..]);
        } else {
            quote(out, *byte);
            (width, rest) = (width + 3, after);
        }
    }
    let is_literal = is_printable(*last) && !is_blank(*last);
    if width + if is_literal { 1 } else { 3 } > 76 {
        out.extend_from_slice(b"=\r\n");
    }
    if is_literal {
        out.push(*last)
    } else {
        quote(out, *last)
    }
    out.extend_from_slice(b"\r\n");
}

fn quote(out: &mut Vec<u8>, byte: u8) {
    out.push(b'=');
    out.extend(hex(byte, UPPER).map(|digit| digit as u8));
}

/// Writes bytes in base64, in lines of 76 characters.
pub(super) fn base64_lines(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut line = String::with_capacity(80);
    for octets in bytes.chunks(OCTETS_A_LINE) {
        line.clear();
        data_encoding::BASE64.encode_append(octets, &mut line);
        line.push_str("\r\n");
        out.extend_from_slice(line.as_bytes());
    }
}

/// Returns the length of [`base64_lines`], or a little more.
pub(super) fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(OCTETS_A_LINE).saturating_mul(78)
}

/// Decoders, for tests.
#[cfg(test)]
pub(super) mod reading {
    pub(crate) fn unbase64(text: &str) -> Vec<u8> {
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

    pub(crate) fn unquote(text: &str) -> Vec<u8> {
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
}

#[cfg(test)]
mod tests {
    use super::reading::{unbase64, unquote};
    use super::*;
    use proptest::prelude::*;

    fn by_the_byte(line: &str) -> String {
        let (mut text, mut width) = (String::new(), 0);
        for (index, byte) in line.bytes().enumerate() {
            let last = index + 1 == line.len();
            let literal = is_printable(byte) && !(last && is_blank(byte));
            let written = if literal { char::from(byte).to_string() } else { format!("={byte:02X}") };
            if width + written.len() > if last { 76 } else { 75 } {
                text.push_str("=\r\n");
                width = 0;
            }
            width += written.len();
            text.push_str(&written);
        }
        text + "\r\n"
    }

    #[test]
    fn body_lines_are_short_and_end_with_crlf() {
        let written = |text: &str| {
            let mut out = Vec::new();
            part(&mut out, "text/plain", text);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(
            written("a=b \nü\t\r\rend"),
            "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=20\r\n=C3=BC=09\r\n\r\nend\r\n"
        );
        assert_eq!(
            written("漢字"),
            "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n5ryi5a2XDQo=\r\n"
        );
    }

    proptest! {
        #[test]
        fn encoded_body_decodes_to_the_same_text(text in "(?s)([ -~äöü\t\r\n]{0,200}|.{0,100}|[a ]{60,90})") {
            let mut out = Vec::new();
            part(&mut out, "text/plain", &text);
            let text = canonical(&text);
            prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
            let out = String::from_utf8(out).expect("ASCII");
            let (head, body) = out.split_once("\r\n\r\n").expect("a head");
            prop_assert!(body.ends_with("\r\n") && body.is_ascii() && body.split("\r\n").all(|line| line.len() <= 76));
            prop_assert!(!body.contains(" \r\n") && !body.contains("\t\r\n"));
            let read = if head.ends_with("base64") { unbase64(body) } else { unquote(body) };
            prop_assert_eq!(String::from_utf8(read).ok(), Some(text));
        }

        #[test]
        fn quoted_line_equals_bytewise_encoding(line in "[ -~ä\t=]{0,20}|[a =]{60,240}|[a-z]{74,78}[ =é]{0,3}") {
            let mut out = Vec::new();
            quote_line(&mut out, &line);
            prop_assert_eq!(String::from_utf8(out).expect("ASCII"), by_the_byte(&line));
        }
    }
}
