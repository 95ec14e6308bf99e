//! Addresses that must get no mail, from a file of another sender: CSV with a header, or one address a line.
//!
//! Called by `optout import`. The file is read as it goes, so its length does not matter. A row is never left out in
//! silence: each comes back as an address or as a line that cannot be used, with the reason. Only the column of the
//! address is looked at. It promises bounded lines, whatever the file is.

use std::io::{self, BufRead};

use reveille_ledger::address::Address;

use super::recipients::BadRow;

/// Bytes of one row; a longer one is no row.
const ROW_BYTES_MAX: usize = 64 * 1024;
/// Columns that hold the address, without case, blanks, `-` and `_`: what exports of mail providers are called.
const NAMES: [&str; 5] = ["email", "emailaddress", "address", "recipient", "mail"];

/// What a row came to.
pub type Entry = Result<String, BadRow>;

/// A file as it is read.
pub struct Suppressions<R> {
    source: R,
    layout: Option<Layout>,
    /// Bytes that were read.
    pub bytes: u64,
    line: u64,
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    /// An address on each line.
    Lines,
    /// A row on each line, whose fields are parted by this.
    Columns { delimiter: u8, email: usize },
}

/// One row as it stands there, and the line on which it begins.
struct Raw {
    line: u64,
    bytes: Vec<u8>,
    too_long: bool,
}

impl<R: BufRead> Suppressions<R> {
    /// Begins at the first line.
    pub fn new(source: R) -> Suppressions<R> {
        Suppressions { source, layout: None, bytes: 0, line: 0 }
    }

    /// The next row that is not blank; none at the end.
    ///
    /// # Errors
    /// The source fails; or the header is none, as an error of the kind `InvalidData`.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let Some(raw) = self.raw()? else { return Ok(None) };
            let Raw { line, bytes, too_long } = raw;
            if too_long {
                let problem = format!("the row has more than {ROW_BYTES_MAX} bytes");
                return Ok(Some(Err(BadRow { line, problem })));
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let layout = match self.layout {
                Some(layout) => layout,
                None => {
                    let layout = layout(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
                    self.layout = Some(layout);
                    if matches!(layout, Layout::Columns { .. }) {
                        continue;
                    }
                    layout
                }
            };
            return Ok(Some(entry(layout, &bytes).map_err(|problem| BadRow { line, problem })));
        }
    }

    /// A line; where quotes are open at its end, the lines up to their end too.
    fn raw(&mut self) -> io::Result<Option<Raw>> {
        let mut raw = Raw { line: self.line + 1, bytes: Vec::new(), too_long: false };
        while self.line_into(&mut raw)? {
            let quotes = raw.bytes.iter().filter(|byte| **byte == b'"').count();
            if raw.too_long || quotes.is_multiple_of(2) || matches!(self.layout, Some(Layout::Lines)) {
                return Ok(Some(raw));
            }
        }
        Ok((!raw.bytes.is_empty()).then_some(raw))
    }

    /// Adds one line with its end; what is too much of it is read and dropped. False at the end.
    fn line_into(&mut self, raw: &mut Raw) -> io::Result<bool> {
        let mut any = false;
        loop {
            let chunk = self.source.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n').map(|place| place + 1);
            let taken = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            if taken.is_empty() {
                self.line += u64::from(any);
                return Ok(any);
            }
            any = true;
            raw.too_long |= raw.bytes.len() + taken.len() > ROW_BYTES_MAX;
            if !raw.too_long {
                raw.bytes.extend_from_slice(taken);
            }
            let length = taken.len();
            self.source.consume(length);
            self.bytes += length as u64;
            if end.is_some() {
                self.line += 1;
                return Ok(true);
            }
        }
    }
}

