//! Finds the end of a message in the data after DATA and removes dot-stuffing. Pure: `receive.rs` passes it the
//! received bytes.
//!
//! A line ends with CR LF, a message with `CR LF . CR LF`. A lone CR or LF is a [`Violation`], so that no two readers
//! can disagree on the end of an email (SMTP smuggling).

/// Maximum octets of a text line with its CR LF and a stuffed dot: 1,000 (RFC 5321 4.5.3.1.6) and the dot.
const MAX_TEXT_LINE: usize = 1_001;

/// Reason why the rest of a stream cannot be read: the end of the message is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    BareLineFeed,
    BareCarriageReturn,
    LineTooLong,
}

impl Violation {
    /// Returns the reply text. The code is 521 (RFC 7504: the server accepts no email), and the dialogue ends with it.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::BareLineFeed => "5.5.2 bare <LF> received",
            Self::BareCarriageReturn => "5.5.2 bare <CR> received",
            Self::LineTooLong => "5.5.2 line too long",
        }
    }
}

/// Result of reading a piece of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All complete lines were read. The message continues.
    More,
    /// The terminator was read.
    Done,
    /// The stream violates the format.
    Broken(Violation),
}

/// Reads complete lines of a message from `input` and appends them to `message`. Returns the number of bytes read.
pub(crate) fn read_lines(input: &[u8], message: &mut Vec<u8>) -> (usize, Progress) {
    let mut taken = 0;
    while let Some(rest) = input.get(taken..) {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            let too_long = rest.len() > MAX_TEXT_LINE;
            return (taken, if too_long { Progress::Broken(Violation::LineTooLong) } else { Progress::More });
        };
        let line = rest.get(..end).unwrap_or_default();
        match text_of(line) {
            Err(violation) => return (taken, Progress::Broken(violation)),
            Ok(b".") => return (taken + end + 1, Progress::Done),
            Ok(text) => {
                message.extend_from_slice(text.strip_prefix(b".").unwrap_or(text));
                message.extend_from_slice(b"\r\n");
            }
        }
        taken += end + 1;
    }
    (taken, Progress::More)
}

/// Returns a line without its line end. The caller has removed the LF. Fails if the line end or the content violates
/// the format.
pub(crate) fn text_of(line: &[u8]) -> Result<&[u8], Violation> {
    if line.len() >= MAX_TEXT_LINE {
        return Err(Violation::LineTooLong);
    }
    let text = line.strip_suffix(b"\r").ok_or(Violation::BareLineFeed)?;
    if text.contains(&b'\r') {
        return Err(Violation::BareCarriageReturn);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_pieces(input: &[u8], size: usize) -> (Vec<u8>, usize, Progress) {
        let (mut message, mut taken, mut seen) = (Vec::new(), 0, 0);
        loop {
            seen = (seen + size).min(input.len());
            let (used, progress) = read_lines(&input[taken..seen], &mut message);
            taken += used;
            if progress != Progress::More || seen == input.len() {
                return (message, taken, progress);
            }
        }
    }

    #[test]
    fn dots_are_unstuffed_and_end_is_found_however_stream_is_cut() {
        let input = b"Subject: x\r\n\r\n..leading\r\na.b\r\n...\r\n.\r\nMAIL FROM:<next@x>\r\n";
        for size in 1..input.len() {
            let (message, taken, progress) = read_in_pieces(input, size);
            assert_eq!(message, b"Subject: x\r\n\r\n.leading\r\na.b\r\n..\r\n");
            assert_eq!((progress, &input[taken..]), (Progress::Done, &b"MAIL FROM:<next@x>\r\n"[..]));
        }
    }

    #[test]
    fn smuggled_end_breaks_reader() {
        for smuggled in [&b"a\r\n\n.\r\n"[..], b"a\n.\n", b"a\r\n.\n", b"a\n.\r\n"] {
            assert_eq!(read_in_pieces(smuggled, 3).2, Progress::Broken(Violation::BareLineFeed));
        }
        assert_eq!(read_in_pieces(b"a\r.\r\r\n", 2).2, Progress::Broken(Violation::BareCarriageReturn));
    }

    #[test]
    fn line_of_thousand_octets_passes_and_longer_one_does_not() {
        let line = |octets: usize| [vec![b'x'; octets - 2], b"\r\n.\r\n".to_vec()].concat();
        assert_eq!(read_in_pieces(&line(1_000), 7).2, Progress::Done);
        assert_eq!(read_in_pieces(&line(1_002), 7).2, Progress::Broken(Violation::LineTooLong));
        assert_eq!(read_in_pieces(&vec![b'x'; 5_000], 7).2, Progress::Broken(Violation::LineTooLong));
    }
}
