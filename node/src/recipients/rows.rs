//! Reads a CSV file row by row: quoted fields, line ends LF, CRLF or CR, and the header's delimiter.
//!
//! Memory is bounded: it does not grow with the file, and a row's bytes and fields are limited. Each row has the line
//! on which it begins. No row is lost in another one. So the file is refused if a quote does not close, or if an
//! invalid row has several lines, because it may contain other rows. Not detected: a quote that opens by mistake and
//! happens to close in a valid row.

use std::io::{BufRead, Chain, Cursor, Read as _};

use super::BadRow;

/// Limit of a row's bytes without its quotes: 16 values of the largest size.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;
/// Limit of a row's fields, far more than an audience may have columns.
pub const FIELDS_MAX: usize = 1_024;
/// First bytes of files that users mistake for lists, and what these files are.
const OTHERS: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "a spreadsheet or an archive (ZIP), no text"),
    (b"\xD0\xCF\x11\xE0", "a spreadsheet of an old kind (XLS), no text"),
    (b"\xFF\xD8\xFF", "an image (JPEG), no text"),
    (b"\x89PNG", "an image (PNG), no text"),
    (b"%PDF-", "a PDF, no text"),
];
const BYTE_ORDER_MARK: &[u8] = &[0xEF, 0xBB, 0xBF];

/// The rows of a file.
pub struct Rows<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    delimiter: u8,
    place: Place,
}

/// One row. Its buffers are reused for the next row.
#[derive(Debug, Default)]
pub struct TextRow {
    /// Line on which the row begins, from 1.
    pub line: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// True if a quoted field contains a line end.
    spans_lines: bool,
}

/// Result of reading on.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A row.
    Row,
    /// An unusable row, and why.
    Bad(String),
    /// The end of the file.
    End,
}

/// Position of the reader.
struct Place {
    line: u64,
    offset: u64,
    /// Offset just after the last CR: a LF there belongs to the same line end.
    behind_return: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted field: the field ends, or the next quote makes this one a character.
    Closing,
}

impl<R: BufRead> Rows<R> {
    /// Opens a file and finds its delimiter in the first line.
    ///
    /// # Errors
    /// Fails if the file is not CSV.
    pub fn open(mut input: R) -> Result<Rows<R>, BadRow> {
        let wrong = |problem: &str| BadRow { line: 1, problem: problem.to_owned() };
        let mut head = Vec::new();
        let mut begin = (&mut input).take(ROW_BYTES_MAX as u64);
        // Blank lines before the header have no delimiter.
        while head.iter().all(|byte| is_line_end(*byte)) {
            let read = begin.read_until(b'\n', &mut head);
            if read.map_err(|error| BadRow { line: 1, problem: error.to_string() })? == 0 {
                break;
            }
        }
        if head.starts_with(&[0xFF, 0xFE]) || head.starts_with(&[0xFE, 0xFF]) {
            return Err(wrong("the file is UTF-16; save it as UTF-8"));
        }
        if let Some((_, what)) = OTHERS.iter().find(|(begin, _)| head.starts_with(begin)) {
            return Err(wrong(&format!("the file is {what}; save it as CSV (UTF-8)")));
        }
        if head.contains(&0) {
            return Err(wrong("the file holds NUL bytes: it is UTF-16, or no text; save it as CSV (UTF-8)"));
        }
        if is_json(&head) {
            return Err(wrong("the file is JSON, no CSV: its first line has to name the columns, as in `email,name`"));
        }
        if head.starts_with(BYTE_ORDER_MARK) {
            head.drain(..BYTE_ORDER_MARK.len());
        }
        let delimiter = delimiter(&head);
        let place = Place { line: 1, offset: 0, behind_return: 0 };
        Ok(Rows { input: Cursor::new(head).chain(input), delimiter, place })
    }

