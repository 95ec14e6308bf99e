//! Reads lists of recipients, for the command line and for the API. Every unusable row is reported with its line.
//!
//! A CSV file has a header with `email` and a column for each variable, then one row per recipient. Accepts a byte
//! order mark, CRLF, quoted fields, and `;` or tabs as the header's delimiter (`rows`). [`JsonLines`] has a recipient
//! on each line. Memory is bounded. Errors shorten quoted parts of the file and escape control characters, because the
//! file may be binary.

mod json_lines;
pub mod rows;

use std::io::BufRead;

use reveille_cluster::compose::{VALUE_BYTES_MAX, built_in, control_in};
use reveille_ledger::address::Address;
use reveille_ledger::content::Recipient;
use serde::Serialize;

use crate::escape;
pub use json_lines::JsonLines;
use rows::{Next, Rows, TextRow};

/// Column of the address, in any case.
const EMAIL: &str = "email";
/// Limit of characters of a column name in an error.
pub const NAME_SHOWN: usize = 40;
/// Limit of column names in an error.
pub const NAMES_SHOWN: usize = 10;
/// Limit of characters in the problem of a row.
pub const PROBLEM_SHOWN: usize = 200;

/// A row of a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, derive_more::Display)]
#[display("line {line}: {problem}")]
pub struct BadRow {
    /// Line in the file, from 1.
    pub line: u64,
    /// Why the row cannot be used.
    pub problem: String,
}

/// A row: its line, and the recipient or why the row is unusable.
pub type Read = (u64, Result<Recipient, String>);

/// Reads the recipients of a file one after the other, in bounded memory.
pub struct Reader<R> {
    rows: Rows<R>,
    row: TextRow,
    header: Header,
}

impl<R: BufRead> Reader<R> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Fails if the header is invalid.
    pub fn open(input: R) -> Result<Reader<R>, BadRow> {
        let (mut rows, mut row) = (Rows::open(input)?, TextRow::default());
        let wrong = |problem: String| BadRow { line: 1, problem };
        match rows.next(&mut row)? {
            Next::Row => Ok(Reader { rows, header: Header::read(&row)?, row }),
            Next::Bad(problem) => Err(wrong(problem)),
            Next::End => {
                Err(wrong("the file is empty; its first line names the columns, such as `email,name`".to_owned()))
            }
        }
    }

    /// Returns the names of the columns other than the address.
    pub fn columns(&self) -> &[String] {
        &self.header.columns
    }

    /// Returns the next row with its line, and `None` at the end.
    ///
    /// # Errors
    /// Fails if no further row can be read.
    pub fn next(&mut self) -> Result<Option<Read>, BadRow> {
        let read = match self.rows.next(&mut self.row)? {
            Next::Row if self.row.len() != self.header.fields => {
                let fields = if self.row.len() == 1 { "field" } else { "fields" };
                let why = format!("{} {fields}, the header has {}", self.row.len(), self.header.fields);
                Err(self.row.misfit(why)?)
            }
            Next::Row => self.header.recipient(&self.row),
            Next::Bad(problem) => Err(problem),
            Next::End => return Ok(None),
        };
        Ok(Some((self.row.line, read.map_err(|problem| shown(&problem, PROBLEM_SHOWN)))))
    }

    /// Returns the input that the rows are read from.
    pub fn into_input(self) -> R {
        self.rows.into_input()
    }
}

/// The header row of a CSV file.
pub struct Header {
    /// Names of the columns other than the address.
    pub columns: Vec<String>,
    email: usize,
    fields: usize,
}

impl Header {
    /// Reads the header's row.
    ///
    /// # Errors
    /// Fails if the names of the columns cannot be used.
    pub fn read(row: &TextRow) -> Result<Header, BadRow> {
        let wrong = |problem: String| BadRow { line: row.line, problem };
        let names = row.fields().map(|field| text(field).map(|name| name.trim().to_owned()));
        let names: Vec<String> = names.collect::<Result<_, _>>().map_err(wrong)?;
        if let Some(name) = names.iter().find(|name| name.chars().any(char::is_control)) {
            let name = shown(name, NAME_SHOWN);
            let problem =
                format!("`{name}` is not the name of a column: it holds a control character; is this a CSV file?");
            return Err(wrong(problem));
        }
        let Some(email) = names.iter().position(|name| name.eq_ignore_ascii_case(EMAIL)) else {
            let problem = if names.iter().any(|name| name.contains('@')) {
                "the first line must name the columns, such as `email,name`; this one holds an address".to_owned()
            } else {
                let more = names.len().checked_sub(NAMES_SHOWN).filter(|more| *more > 0);
                let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
                let named: Vec<String> = names.iter().take(NAMES_SHOWN).map(|name| shown(name, NAME_SHOWN)).collect();
                format!("no column is named `email`; the header has: {}{more}", named.join(", "))
            };
            return Err(wrong(problem));
        };
        let columns = || names.iter().enumerate().filter(|(place, _)| *place != email);
        for (place, name) in columns() {
            if name.is_empty() {
                return Err(wrong(format!("column {} has no name", place + 1)));
            }
            if let Some(value) = built_in(name) {
                let problem = format!(
                    "the column `{name}` cannot be used: it is a built-in variable ({value}); rename the column"
                );
                return Err(wrong(problem));
            }
            if names.iter().take(place).any(|earlier| earlier.eq_ignore_ascii_case(name)) {
                return Err(wrong(format!("the column `{}` is there twice", shown(name, NAME_SHOWN))));
            }
        }
        let fields = names.len();
        let columns = columns().map(|(_, name)| name.clone()).collect();
        Ok(Header { email, fields, columns })
    }

    /// Parses a row with the header's number of fields.
    ///
    /// # Errors
    /// Why the row cannot be used.
    pub fn recipient(&self, row: &TextRow) -> Result<Recipient, String> {
        let (mut address, mut key) = (String::new(), String::new());
        let mut values = Vec::with_capacity(self.columns.len());
        for (place, field) in row.fields().enumerate() {
            let field = text(field)?;
            if place == self.email {
                let read = Address::parse(field).map_err(|error| error.to_string())?;
                read.as_given().clone_into(&mut address);
                key = read.key();
            } else {
                if let Some(why) = wrong_value(field) {
                    let column = self.columns.get(values.len()).map(String::as_str).unwrap_or_default();
                    return Err(format!("column `{}` {why}", shown(column, NAME_SHOWN)));
                }
                values.push(field.to_owned());
            }
        }
        Ok(Recipient { address, key, values })
    }
}

/// Returns why a text cannot be the value of a variable.
pub fn wrong_value(value: &str) -> Option<String> {
    let long = value.len() > VALUE_BYTES_MAX;
    let long = long.then(|| format!("is longer than {VALUE_BYTES_MAX} bytes"));
    long.or_else(|| control_in(value))
}

/// Returns a part of a file for an error: on one line, with harmful characters escaped, and at most `most` characters.
pub fn shown(text: &str, most: usize) -> String {
    let (kept, end) = match text.char_indices().nth(most) {
        Some((place, _)) => (text.get(..place).unwrap_or_default(), "…"),
        None => (text, ""),
    };
    escape::escaped(kept, &[]) + end
}

/// Returns a field as text.
///
/// # Errors
/// Fails if the field is not UTF-8.
pub fn text(field: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(field).map_err(|_| "not UTF-8; save the file as UTF-8".to_owned())
}
