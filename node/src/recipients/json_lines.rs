//! Reads recipients from JSON lines: on each line one `Recipient` of the API.

use std::io::{BufRead, Read as _};

use reveille_ledger::address::Address;
use reveille_ledger::content::{COLUMNS_MAX, Recipient};
use serde::Deserialize;

use super::rows::ROW_BYTES_MAX;
use super::{BadRow, PROBLEM_SHOWN, Read, shown, wrong_value};

/// The recipients of a text one after the other, in bounded memory.
pub struct JsonLines<R> {
    input: R,
    line: u64,
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    address: String,
    #[serde(default)]
    values: Vec<String>,
}

impl<R: BufRead> JsonLines<R> {
    /// Begins with the first line.
    pub fn new(input: R) -> JsonLines<R> {
        JsonLines { input, line: 0, bytes: Vec::new() }
    }

    /// Returns the next recipient with its line, and `None` at the end. Blank lines have none.
    ///
    /// # Errors
    /// Fails if no further line can be read.
    pub fn next(&mut self) -> Result<Option<Read>, BadRow> {
        loop {
            self.line += 1;
            self.bytes.clear();
            let wrong = |problem: String| BadRow { line: self.line, problem };
            let mut line = (&mut self.input).take(ROW_BYTES_MAX as u64 + 1);
            let count = line.read_until(b'\n', &mut self.bytes).map_err(|error| wrong(error.to_string()))?;
            if count > ROW_BYTES_MAX {
                return Err(wrong(format!(
                    "has more than {ROW_BYTES_MAX} bytes: is there one recipient on each line?"
                )));
            }
            match self.bytes.trim_ascii() {
                [] if count == 0 => return Ok(None),
                [] => {}
                line => {
                    return Ok(Some((self.line, recipient(line).map_err(|problem| shown(&problem, PROBLEM_SHOWN)))));
                }
            }
        }
    }
}

fn recipient(line: &[u8]) -> Result<Recipient, String> {
    let given: Given = serde_json::from_slice(line).map_err(|error| {
        let (error, column) = (error.to_string(), error.column());
        let error = error.split(" at line ").next().unwrap_or_default();
        format!("is not {{\"address\": \"…\", \"values\": […]}}: {error} at column {column}")
    })?;
    let address = Address::parse(&given.address).map_err(|error| error.to_string())?;
    let count = given.values.len();
    if count > COLUMNS_MAX {
        return Err(format!("has {count} values, more than the {COLUMNS_MAX} columns of an audience"));
    }
    let wrong = given.values.iter().zip(1..).find_map(|(value, number)| Some((number, wrong_value(value)?)));
    match wrong {
        Some((number, why)) => Err(format!("value {number} {why}")),
        None => Ok(Recipient { address: address.as_given().to_owned(), key: address.key(), values: given.values }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line, and its key with its values or why it is no recipient.
    type Line = (u64, Result<String, String>);

    fn all(text: &str) -> Result<Vec<Line>, BadRow> {
        let (mut lines, mut read) = (JsonLines::new(text.as_bytes()), Vec::new());
        while let Some((line, row)) = lines.next()? {
            read.push((line, row.map(|row| format!("{} {}", row.key, row.values.join("/")))));
        }
        Ok(read)
    }

    #[test]
    fn lines_become_recipients_or_say_what_is_wrong() {
        let read =
            all("{\"address\":\"Ann@Example.com\",\"values\":[\"A\",\"B\"]}\r\n\n{\"address\":\"bob@example.com\"}");
        let read = read.expect("readable");
        assert_eq!(read.len(), 2, "{read:?}");
        assert!(read[0].1.as_ref().is_ok_and(|row| row.ends_with(" A/B")), "{read:?}");
        assert_eq!(read[1], (3, Ok("bob@example.com ".to_owned())));
        for (line, says) in [
            ("{\"address\":\"ann\"}", "has no '@'"),
            ("{\"adress\":\"a@b.c\"}", "unknown field `adress`"),
            ("[]", "is not {"),
            ("{\"address\":\"a@b.c\",\"values\":[\"\\u0000\"]}", "value 1 holds the control character"),
        ] {
            let read = all(line).expect("readable");
            assert!(read[0].1.as_ref().is_err_and(|why| why.contains(says)), "{says}: {read:?}");
        }
        for (count, fits) in [(COLUMNS_MAX, true), (COLUMNS_MAX + 1, false)] {
            let read = all(&format!("{{\"address\":\"a@b.c\",\"values\":{:?}}}", vec!["x"; count])).expect("readable");
            assert_eq!(read[0].1.is_ok(), fits, "{read:?}");
        }
        let endless = format!("\n{}", "x".repeat(ROW_BYTES_MAX + 1));
        assert!(all(&endless).is_err_and(|bad| bad.line == 2 && bad.problem.contains("more than 1048576 bytes")));
    }
}
