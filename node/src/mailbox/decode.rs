//! Decodes transfer encodings, encoded words and character sets (RFC 2045, 2047) to show an email. UTF-8, ASCII and
//! Latin-1 are supported; text in other character sets is decoded as UTF-8. It never fails: invalid input stays
//! unchanged.

use std::sync::LazyLock;

use data_encoding::{BASE64_NOPAD, Encoding};

/// Base64 in which the unused bits of the last digit may have any value: the text may be cut.
static BASE64_CUT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification.encoding().unwrap_or(BASE64_NOPAD)
});

/// Decodes RFC 2047 encoded words. Other text and invalid encoded words stay unchanged.
pub(super) fn words(value: &str) -> String {
    let (mut text, mut rest, mut after_word) = (String::with_capacity(value.len()), value, false);
    while let Some(start) = rest.find("=?") {
        let (before, tail) = rest.split_at(start);
        match encoded_word(tail) {
            Some((word, length)) => {
                // White space between two encoded words is not part of the text.
                if !(after_word && before.trim().is_empty()) {
                    text.push_str(before);
                }
                text.push_str(&word);
                (rest, after_word) = (tail.get(length..).unwrap_or_default(), true);
            }
            None => {
                text.push_str(before);
                text.push_str("=?");
                (rest, after_word) = (tail.get(2..).unwrap_or_default(), false);
            }
        }
    }
    text.push_str(rest);
    text
}

/// Decodes `=?charset?B|Q?text?=` at the start of `tail`. Returns the text and the encoded length in bytes.
fn encoded_word(tail: &str) -> Option<(String, usize)> {
    let (charset, rest) = tail.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (text, after) = rest.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => base64(text.as_bytes()),
        "Q" | "q" => quoted_printable(text.replace('_', " ").as_bytes()),
        _ => return None,
    };
    let charset = charset.split('*').next().unwrap_or(charset);
    Some((to_text(&bytes, charset), tail.len() - after.len()))
}

pub(super) fn to_text(bytes: &[u8], charset: &str) -> String {
    match charset.to_ascii_lowercase().as_str() {
        "iso-8859-1" | "latin1" | "windows-1252" => bytes.iter().copied().map(char::from).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

pub(super) fn decoded(encoding: &str, body: &[u8]) -> Vec<u8> {
    match encoding {
        "base64" => base64(body),
        "quoted-printable" => quoted_printable(body),
        _ => body.to_vec(),
    }
}

/// Skips bytes outside of the alphabet, such as line ends. Decoding stops at the padding.
fn base64(text: &[u8]) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    let mut digits: Vec<u8> = text.iter().copied().take_while(|byte| *byte != b'=').filter(is_digit).collect();
    // One digit alone is no byte.
    digits.truncate(digits.len() - usize::from(digits.len() % 4 == 1));
    BASE64_CUT.decode(&digits).unwrap_or_default()
}

fn quoted_printable(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'=', [b'\r', b'\n', after @ ..] | [b'\n', after @ ..]) => after,
            (b'=', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    after
                }
                _ => {
                    bytes.push(b'=');
                    rest.get(1..).unwrap_or_default()
                }
            },
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_encodings_stay_as_they_are() {
        assert_eq!(quoted_printable(b"a=zz=4"), b"a=zz=4");
        assert_eq!(base64(b"aGk=\r\nrest"), b"hi");
        assert_eq!(base64(b"a"), b"");
        assert_eq!(base64(b"aGl="), b"hi", "the unused bits may have any value");
    }

    #[test]
    fn encoded_words_are_read_and_others_left_alone() {
        assert_eq!(words("=?utf-8?B?R3LDvMOf?= =?UTF-8?Q?e_aus?= Köln"), "Grüße aus Köln");
        assert_eq!(words("=?iso-8859-1?Q?=FCber?= =?x"), "über =?x");
        assert_eq!(words("2 =? 3"), "2 =? 3");
    }
}
