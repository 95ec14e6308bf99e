//! Reply lines: collects bytes from a relay and returns whole SMTP replies.
//!
//! Only the stream calls it. It tolerates what RFC 5321 4.2.1 asks a client to tolerate (a bare `250`, unknown second
//! and third digits, any text) and what relays do besides (bytes that are not UTF-8, a lone LF at the end of a line).
//! It is strict where a guess could turn one answer into another: a line without a code, or a reply whose lines
//! disagree, is no reply. It keeps at most [`REPLY_BYTES_MAX`], whatever the peer sends. It does not decide what a
//! reply means.

use crate::smtp::cause::Cause;
use crate::smtp::reply::Reply;

/// Maximum size of a reply in bytes, all its lines together. RFC 5321 4.5.3.1.5 allows 512 octets a line; the longest
/// known EHLO answers have about 20 lines.
pub const REPLY_BYTES_MAX: usize = 16 * 1024;

/// Collects bytes until they make a reply. After an error it must not be used again: the start of the next reply is
/// unknown.
#[derive(Debug, Default)]
pub(crate) struct ReplyLines {
    unread: Vec<u8>,
    /// Number of bytes of the current reply that are already in `text`.
    consumed: usize,
    code: Option<u16>,
    text: String,
}

impl ReplyLines {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// False if so many bytes are unread that no more should be read from the peer.
    pub fn has_room(&self) -> bool {
        self.unread.len() < REPLY_BYTES_MAX
    }

    /// True if it has bytes that belong to no complete reply.
    pub fn has_surplus(&self) -> bool {
        !self.unread.is_empty() || self.consumed > 0
    }

    /// Returns the beginning of these bytes, for messages.
    pub fn surplus(&self) -> String {
        let shown = self.unread.get(..80).unwrap_or(&self.unread);
        format!("unasked: {}", String::from_utf8_lossy(shown).escape_debug())
    }

    /// True if these bytes are a 421 or may become one.
    pub fn surplus_is_421(&self) -> bool {
        let seen = self.unread.get(..3).unwrap_or(&self.unread);
        b"421".starts_with(seen)
    }

    /// Returns the next whole reply. `None`: more bytes are needed.
    ///
    /// # Errors
    /// `ReplyTooLong` and `Malformed`; both are final.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Cause> {
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            self.consumed += end + 1;
            if self.consumed > REPLY_BYTES_MAX {
                return Err(Cause::ReplyTooLong);
            }
            let last = take_line(&mut self.code, &mut self.text, &self.unread[..=end])?;
            self.unread.drain(..=end);
            if let Some(code) = last {
                self.consumed = 0;
                self.code = None;
                return Ok(Some(Reply { code, text: std::mem::take(&mut self.text) }));
            }
        }
        if self.consumed + self.unread.len() > REPLY_BYTES_MAX {
            return Err(Cause::ReplyTooLong);
        }
        Ok(None)
    }
}

/// Adds one line to the current reply, of which `known` and `reply` are code and text. Returns the code if it was the
/// last line.
fn take_line(known: &mut Option<u16>, reply: &mut String, line: &[u8]) -> Result<Option<u16>, Cause> {
    let malformed = || Cause::Malformed(String::from_utf8_lossy(line).chars().take(80).collect());
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (digits, rest) = line.split_at_checked(3).ok_or_else(malformed)?;
    let code = code_of(digits).ok_or_else(malformed)?;
    if known.is_some_and(|former| former != code) {
        return Err(malformed());
    }
    let (last, text) = match rest.split_first() {
        None => (true, rest),
        Some((b' ' | b'\t', text)) => (true, text),
        Some((b'-', text)) => (false, text),
        Some(_) => return Err(malformed()),
    };
    if known.is_some() {
        reply.push('\n');
    }
    *known = Some(code);
    push_clean(reply, text);
    Ok(last.then_some(code))
}

