//! A history as a file: one JSON object a line.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::{Ended, Event, FORMAT, Header};

/// The first line.
#[derive(Serialize, Deserialize)]
struct First {
    header: Header,
}

/// Writes a history. It buffers nothing: give it a buffered writer.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Begins with the header.
    ///
    /// # Errors
    /// What the writer says.
    pub fn begin(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { to };
        writer.line(&First { header: header.clone() })?;
        Ok(writer)
    }

    /// One thing that was seen.
    ///
    /// # Errors
    /// What the writer says.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.line(event)
    }

    /// The end, without which the history counts for nothing. Gives the writer back, flushed.
    ///
    /// # Errors
    /// What the writer says.
    pub fn end(mut self, ended: &Ended) -> io::Result<W> {
        self.line(&Event::Ended(ended.clone()))?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.to, line)?;
        self.to.write_all(b"\n")
    }
}

/// Why a file is no history.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// It cannot be read.
    #[error("the history cannot be read")]
    Unreadable(#[from] io::Error),
    /// A line is none of a history.
    #[error("line {line} of the history is damaged")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Something follows the end.
    #[error("line {0} of the history follows its end")]
    AfterTheEnd(u64),
    /// Another version wrote it.
    #[error("the history has format {0}; this checker reads format {FORMAT}")]
    Format(u32),
}

/// Reads a history event by event, so that it may be larger than memory. A last line that was cut short is left out:
/// without its [`Ended`] nothing is judged by it anyway.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    line: u64,
    bytes: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Begins with the header.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn begin(from: R) -> Result<(Header, Reader<R>), Damaged> {
        let mut reader = Reader { from, line: 0, bytes: Vec::new(), ended: false };
        reader.next_line()?;
        let First { header } = reader.parse()?;
        if header.format == FORMAT { Ok((header, reader)) } else { Err(Damaged::Format(header.format)) }
    }

    fn next_line(&mut self) -> Result<bool, Damaged> {
        self.bytes.clear();
        self.line += 1;
        Ok(self.from.read_until(b'\n', &mut self.bytes)? > 0)
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Damaged> {
        serde_json::from_slice(&self.bytes).map_err(|source| Damaged::Line { line: self.line, source })
    }

    fn read(&mut self) -> Result<Option<Event>, Damaged> {
        if !self.next_line()? || !self.bytes.ends_with(b"\n") {
            return Ok(None);
        }
        if self.ended {
            return Err(Damaged::AfterTheEnd(self.line));
        }
        let event = self.parse()?;
        self.ended = matches!(event, Event::Ended(_));
        Ok(Some(event))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::header;
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Event>, Damaged> {
        let (read, events) = Reader::begin(bytes)?;
        assert_eq!(read, header());
        events.collect()
    }

    #[test]
    fn written_events_are_read_and_torn_line_is_ignored() {
        let ended = Ended { at_ns: 7, whole: vec![] };
        let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
        writer.event(&Event::Drained { at_ns: 5 }).unwrap();
        let bytes = writer.end(&ended).unwrap();
        assert_eq!(read(&bytes).unwrap(), [Event::Drained { at_ns: 5 }, Event::Ended(ended)]);
        assert_eq!(read(&bytes[..bytes.len() - 3]).unwrap(), [Event::Drained { at_ns: 5 }]);
    }

    #[test]
    fn damage_in_midst_is_named_by_its_line() {
        let writer = Writer::begin(Vec::new(), &header()).unwrap();
        let mut bytes = writer.end(&Ended { at_ns: 7, whole: vec![] }).unwrap();
        bytes.extend(b"{\"drained\":{\"at_ns\":1}}\n");
        assert!(matches!(read(&bytes), Err(Damaged::AfterTheEnd(3))));
        assert!(matches!(read(b"{}\n"), Err(Damaged::Line { line: 1, .. })));
        let mut bytes = Writer::begin(Vec::new(), &header()).unwrap().to;
        bytes.extend(b"{\"mail\":{}}\n{}\n");
        assert!(matches!(read(&bytes), Err(Damaged::Line { line: 2, .. })));
        let other = Writer::begin(Vec::new(), &Header { format: 2, ..header() }).unwrap().to;
        assert!(matches!(read(&other), Err(Damaged::Format(2))));
    }
}
