//! Reads and writes a history as a file with one JSON object in each line.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::{Ended, Event, FORMAT, Header};
use crate::history::History;

/// The first line.
#[derive(Serialize, Deserialize)]
struct First {
    header: Header,
}

/// Writes a history. It does not buffer, so pass a buffered writer.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Begins a history with its header.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn begin(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { to };
        writer.line(&First { header: header.clone() })?;
        Ok(writer)
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.line(event)
    }

    /// Writes the end, without which a history cannot be judged, and returns the flushed writer.
    ///
    /// # Errors
    /// Fails if the writer fails.
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

impl History {
    /// Reads a whole file. An incomplete last line is ignored: such a history has no [`Ended`] and cannot be judged.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a line is damaged (`InvalidData`).
    pub fn read(mut from: impl BufRead) -> io::Result<History> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (mut bytes, mut history) = (Vec::new(), None);
        for line in 1_u64.. {
            bytes.clear();
            from.read_until(b'\n', &mut bytes)?;
            if !bytes.ends_with(b"\n") {
                break;
            }
            let damaged = |error| invalid(format!("line {line} of the history is damaged: {error}"));
            match &mut history {
                None => {
                    let First { header } = serde_json::from_slice(&bytes).map_err(damaged)?;
                    if header.format != FORMAT {
                        return Err(invalid(format!("the history has format {}, not {FORMAT}", header.format)));
                    }
                    history = Some(History::new(header));
                }
                Some(History { ended: Some(_), .. }) => {
                    return Err(invalid(format!("line {line} of the history follows its end")));
                }
                Some(history) => history.record(serde_json::from_slice(&bytes).map_err(damaged)?),
            }
        }
        history.map(History::close).ok_or_else(|| invalid("the history has no header".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::header;
    use super::*;

    fn error(bytes: &[u8]) -> String {
        History::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn written_events_are_read_and_torn_line_is_ignored() {
        let ended = Ended { at_ns: 7, missing: vec![] };
        let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
        writer.event(&Event::Drained { at_ns: 5 }).unwrap();
        let bytes = writer.end(&ended).unwrap();
        let history = History::read(bytes.as_slice()).unwrap();
        assert_eq!((history.header, history.drained_ns, history.ended), (header(), Some(5), Some(ended)));
        let torn = History::read(&bytes[..bytes.len() - 3]).unwrap();
        assert_eq!((torn.drained_ns, torn.ended), (Some(5), None));
    }

    #[test]
    fn damaged_line_is_named_by_its_number() {
        let writer = Writer::begin(Vec::new(), &header()).unwrap();
        let mut bytes = writer.end(&Ended { at_ns: 7, missing: vec![] }).unwrap();
        bytes.extend(b"{\"drained\":{\"at_ns\":1}}\n");
        assert!(error(&bytes).contains("line 3 of the history follows its end"));
        assert!(error(b"{}\n").contains("line 1 of the history is damaged"));
        let mut bytes = Writer::begin(Vec::new(), &header()).unwrap().to;
        bytes.extend(b"{\"handoff\":{}}\n{}\n");
        assert!(error(&bytes).contains("line 2 of the history is damaged"));
        let other = Writer::begin(Vec::new(), &Header { format: 2, ..header() }).unwrap().to;
        assert!(error(&other).contains("the history has format 2"));
    }
}
