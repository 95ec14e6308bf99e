//! Prepares an email's text for the wire: dot stuffing (RFC 5321 4.5.2).
//!
//! The envelope makes the text, the stream writes it. Invariant: no text can end early, neither here nor at a relay
//! that accepts other line ends. This code reads each byte of each email, and copies only the few texts that need a dot
//! or a last line end.

use std::borrow::Cow;

/// A text as it is written to the wire: lines that begin with a dot have one more, and the text ends with CRLF. Only
/// [`Stuffed::new`] makes one, so no value of this type contains a final dot.
#[derive(Debug)]
pub(crate) struct Stuffed<'a>(Cow<'a, [u8]>);

impl<'a> Stuffed<'a> {
    /// Stuffs `text`, or borrows it if nothing has to change. Returns `None` if it has a CR or LF that is not part of a
    /// CRLF. Some servers accept those as line ends: a line of one dot with such ends could end the email early and
    /// smuggle in another.
    pub fn new(text: &'a [u8]) -> Option<Stuffed<'a>> {
        let lone = count_pairs(text, |first, second| (first == b'\r') != (second == b'\n'));
        if lone > 0 || text.first() == Some(&b'\n') || text.last() == Some(&b'\r') {
            return None;
        }
        let dots = count_pairs(text, |first, second| (first == b'\n') & (second == b'.'));
        let dots = dots + usize::from(text.first() == Some(&b'.'));
        let ends = text.ends_with(b"\r\n");
        if dots == 0 && ends {
            return Some(Stuffed(Cow::Borrowed(text)));
        }
        let mut wire = Vec::with_capacity(text.len() + dots + 2);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if line.first() == Some(&b'.') {
                wire.push(b'.');
            }
            wire.extend_from_slice(line);
        }
        if !ends {
            wire.extend_from_slice(b"\r\n");
        }
        Some(Stuffed(Cow::Owned(wire)))
    }

    /// Returns the text in pieces of at most `bytes`. Each is written within one time-out.
    pub fn pieces(&self, bytes: usize) -> impl Iterator<Item = Piece<'_>> {
        self.0.chunks(bytes.max(1)).map(Piece)
    }

    /// Returns the whole text if it has at most `bytes`.
    pub fn whole(&self, bytes: usize) -> Option<Piece<'_>> {
        (self.0.len() <= bytes).then_some(Piece(&self.0))
    }
}

/// Returns how many pairs of neighbours pass `test`. Sums of 255 fit a byte, so the compiler counts 16 at a time. This
/// matters because it reads each byte of each email.
fn count_pairs(text: &[u8], test: impl Fn(u8, u8) -> bool) -> usize {
    let next = text.get(1..).unwrap_or_default();
    let chunks = text.chunks(255).zip(next.chunks(255));
    chunks.map(|(a, b)| usize::from(a.iter().zip(b).map(|(a, b)| u8::from(test(*a, *b))).sum::<u8>())).sum()
}

/// Part of a [`Stuffed`] text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a>(&'a [u8]);

impl<'a> Piece<'a> {
    /// The bytes for the wire.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &[u8]) -> Option<Vec<u8>> {
        Stuffed::new(text).map(|stuffed| stuffed.0.into_owned())
    }

    #[test]
    fn dots_at_the_beginning_of_lines_are_doubled() {
        let table: [(&[u8], &[u8]); 8] = [
            (b"", b"\r\n"),
            (b"a", b"a\r\n"),
            (b"a\r\n", b"a\r\n"),
            (b".", b"..\r\n"),
            (b".\r\n", b"..\r\n"),
            (b"a\r\n.\r\nMAIL FROM:<x>\r\n", b"a\r\n..\r\nMAIL FROM:<x>\r\n"),
            (b"a.\r\n..b\r\n\r\n", b"a.\r\n...b\r\n\r\n"),
            (b"\r\n", b"\r\n"),
        ];
        for (text, expected) in table {
            assert_eq!(wire(text).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_line_end_is_refused() {
        for text in [&b"a\n.\r\nMAIL"[..], b"a\r.\r\n", b"\n", b"\r", b"a\r\r\n", b"a\r\n\n", b"a\r\nb\r"] {
            assert_eq!(wire(text), None, "{text:?}");
        }
    }

    #[test]
    fn bare_line_end_is_refused_at_any_place() {
        for offset in 0..600 {
            let padded = |middle: &[u8]| [&vec![b'a'; offset], middle, &vec![b'b'; 300]].concat();
            assert_eq!(wire(&padded(b"\n")), None, "{offset}");
            assert_eq!(wire(&padded(b"\r")), None, "{offset}");
            let stuffed = wire(&padded(b"\r\n.\r\n")).expect("a good text");
            assert_eq!(stuffed, [padded(b"\r\n..\r\n"), b"\r\n".to_vec()].concat(), "{offset}");
        }
    }

    #[test]
    fn text_without_leading_dots_is_not_copied() {
        assert!(matches!(Stuffed::new(b"a\r\nb.\r\n"), Some(Stuffed(Cow::Borrowed(_)))));
    }
}