fn code_of(digits: &[u8]) -> Option<u16> {
    let [class @ b'2'..=b'5', second @ b'0'..=b'9', third @ b'0'..=b'9'] = digits else {
        return None;
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    Some(digit(class) * 100 + digit(second) * 10 + digit(third))
}

/// Appends `bytes` without control characters: the text goes to journals, logs and consoles, where it must not move a
/// cursor.
fn push_clean(text: &mut String, bytes: &[u8]) {
    text.reserve(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        text.push(if character.is_control() { ' ' } else { character });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<Reply>, Cause> {
        let mut lines = ReplyLines::default();
        lines.feed(bytes);
        lines.next_reply()
    }

    fn reply(code: u16, text: &str) -> Result<Option<Reply>, Cause> {
        Ok(Some(Reply { code, text: text.to_owned() }))
    }

    #[test]
    fn bare_code_is_a_reply() {
        assert_eq!(read(b"250\r\n"), reply(250, ""));
        assert_eq!(read(b"250 \r\n"), reply(250, ""));
        assert_eq!(read(b"250\n"), reply(250, ""));
    }

    #[test]
    fn lines_are_joined_and_unknown_digits_are_kept() {
        assert_eq!(read(b"250-one\r\n250-\r\n250 two\r\n"), reply(250, "one\n\ntwo"));
        assert_eq!(read(b"571 5.7.1 no\r\n"), reply(571, "5.7.1 no"));
        assert_eq!(read(b"299\tok\r\n"), reply(299, "ok"));
    }

    #[test]
    fn text_is_made_harmless() {
        assert_eq!(read(b"250 a\x1b[2J\xff\r\n"), reply(250, "a [2J\u{fffd}"));
    }

    #[test]
    fn reply_received_bytewise_is_the_same() {
        let mut lines = ReplyLines::default();
        let all = b"250-a\r\n250 b\r\n";
        for byte in &all[..all.len() - 1] {
            lines.feed(&[*byte]);
            assert_eq!(lines.next_reply(), Ok(None));
            assert!(lines.has_surplus());
        }
        lines.feed(b"\n");
        assert_eq!(lines.next_reply(), reply(250, "a\nb"));
        assert!(!lines.has_surplus());
    }

    #[test]
    fn two_replies_in_one_read_are_two_replies() {
        let mut lines = ReplyLines::default();
        lines.feed(b"250 a\r\n354\r\n25");
        assert_eq!(lines.next_reply(), reply(250, "a"));
        assert_eq!(lines.next_reply(), reply(354, ""));
        assert_eq!(lines.next_reply(), Ok(None));
        assert!(lines.has_surplus());
    }

    #[test]
    fn malformed_reply_is_refused() {
        let bad: [&[u8]; 7] =
            [b"\r\n", b"25\r\n", b"2x0 ok\r\n", b"150 no\r\n", b"650 no\r\n", b"250ok\r\n", b"250-a\r\n550 b\r\n"];
        for bytes in bad {
            assert!(matches!(read(bytes), Err(Cause::Malformed(_))), "{bytes:?}");
        }
    }

    #[test]
    fn endless_reply_is_refused_early() {
        assert_eq!(read(&[b'2'; REPLY_BYTES_MAX + 1]), Err(Cause::ReplyTooLong));
        assert_eq!(read(&b"250-x\r\n".repeat(REPLY_BYTES_MAX / 7 + 1)), Err(Cause::ReplyTooLong));
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, text};

        use super::*;

        #[rustfmt::skip]
        const FRAGMENTS: &[&str] = &[
            "250", "250-", "250 ", "421 4.3.2 ", "550-", "5.1.1 ", "354", "2x0", "-", " ", "\t", "\r\n", "\r\n",
            "\r\n", "\n", "\r", "ok", "\u{1b}[2J", "é", "\0",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
        ];

        /// Returns all replies of these bytes, which come in pieces, and the error that ends them.
        fn replies(bytes: &[u8], piece: usize) -> (Vec<Reply>, Option<Cause>) {
            let (mut lines, mut replies) = (ReplyLines::default(), Vec::new());
            for bytes in bytes.chunks(piece) {
                lines.feed(bytes);
                loop {
                    match lines.next_reply() {
                        Ok(Some(reply)) => replies.push(reply),
                        Ok(None) => break,
                        Err(cause) => return (replies, Some(cause)),
                    }
                }
                assert!(lines.unread.len() <= REPLY_BYTES_MAX && lines.text.len() <= 3 * REPLY_BYTES_MAX);
            }
            (replies, None)
        }

        proptest! {
            #![proptest_config(cases(1_000))]

            #[test]
            fn replies_depend_on_no_boundary_and_have_no_control_character(
                text in text(FRAGMENTS, 40),
                times in prop_oneof![9 => Just(1_usize), 1 => Just(30)],
                piece in 1_usize..50,
            ) {
                let bytes = text.repeat(times).into_bytes();
                let (whole, error) = replies(&bytes, usize::MAX);
                prop_assert_eq!(&replies(&bytes, piece), &(whole.clone(), error));
                for reply in whole {
                    prop_assert!((200..600).contains(&reply.code), "{reply:?}");
                    prop_assert!(!reply.text.contains(|one: char| one.is_control() && one != '\n'), "{reply:?}");
                }
            }
        }
    }
}