/// What the first line says about all of them.
fn layout(first: &[u8]) -> Result<Layout, String> {
    if first.starts_with(b"PK\x03\x04") || first.starts_with(&[0xFF, 0xFE]) || first.starts_with(&[0xFE, 0xFF]) {
        return Err("the file is no text in UTF-8: save it as CSV (UTF-8)".to_owned());
    }
    let first = first.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(first);
    let delimiter = [b',', b';', b'\t'].into_iter().find(|delimiter| first.contains(delimiter)).unwrap_or(b',');
    let names = fields(first, delimiter)?;
    if names.iter().any(|name| name.contains('@')) {
        return match names.as_slice() {
            [_] => Ok(Layout::Lines),
            _ => {
                Err("the first line must name the columns, such as `email,since`; this one holds an address".to_owned())
            }
        };
    }
    let plain = |name: &String| {
        let letters = name.chars().filter(|character| !matches!(character, ' ' | '-' | '_'));
        letters.collect::<String>().to_ascii_lowercase()
    };
    let known: Vec<String> = names.iter().map(plain).collect();
    match NAMES.iter().find_map(|wanted| known.iter().position(|name| name == wanted)) {
        Some(email) => Ok(Layout::Columns { delimiter, email }),
        None => Err("the first line has neither an address nor a column named `email`".to_owned()),
    }
}

fn fields(row: &[u8], delimiter: u8) -> Result<Vec<String>, String> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader =
        reader.has_headers(false).flexible(true).delimiter(delimiter).buffer_capacity(1_024).from_reader(row);
    let mut record = csv::ByteRecord::new();
    reader.read_byte_record(&mut record).map_err(|error| error.to_string())?;
    let text = |field: &[u8]| {
        let read = std::str::from_utf8(field).map_err(|_| "is not UTF-8; save the file as UTF-8".to_owned());
        read.map(|text| text.trim().to_owned())
    };
    record.iter().map(text).collect()
}

fn entry(layout: Layout, bytes: &[u8]) -> Result<String, String> {
    let address = match layout {
        Layout::Lines => {
            // A byte order mark stands before the first one at most.
            let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
            let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8; save the file as UTF-8".to_owned())?;
            text.trim().trim_matches('"').to_owned()
        }
        Layout::Columns { delimiter, email } => {
            let fields = fields(bytes, delimiter)?;
            let found = fields.get(email).cloned();
            found.ok_or_else(|| format!("{} fields, the address would be the {}th", fields.len(), email + 1))?
        }
    };
    // The words of an error repeat the text: what is no address may be anything.
    let read = Address::parse(&address).map_err(|error| shown(&error.to_string()))?;
    Ok(read.as_given().to_owned())
}

/// Fit for a terminal.
fn shown(problem: &str) -> String {
    problem.chars().take(200).flat_map(char::escape_debug).collect::<String>().replace("\\'", "'").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file comes to: addresses, lines that cannot be used, and what ended it.
    fn read(file: &[u8]) -> (Vec<String>, Vec<(u64, String)>, Option<String>) {
        // In bites of seven bytes: nothing depends on where a buffer ends.
        let mut file = Suppressions::new(io::BufReader::with_capacity(7, file));
        let (mut good, mut bad) = (Vec::new(), Vec::new());
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
    fn an_address_a_line() {
        let (good, bad, end) =
            read(b"\xEF\xBB\xBFann@example.com\r\n\r\n \"bob@example.com\" \nnobody\nZo\xC3\xAB@example.com");
        assert_eq!(good, ["ann@example.com", "bob@example.com", "Zoë@example.com"]);
        assert_eq!(bad.len(), 1);
        assert_eq!((bad[0].0, end), (4, None), "{bad:?}");
        assert!(bad[0].1.contains("no '@'"), "{bad:?}");
    }

    #[test]
    fn a_header_and_rows_however_providers_write_them() {
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
    fn what_is_no_list_is_refused_and_a_line_without_end_is_one_bad_row() {
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
        assert_eq!(read(&open).1.len(), 1, "a quote that never ends");
        let (_, bad, _) = read(b"email\n\x1b[2Jx\n");
        assert!(!bad[0].1.contains('\x1b'), "{bad:?}");
    }
}