    /// Reads the next row.
    ///
    /// # Errors
    /// Fails if no further row can be read.
    pub fn next(&mut self, row: &mut TextRow) -> Result<Next, BadRow> {
        self.skip_line_ends()?;
        (row.line, row.ends, row.spans_lines) = (self.place.line, Vec::new(), false);
        row.bytes.clear();
        let mut state = State::Start;
        let mut bad = None;
        loop {
            let buffer = self.input.fill_buf().map_err(|error| self.place.unreadable(&error))?;
            if buffer.is_empty() {
                return match state {
                    State::Quoted => Err(unclosed(row.line, "")),
                    State::Start if row.ends.is_empty() && bad.is_none() => Ok(Next::End),
                    _ => Ok(row.ended(bad)),
                };
            }
            let (used, ended) = self.place.scan(buffer, self.delimiter, &mut state, row, &mut bad);
            self.input.consume(used);
            if row.bytes.len() > ROW_BYTES_MAX {
                if state == State::Quoted && bad.is_none() {
                    return Err(unclosed(row.line, &format!(" within the {ROW_BYTES_MAX} bytes that a row may have")));
                }
                bad.get_or_insert_with(|| format!("more than {ROW_BYTES_MAX} bytes in one row"));
            }
            if let Some(why) = &bad {
                if row.spans_lines {
                    return Err(row.torn(why));
                }
                // The content of an unusable row is not kept.
                (row.bytes, row.ends) = (Vec::new(), Vec::new());
            }
            if ended {
                return Ok(row.ended(bad));
            }
        }
    }

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.place.offset
    }

    /// Returns the input after the first line.
    pub fn into_input(self) -> R {
        self.input.into_inner().1
    }

    fn skip_line_ends(&mut self) -> Result<(), BadRow> {
        loop {
            let buffer = self.input.fill_buf().map_err(|error| self.place.unreadable(&error))?;
            let ends = buffer.iter().take_while(|byte| is_line_end(**byte)).count();
            let all = ends == buffer.len();
            buffer.iter().take(ends).for_each(|byte| {
                self.place.offset += 1;
                self.place.passed(*byte);
            });
            self.input.consume(ends);
            if !all || ends == 0 {
                return Ok(());
            }
        }
    }
}

impl Place {
    /// Adds the buffer's bytes to the row. Returns the number of bytes used, and true if the row ends there.
    fn scan(
        &mut self,
        buffer: &[u8],
        delimiter: u8,
        state: &mut State,
        row: &mut TextRow,
        bad: &mut Option<String>,
    ) -> (usize, bool) {
        let before = self.offset;
        let mut rest = buffer;
        while let Some(first) = rest.first() {
            let run = match state {
                State::Start | State::Closing => 0,
                State::Plain => run(rest, |byte| byte == delimiter || is_line_end(byte)),
                State::Quoted => run(rest, |byte| byte == b'"' || is_line_end(byte)),
            };
            if run > 0 {
                row.bytes.extend_from_slice(rest.get(..run).unwrap_or_default());
                (rest, self.offset) = (rest.get(run..).unwrap_or_default(), self.offset + run as u64);
                // Returns to the caller, which checks the length.
                if row.bytes.len() > ROW_BYTES_MAX { break } else { continue }
            }
            let byte = *first;
            if *state == State::Start && byte != b'"' && byte != delimiter && !is_line_end(byte) {
                *state = State::Plain;
                continue;
            }
            (rest, self.offset) = (rest.get(1..).unwrap_or_default(), self.offset + 1);
            match (*state, byte) {
                (State::Start, b'"') => *state = State::Quoted,
                (State::Quoted, b'"') => *state = State::Closing,
                (State::Quoted, byte) => {
                    self.passed(byte);
                    row.spans_lines = true;
                    row.bytes.push(byte);
                }
                (State::Closing, b'"') => {
                    row.bytes.push(byte);
                    *state = State::Quoted;
                }
                (_, byte) if byte == delimiter => {
                    if row.ends.len() + 1 >= FIELDS_MAX {
                        bad.get_or_insert_with(|| format!("more than {FIELDS_MAX} fields in one row"));
                    }
                    if bad.is_none() {
                        row.ends.push(row.bytes.len());
                    }
                    *state = State::Start;
                }
                (_, byte) if is_line_end(byte) => {
                    self.passed(byte);
                    return ((self.offset - before) as usize, true);
                }
                (_, _) => {
                    let field = row.ends.len() + 1;
                    bad.get_or_insert_with(|| format!("field {field} goes on behind its closing quote"));
                    *state = State::Plain;
                }
            }
        }
        ((self.offset - before) as usize, false)
    }

    /// Counts the line if this byte, just before `offset`, ends one.
    fn passed(&mut self, byte: u8) {
        match byte {
            b'\r' => (self.line, self.behind_return) = (self.line + 1, self.offset),
            b'\n' if self.behind_return + 1 == self.offset && self.behind_return > 0 => {}
            b'\n' => self.line += 1,
            _ => {}
        }
    }

    fn unreadable(&self, error: &std::io::Error) -> BadRow {
        BadRow { line: self.line, problem: format!("nothing can be read from here on: {error}") }
    }
}

impl TextRow {
    /// Returns the fields without their quotes.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the problem of a row whose fields are invalid.
    ///
    /// # Errors
    /// Fails if the row spans several lines: a misplaced quote may have joined several rows.
    pub fn misfit(&self, why: String) -> Result<String, BadRow> {
        if self.spans_lines { Err(self.torn(&why)) } else { Ok(why) }
    }

