//! Reads addresses that must get no email, from another sender's file: CSV with a header, or one address per line.
//!
//! Called by `optout import`. Reads the file row by row with `recipients::rows`, in bounded memory. A file in which
//! rows cannot be separated is refused. No row is left out silently: each becomes an address, or a bad row with a line
//! and a reason. Only the column of the address is used.

use std::io::BufRead;

use reveille_ledger::address::Address;

use super::failure::BadRow;
use super::recipients::rows::{Next, Rows, TextRow};
use super::recipients::{PROBLEM_SHOWN, shown, text};

/// Names of the address column in the exports of email providers, without case, blanks, `-` and `_`.
const NAMES: [&str; 5] = ["email", "emailaddress", "address", "recipient", "mail"];

/// The address in a row, or why it is unusable.
pub type Entry = Result<String, BadRow>;

/// A suppression list that is being read.
pub struct Suppressions<R> {
    rows: Rows<R>,
    row: TextRow,
    layout: Option<Layout>,
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    /// One address per line.
    Lines,
    /// Rows with `fields` fields, of which `email` is the address.
    Columns { email: usize, fields: usize },
}

impl<R: BufRead> Suppressions<R> {
    /// Opens a list.
    ///
    /// # Errors
    /// Fails if the file is not text.
    pub fn open(source: R) -> Result<Suppressions<R>, BadRow> {
        Ok(Suppressions { rows: Rows::open(source)?, row: TextRow::default(), layout: None })
    }

    /// Returns the number of bytes read.
    pub fn bytes(&self) -> u64 {
        self.rows.offset()
    }

    /// Returns the next row that is not blank, and `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read, no further row can be separated, or the header is invalid.
    pub fn next(&mut self) -> Result<Option<Entry>, BadRow> {
        loop {
            let read = self.rows.next(&mut self.row)?;
            let line = self.row.line;
            let layout = match (read, self.layout) {
                (Next::End, _) => return Ok(None),
                (Next::Bad(problem), None) => return Err(BadRow { line, problem }),
                (Next::Bad(problem), Some(_)) => return Ok(Some(Err(BadRow { line, problem }))),
                (Next::Row, _) if self.is_blank() => continue,
                (Next::Row, Some(layout)) => layout,
                (Next::Row, None) => {
                    let layout = layout(&self.row).map_err(|problem| BadRow { line, problem })?;
                    self.layout = Some(layout);
                    if matches!(layout, Layout::Columns { .. }) {
                        continue;
                    }
                    layout
                }
            };
            return match entry(layout, &self.row)? {
                Ok(address) => Ok(Some(Ok(address))),
                Err(problem) => Ok(Some(Err(BadRow { line, problem: shown(&problem, PROBLEM_SHOWN) }))),
            };
        }
    }

    fn is_blank(&self) -> bool {
        self.row.len() == 1 && self.row.fields().all(|field| field.trim_ascii().is_empty())
    }
}

/// Derives the layout from the first row.
fn layout(first: &TextRow) -> Result<Layout, String> {
    let names = first.fields().map(text).collect::<Result<Vec<&str>, _>>()?;
    if names.iter().any(|name| name.contains('@')) {
        return match names.as_slice() {
            [_] => Ok(Layout::Lines),
            _ => {
                Err("the first line must name the columns, such as `email,since`; this one holds an address".to_owned())
            }
        };
    }
    let plain = |name: &&str| {
        let letters = name.trim().chars().filter(|character| !matches!(character, ' ' | '-' | '_'));
        letters.collect::<String>().to_ascii_lowercase()
    };
    let known: Vec<String> = names.iter().map(plain).collect();
    match NAMES.iter().find_map(|wanted| known.iter().position(|name| name == wanted)) {
        Some(email) => Ok(Layout::Columns { email, fields: known.len() }),
        None => Err("the first line has neither an address nor a column named `email`".to_owned()),
    }
}

