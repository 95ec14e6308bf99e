//! An email's text as it goes to the wire: dot stuffing (RFC 5321 4.5.2).
//!
//! Composing makes the text, the stream writes it. Invariant: no text can end early, neither here nor at a relay that
//! accepts other line ends. This code reads each byte of each email once, and copies only the few texts that need a
//! dot.

use std::sync::Arc;

/// A text as it is written to the wire: lines that begin with a dot have one more, and the text ends with CRLF. Only
/// [`EmailText::new`] makes one, so no value of this type contains a final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailText {
    wire: Vec<u8>,
    bytes: usize,
    is_ascii: bool,
    /// Lines that follow, which many emails have in common.
    end: Option<Arc<EmailText>>,
}

impl EmailText {
    /// Prepares headers, empty line and body for the wire. Returns `None` if there is a CR or LF that is not part of a
    /// CRLF. Some servers accept those as line ends: a line of one dot with such ends could end the email early and
    /// smuggle in another.
    pub fn new(mut text: Vec<u8>) -> Option<EmailText> {
        let lone = count_pairs(&text, |first, second| (first == b'\r') != (second == b'\n'));
        if lone > 0 || text.first() == Some(&b'\n') || text.last() == Some(&b'\r') {
            return None;
        }
        let (bytes, is_ascii) = (text.len(), text.is_ascii());
        let dots = count_pairs(&text, |first, second| (first == b'\n') & (second == b'.'));
        if dots > 0 || text.first() == Some(&b'.') {
            let lines = text.split_inclusive(|byte| *byte == b'\n');
            text = lines
                .flat_map(|line| [if line.starts_with(b".") { "." } else { "" }.as_bytes(), line])
                .flatten()
                .copied()
                .collect();
        }
        if !text.ends_with(b"\r\n") {
            text.extend_from_slice(b"\r\n");
        }
        Some(EmailText { wire: text, bytes, is_ascii, end: None })
    }

    /// Adds lines behind the text. They are shared, not copied.
    #[must_use]
    pub fn with_end(self, end: Option<Arc<EmailText>>) -> EmailText {
        EmailText { end, ..self }
    }

    /// Returns the size of the text that was given, in bytes: SIZE counts no dots that were added (RFC 1870 5).
    pub fn bytes(&self) -> usize {
        self.bytes + self.end.as_ref().map_or(0, |end| end.bytes())
    }

    /// True if all of it is ASCII. Bodies always are: composing encodes them.
    pub fn is_ascii(&self) -> bool {
        self.is_ascii && self.end.as_ref().is_none_or(|end| end.is_ascii())
    }

    /// Returns the text in pieces of at most `bytes`. Each is written within one time-out.
    pub(crate) fn pieces(&self, bytes: usize) -> impl Iterator<Item = Piece<'_>> {
        let end = self.end.iter().flat_map(move |end| end.wire.chunks(bytes.max(1)));
        self.wire.chunks(bytes.max(1)).chain(end).map(Piece)
    }

    /// Returns the whole text if it has at most `bytes`.
    pub(crate) fn whole(&self, bytes: usize) -> Option<Piece<'_>> {
        (self.wire.len() <= bytes && self.end.is_none()).then_some(Piece(&self.wire))
    }
}

/// Returns how many pairs of neighbours pass `test`. It reads each byte of each email, so it works on chunks of 255
/// pairs, whose sum fits a byte: the compiler then compares 16 bytes at once.
fn count_pairs(text: &[u8], test: impl Fn(u8, u8) -> bool) -> usize {
    let next = text.get(1..).unwrap_or_default();
    let chunks = text.chunks(255).zip(next.chunks(255));
    chunks.map(|(a, b)| usize::from(a.iter().zip(b).map(|(a, b)| u8::from(test(*a, *b))).sum::<u8>())).sum()
}

/// Part of an [`EmailText`].
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
        EmailText::new(text.to_vec()).map(|text| text.wire)
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
        let text = b"a\r\nb.\r\n".to_vec();
        let place = text.as_ptr();
        assert_eq!(EmailText::new(text).expect("a good text").wire.as_ptr(), place);
    }

    #[test]
    fn shared_end_follows_the_text() {
        let end = Arc::new(EmailText::new(b".end\r\n".to_vec()).expect("a good text"));
        let text = EmailText::new(b"x".to_vec()).expect("a good text").with_end(Some(Arc::clone(&end)));
        let wire: Vec<u8> = text.pieces(3).flat_map(Piece::bytes).copied().collect();
        assert_eq!(wire, b"x\r\n..end\r\n");
        assert_eq!((text.bytes(), text.is_ascii()), (7, true));
        assert!(text.whole(1_000).is_none(), "it is not in one piece");
    }

    #[test]
    fn size_counts_no_added_bytes() {
        let bytes = |text: &[u8]| EmailText::new(text.to_vec()).expect("a good text").bytes();
        assert_eq!([bytes(b".\r\n"), bytes(b"x"), bytes(b"")], [3, 1, 0]);
    }
}