    fn torn(&self, why: &str) -> BadRow {
        let problem = format!(
            "the row goes on over several lines by a quote, and cannot be one row: {why}; close the quote, or double \
             each one that belongs to a value"
        );
        BadRow { line: self.line, problem }
    }

    fn ended(&mut self, bad: Option<String>) -> Next {
        self.ends.push(self.bytes.len());
        bad.map_or(Next::Row, Next::Bad)
    }
}

/// True if the text begins like a JSON object or array.
fn is_json(head: &[u8]) -> bool {
    let mut marks = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    matches!((marks.next(), marks.next()), (Some(b'{' | b'['), None | Some(b'"' | b'{' | b'[' | b']' | b'}')))
}

fn run(bytes: &[u8], stops: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| stops(*byte)).unwrap_or(bytes.len())
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn unclosed(line: u64, within: &str) -> BadRow {
    let problem = format!(
        "a quote opens in this row and does not close{within}: what follows cannot be told apart; close it, or double \
         each quote that belongs to a value"
    );
    BadRow { line, problem }
}

/// Returns the header's delimiter: a comma if there is one outside of quotes, else a semicolon or a tab.
fn delimiter(head: &[u8]) -> u8 {
    let (mut quoted, mut bare) = (false, Vec::new());
    for byte in head.iter().copied().skip_while(|byte| is_line_end(*byte)) {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            _ if is_line_end(byte) => break,
            _ => bare.push(byte),
        }
    }
    [b',', b';', b'\t'].into_iter().find(|delimiter| bare.contains(delimiter)).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    type Read = (u64, Result<Vec<String>, String>);

    fn all(bytes: &[u8], buffer: usize) -> Result<Vec<Read>, BadRow> {
        let mut rows = Rows::open(BufReader::with_capacity(buffer, bytes))?;
        let (mut row, mut read) = (TextRow::default(), Vec::new());
        loop {
            let texts = |row: &TextRow| row.fields().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
            match rows.next(&mut row)? {
                Next::Row => read.push((row.line, Ok(texts(&row)))),
                Next::Bad(why) => read.push((row.line, Err(why))),
                Next::End => return Ok(read),
            }
        }
    }

    fn good(line: u64, fields: &[&str]) -> Read {
        (line, Ok(fields.iter().map(|field| (*field).to_owned()).collect()))
    }

    /// Reads a text with different buffer sizes, which must not change the result.
    fn read(text: &str) -> Vec<Read> {
        let whole = all(text.as_bytes(), 4096);
        for buffer in 1..8 {
            assert_eq!(all(text.as_bytes(), buffer), whole, "{buffer} bytes at once");
        }
        whole.unwrap_or_else(|bad| panic!("{bad}"))
    }

    #[test]
    fn fields_are_divided_and_quotes_taken_off() {
        let rows = read("a,b\n\"x, y\",\"say \"\"so\"\"\"\n,\n\"\",5\" nail\nlast,\"one\"");
        let expected = [
            good(1, &["a", "b"]),
            good(2, &["x, y", "say \"so\""]),
            good(3, &["", ""]),
            good(4, &["", "5\" nail"]),
            good(5, &["last", "one"]),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        let rows = read("a\r\n\r\nb\r\n\"c\r\nc\r\"\r\n\n\nd\n");
        let lines: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 3, 4, 9]);
        let rows = read("a\rb\r\rc");
        assert_eq!(rows, [good(1, &["a"]), good(2, &["b"]), good(4, &["c"])]);
    }

    #[test]
    fn byte_order_mark_and_other_delimiters_are_understood() {
        assert_eq!(read("\u{feff}a;b\n1,5;2"), [good(1, &["a", "b"]), good(2, &["1,5", "2"])]);
        assert_eq!(read("a\tb\n1\t2\n"), [good(1, &["a", "b"]), good(2, &["1", "2"])]);
        assert_eq!(read("a;\"b, c\"\n1;2"), [good(1, &["a", "b, c"]), good(2, &["1", "2"])], "a comma in a name");
        assert_eq!(read("a;b\r1,5;2\r"), [good(1, &["a", "b"]), good(2, &["1,5", "2"])], "the first line ends at CR");
        assert_eq!(read("\r\n\na;b\n1,5;2\n"), [good(3, &["a", "b"]), good(4, &["1,5", "2"])], "behind blank lines");
        assert_eq!(read(""), []);
        assert_eq!(read("\n\r\n\n"), []);
    }

    #[test]
    fn text_behind_a_closing_quote_spoils_its_row_alone() {
        let rows = read("a,b\nx,\"y\" z\nx,y\n");
        let why = "field 2 goes on behind its closing quote".to_owned();
        assert_eq!(rows, [good(1, &["a", "b"]), (2, Err(why)), good(3, &["x", "y"])]);
    }

    #[test]
    fn quote_that_does_not_close_swallows_no_row() {
        let refused = all(b"a,b\nx,y\nx,\"y\nx,y\nx,y\n", 4096).map(|rows| panic!("{rows:?}"));
        assert_eq!(refused.unwrap_or_else(|bad: BadRow| bad.line), 3);
        let endless = [b"a\n\"".as_slice(), &b"x\n".repeat(ROW_BYTES_MAX)].concat();
        let refused = all(&endless, 4096).map(|rows| panic!("{} rows", rows.len()));
        assert_eq!(refused.unwrap_or_else(|bad: BadRow| bad.line), 2);
    }

    /// A quote that is never closed must not hide rows without an error.
    #[test]
    fn bad_row_of_several_lines_swallows_no_row() {
        let refused = |text: &str, buffer: usize| match all(text.as_bytes(), buffer) {
            Ok(rows) => panic!("{rows:?}"),
            Err(bad) => bad,
        };
        let long = "x".repeat(ROW_BYTES_MAX);
        for text in [
            "a,b\nx,\"Ann\nx,y\nx,y\nx,\"Bob\" z\nx,y\n".to_owned(),
            "a,b\nx,\"Ann\rx,y\rx,\"Bob\"\r".to_owned(),
            "a,b\nx,\"y\" z,\"Ann\nx,y\nx,y\",z\nx,y\n".to_owned(),
            format!("a,b\nx,\"y\" z,\"Ann\n{}", "x,y\n".repeat(ROW_BYTES_MAX)),
            format!("a,b\nx,\"Ann\nx,\",{long}\nx,y\n"),
        ] {
            for buffer in [1, 3, 4_096, 8 * ROW_BYTES_MAX] {
                let bad = refused(&text, buffer);
                assert_eq!(bad.line, 2, "{buffer}: {bad}");
                assert!(bad.problem.starts_with("the row goes on over several lines by a quote"), "{buffer}: {bad}");
            }
        }
    }

    #[test]
    fn other_file_type_is_named() {
        let problem_of =
            |bytes: &[u8]| all(bytes, 4096).map(|rows| panic!("{rows:?}")).unwrap_or_else(|bad| bad.problem);
        for (bytes, words) in [
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF".as_slice(), "the file is an image (JPEG), no text"),
            (b"%PDF-1.4\n", "the file is a PDF, no text"),
            (b"e\0m\0a\0i\0l\0\n\0", "the file holds NUL bytes: it is UTF-16, or no text"),
            (b"[{\"email\": \"a@x.org\"}]", "the file is JSON, no CSV"),
            (b" {\n \"email\": 1}", "the file is JSON, no CSV"),
            (b"[\n", "the file is JSON, no CSV"),
        ] {
            assert!(problem_of(bytes).starts_with(words), "{bytes:?}: {}", problem_of(bytes));
        }
        assert_eq!(read("[id],email\n"), [good(1, &["[id]", "email"])], "a name may begin so");
    }

    #[test]
    fn row_of_too_many_fields_is_passed_over_and_not_kept() {
        let line = |commas: usize| format!("{}\n", ",".repeat(commas));
        let text = ["a\n".to_owned(), line(FIELDS_MAX - 1), line(FIELDS_MAX), "y\n".to_owned()].concat();
        let rows = read(&text);
        assert_eq!(rows[1].1.as_ref().map(Vec::len), Ok(FIELDS_MAX));
        let why = format!("more than {FIELDS_MAX} fields in one row");
        assert_eq!(rows[2..], [(3, Err(why)), good(4, &["y"])]);
        let text = line(10_000_000);
        let (mut rows, mut row) = (Rows::open(text.as_bytes()).expect("a text"), TextRow::default());
        assert!(matches!(rows.next(&mut row), Ok(Next::Bad(_))));
        assert!(row.ends.capacity() <= FIELDS_MAX, "{} ends were kept", row.ends.capacity());
    }

    #[test]
    fn row_that_is_too_long_is_passed_over_and_not_kept() {
        let text = ["a\n", &"x".repeat(5 * ROW_BYTES_MAX), "\ny\n"].concat();
        let why = format!("more than {ROW_BYTES_MAX} bytes in one row");
        let read = all(text.as_bytes(), 4096);
        assert_eq!(read, Ok(vec![good(1, &["a"]), (2, Err(why)), good(3, &["y"])]));
    }
}