/// Returns the address of a row, or why it has none. A wrong number of fields does not matter if the address is valid:
/// a missing comma must not lose an opt-out.
///
/// # Errors
/// Fails if a row of several lines has a wrong number of fields: it may be several rows.
fn entry(layout: Layout, row: &TextRow) -> Result<Result<String, String>, BadRow> {
    let (email, fields) = match layout {
        Layout::Lines => (0, 1),
        Layout::Columns { email, fields } => (email, fields),
    };
    let count = row.len();
    if count != fields {
        row.misfit(format!("it has {count} fields and not {fields}"))?;
    }
    if matches!(layout, Layout::Lines) && count != 1 {
        return Ok(Err(format!("{count} fields, where the first line has an address alone")));
    }
    let Some(field) = row.fields().nth(email) else {
        return Ok(Err(format!("{count} fields, the address would be the {}th", email + 1)));
    };
    let address = text(field).and_then(|field| {
        let read = Address::parse(field.trim().trim_matches('"')).map_err(|error| error.to_string())?;
        Ok(read.as_given().to_owned())
    });
    match address {
        Ok(address) => Ok(Ok(address)),
        Err(why) => row.misfit(why).map(Err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::recipients::rows::ROW_BYTES_MAX;

    /// Returns a file's addresses, its unusable lines, and the error that ended the reading.
    fn read(file: &[u8]) -> (Vec<String>, Vec<(u64, String)>, Option<String>) {
        // A buffer of seven bytes: buffer boundaries must not matter.
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        let mut file = match Suppressions::open(std::io::BufReader::with_capacity(7, file)) {
            Ok(file) => file,
            Err(error) => return (good, bad, Some(error.to_string())),
        };
        loop {
            match file.next() {
                Ok(Some(Ok(address))) => good.push(address),
                Ok(Some(Err(row))) => bad.push((row.line, row.problem)),
                Ok(None) => return (good, bad, None),
                Err(error) => return (good, bad, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn plain_list_has_one_address_per_line() {
        let (good, bad, end) =
            read(b"\xEF\xBB\xBFann@example.com\r\n\r\n \"bob@example.com\" \nnobody\nZo\xC3\xAB@example.com");
        assert_eq!(good, ["ann@example.com", "bob@example.com", "Zoë@example.com"]);
        assert_eq!(bad.len(), 1);
        assert_eq!((bad[0].0, end), (4, None), "{bad:?}");
        assert!(bad[0].1.contains("no '@'"), "{bad:?}");
    }

    #[test]
    fn header_and_rows_however_providers_write_them() {
        for (file, line) in [
            (b"email,reason\nann@example.com,bounce\n,x\n".as_slice(), 3),
            (b"Reason;E-Mail Address\r\nbounce;ann@example.com\r\nx\r\n", 3),
            (b"\xEF\xBB\xBFreason\tEmailAddress\n\"two\nlines, one \"\"row\"\"\"\tann@example.com\nx\t\xff\n", 4),
            (b"recipient,index,at\nann@example.com,1,2026\nx y@z,1,\n", 3),
        ] {
            let (good, bad, end) = read(file);
            assert_eq!((good, end), (vec!["ann@example.com".to_owned()], None));
            assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [line], "{bad:?}");
        }
    }

    #[test]
    fn file_that_is_no_list_is_refused() {
        for file in [b"PK\x03\x04x".as_slice(), b"\xFF\xFEe\0", b"name,age\nann,3\n", b"ann@example.com,Ann\n"] {
            let (good, bad, end) = read(file);
            assert!(good.is_empty() && bad.is_empty() && end.is_some(), "{file:?}");
        }
        assert_eq!(read(b""), (vec![], vec![], None));
        let long = [b"email\n".as_slice(), &vec![b'x'; 3 * ROW_BYTES_MAX], b"\nann@example.com\n"].concat();
        let (good, bad, _) = read(&long);
        assert_eq!((good, bad.len()), (vec!["ann@example.com".to_owned()], 1));
        assert_eq!(bad[0].0, 2);
        let open = [b"email\n\"", vec![b'y'; 2 * ROW_BYTES_MAX].as_slice()].concat();
        let (good, bad, end) = read(&open);
        assert!(good.is_empty() && bad.is_empty() && end.is_some_and(|why| why.starts_with("line 2: a quote opens")));
        let (_, bad, _) = read(b"email\n\x1b[2Jx\n");
        assert!(!bad[0].1.contains('\x1b'), "{bad:?}");
    }

    /// If a row were lost in another one, its recipient would get email in spite of an opt-out.
    #[test]
    fn no_row_is_swallowed_by_another() {
        let all = ["ann@x.org", "bob@x.org", "cyd@x.org"];
        for file in [
            "email,reason\nann@x.org,said 5\"\nbob@x.org,bounce\ncyd@x.org,bounce\n".to_owned(),
            "email,reason\rann@x.org,x\rbob@x.org,x\rcyd@x.org,x\r".to_owned(),
            "email\nann@x.org\nbob@x.org,more\ncyd@x.org\n".to_owned(),
            "ann@x.org\rbob@x.org\r\rcyd@x.org".to_owned(),
        ] {
            assert_eq!(read(file.as_bytes()), (all.map(str::to_owned).to_vec(), vec![], None), "{file:?}");
        }
        for (file, line) in [
            ("email,reason\nann@x.org,\"said\nbob@x.org,\"bounce\"\ncyd@x.org,x\n", 2),
            ("email,reason\nann@x.org,\"said\nbob@x.org,x\ncyd@x.org,5\",y\n", 2),
            ("email\nann@x.org\n\"bob@x.org\ncyd@x.org\"\n", 3),
            ("ann@x.org\n\"bob@x.org\ncyd@x.org\n", 2),
        ] {
            let (_, bad, end) = read(file.as_bytes());
            assert!(bad.is_empty(), "{file:?}: {bad:?}");
            assert!(end.is_some_and(|why| why.starts_with(&format!("line {line}: "))), "{file:?}");
        }
    }
}
