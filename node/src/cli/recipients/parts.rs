//! Converts a file of any size to the parts of an audience (P20). The first pass finds unusable rows and duplicates,
//! the second one makes the parts.
//!
//! The command does this and not a node, because it can read the file twice. So it stores only a mark of 20 bytes per
//! row. Equal files give equal parts, so a repeated import finds the parts that exist. Of several rows with one
//! address, the first one in the file is used.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use reveille_cluster::file_store::{Keys, Repeats, encode, name};
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{COLUMNS_MAX, PARTS_MAX, Recipient};
use reveille_ledger::ids::Hash;

use super::{Reader, Text};
use crate::cli::failure::{BAD_ROWS_SHOWN, BadRow, Failure};
use crate::format;
use crate::server::admin::PART_BYTES_MAX;

/// Limit of an audience's recipients.
const RECIPIENTS_MAX: u32 = PARTS_MAX as u32 * CHUNK;
/// Rows between two updates of the progress counter.
const TELL_EVERY: u64 = 1_024;

/// Result of the first pass.
pub struct Survey {
    /// Names of the recipients' variables.
    pub columns: Vec<String>,
    /// Rows after the header.
    pub rows: u64,
    /// Unusable rows.
    pub refused: u64,
    /// The first unusable rows, at most `BAD_ROWS_SHOWN`.
    pub shown: Vec<BadRow>,
    /// Recipients that the audience will have.
    pub recipients: u32,
    repeats: Repeats,
    digest: blake3::Hash,
}

/// A part of an audience, as it is sent and stored.
#[derive(Clone)]
pub struct Part {
    /// Index of the part in the audience, from 0.
    pub number: u32,
    /// Hash of the bytes, which is the part's name.
    pub hash: Hash,
    /// The part's content.
    pub bytes: Vec<u8>,
}

/// A CSV file with every row that is left out: `line,kind,problem`.
pub struct Report {
    writer: csv::Writer<BufWriter<File>>,
    place: PathBuf,
}

/// A file that is read for an audience.
pub struct List<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Report for the rows that are left out.
    pub report: Option<&'a mut Report>,
    /// Number of rows read in this pass, for progress lines.
    pub read: &'a AtomicU64,
}

impl Survey {
    /// Returns the number of rows whose address an earlier row has.
    pub fn duplicates(&self) -> u32 {
        self.repeats.count()
    }
}

impl Report {
    /// Creates a report about a list.
    ///
    /// # Errors
    /// Fails if the report cannot be written, or is the list itself.
    pub fn create(path: &Path, list: &Path) -> Result<Report, Failure> {
        let named = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
        if named(path).is_ok_and(|report| named(list).is_ok_and(|list| list == report)) {
            let message = format!("{} is the list itself: the report would take its place", path.display());
            return Err(Failure::usage("--report", message, "name another file"));
        }
        let unwritten = |error: std::io::Error| unwritten(path, &error.to_string());
        let writer = csv::Writer::from_writer(BufWriter::new(File::create(path).map_err(unwritten)?));
        let mut report = Report { writer, place: path.to_owned() };
        report.row("line", "kind", "problem")?;
        Ok(report)
    }

    fn row(&mut self, line: &str, kind: &str, problem: &str) -> Result<(), Failure> {
        self.writer.write_record([line, kind, problem]).map_err(|error| unwritten(&self.place, &error.to_string()))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| unwritten(&self.place, &error.to_string()))
    }
}

impl List<'_> {
    /// Makes the first pass. Memory does not grow with the file; about 20 bytes per row are stored in the folder for
    /// temporary files.
    ///
    /// # Errors
    /// Fails if the file as a whole cannot be used.
    pub fn survey(&mut self) -> Result<Survey, Failure> {
        let mut reader = self.open()?;
        let columns = reader.columns().to_vec();
        if columns.len() > COLUMNS_MAX {
            let message = format!("{} columns beside the address are more than {COLUMNS_MAX}", columns.len());
            return Err(Failure::file(format!("{}:1", self.path.display()), message));
        }
        let folder = std::env::temp_dir();
        let mut keys = Keys::new(folder.clone());
        let (mut rows, mut refused, mut shown) = (0, 0, Vec::new());
        while let Some((line, read)) = reader.next().map_err(|bad| self.fatal(bad))? {
            rows += 1;
            match read {
                Ok(recipient) => keys.push(&recipient.key).map_err(|error| no_room(&folder, &error))?,
                Err(problem) => {
                    refused += 1;
                    self.record(line, "refused", &problem)?;
                    if shown.len() < BAD_ROWS_SHOWN {
                        shown.push(BadRow { line, problem });
                    }
                }
            }
            self.pass(rows);
        }
        let repeats = keys.repeats().map_err(|error| no_room(&folder, &error))?;
        let recipients = rows - refused - u64::from(repeats.count());
        let digest = reader.into_input().into_inner().digest();
        self.report.as_deref_mut().map_or(Ok(()), Report::flush)?;
        match u32::try_from(recipients).ok().filter(|count| *count <= RECIPIENTS_MAX) {
            Some(recipients) => Ok(Survey { columns, rows, refused, shown, recipients, repeats, digest }),
            None => {
                let (has, most) = (format::count(recipients), format::count(RECIPIENTS_MAX.into()));
                Err(self.wrong(format!("{has} recipients are more than {most}; split the list")))
            }
        }
    }

    /// Makes the second pass and hands each part to `take`, until `take` returns false. Returns true if all parts were
    /// taken.
    ///
    /// # Errors
    /// Fails if the file has changed since the first pass, or if a part is too large.
    pub fn parts(&mut self, survey: &Survey, mut take: impl FnMut(Part) -> bool) -> Result<bool, Failure> {
        let mut reader = self.open()?;
        let (mut rows, mut place, mut number) = (0, 0, 0);
        let mut recipients: Vec<Recipient> = Vec::new();
        while let Some((line, read)) = reader.next().map_err(|bad| self.fatal(bad))? {
            rows += 1;
            self.pass(rows);
            let Ok(recipient) = read else { continue };
            place += 1;
            if survey.repeats.contains(place - 1) {
                self.record(line, "duplicate", "an earlier row has this address")?;
                continue;
            }
            recipients.push(recipient);
            if recipients.len() == CHUNK as usize {
                if !take(self.part(number, &recipients)?) {
                    return Ok(false);
                }
                number += 1;
                recipients.clear();
            }
        }
        if reader.into_input().into_inner().digest() != survey.digest {
            return Err(self.wrong("it was changed while it was read; nothing was sealed".to_owned()));
        }
        self.report.as_deref_mut().map_or(Ok(()), Report::flush)?;
        Ok(recipients.is_empty() || take(self.part(number, &recipients)?))
    }

    fn open(&self) -> Result<Reader<std::io::BufReader<Text>>, Failure> {
        let about = std::fs::metadata(self.path);
        if about.as_ref().map_or(self.path == Path::new("-"), |about| !about.is_file()) {
            let message = "is not a file: a list is read twice, so it cannot come from a pipe; write it to a file, which \
                           may be packed by gzip or zstd";
            return Err(self.wrong(message.to_owned()));
        }
        let text = Text::open(self.path).map_err(|error| self.wrong(format!("cannot be read: {error}")))?;
        Reader::open(text.buffered()).map_err(|bad| self.fatal(bad))
    }

    fn part(&self, number: u32, recipients: &[Recipient]) -> Result<Part, Failure> {
        let bytes = encode(recipients);
        match name(&bytes).filter(|_| bytes.len() <= PART_BYTES_MAX) {
            Some(hash) => Ok(Part { number, hash, bytes }),
            None => Err(self.wrong(format!(
                "{} recipients from the {}th on have {} MiB, more than {}; leave out columns that no template uses",
                recipients.len(),
                u64::from(number) * u64::from(CHUNK) + 1,
                bytes.len() / 1_048_576,
                PART_BYTES_MAX / 1_048_576,
            ))),
        }
    }

    fn pass(&self, rows: u64) {
        if rows.is_multiple_of(TELL_EVERY) {
            self.read.store(rows, Ordering::Relaxed);
        }
    }

    fn record(&mut self, line: u64, kind: &str, problem: &str) -> Result<(), Failure> {
        self.report.as_deref_mut().map_or(Ok(()), |report| report.row(&line.to_string(), kind, problem))
    }

    fn fatal(&self, BadRow { line, problem }: BadRow) -> Failure {
        Failure::file(format!("{}:{line}", self.path.display()), problem)
    }

    fn wrong(&self, problem: String) -> Failure {
        Failure::file(self.path.display().to_string(), problem)
    }
}

fn unwritten(path: &Path, error: &str) -> Failure {
    let message = format!("the report cannot be written to {}: {error}", path.display());
    Failure::usage("--report", message, "name a file that can be written, or leave it out")
}

fn no_room(folder: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{} does not take 20 bytes a row, to find repeated addresses: {error}", folder.display());
    Failure::general(message, "the same again with another folder in TMPDIR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use reveille_cluster::file_store::FileStore;

    fn list<'a>(path: &'a Path, read: &'a AtomicU64) -> List<'a> {
        List { path, report: None, read }
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("list.csv");
        std::fs::write(&path, text).expect("a file");
        (folder, path)
    }

    /// Returns the addresses of an audience, read from its parts as a worker reads them.
    fn addresses(path: &Path) -> (Survey, Vec<String>) {
        let read = AtomicU64::new(0);
        let mut list = list(path, &read);
        let survey = list.survey().expect("it can be used");
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileStore::open(folder.path().to_owned()).expect("it opens");
        let mut addresses = Vec::new();
        let all = list.parts(&survey, |part| {
            store.store_upload(part.hash, &part.bytes).expect("a node takes it");
            let rows = (survey.recipients - part.number * CHUNK).min(CHUNK);
            let places: Vec<u16> = (0..rows).map(|place| place as u16).collect();
            let found = store.read(part.hash, &places).expect("it reads");
            addresses.extend(found.into_iter().map(|(_, recipient)| recipient.address));
            true
        });
        assert_eq!(all, Ok(true));
        (survey, addresses)
    }

    #[test]
    fn first_row_of_an_address_stays_and_bad_rows_are_named() {
        let (_folder, path) = file("email,name\nB@x.org,1\na@x.org,2\npostmaster,3\nb@X.org,4\nc@x.org,5\na@x.org,6\n");
        let (survey, addresses) = addresses(&path);
        assert_eq!(addresses, ["B@x.org", "a@x.org", "c@x.org"]);
        assert_eq!((survey.rows, survey.refused, survey.duplicates(), survey.recipients), (6, 1, 2, 3));
        assert_eq!(survey.shown[0].to_string(), "line 4: 'postmaster' has no '@': an address is LOCAL@DOMAIN");
        assert_eq!(survey.columns, ["name"]);
    }

    #[test]
    fn report_names_every_row_that_is_left_out() {
        let many: String = (0..100).map(|number| format!("postmaster{number}\n")).collect();
        let (folder, path) = file(&format!("email\na@x.org\n{many}A@x.org\n"));
        let place = folder.path().join("report.csv");
        let read = AtomicU64::new(0);
        let own = Report::create(&path, &path).err().expect("it is the list");
        assert!(own.to_json().contains("is the list itself"), "{}", own.to_json());
        assert!(std::fs::read_to_string(&path).expect("the list").contains("email"), "and it is still there");
        let mut report = Report::create(&place, &path).expect("a file");
        let mut list = List { report: Some(&mut report), ..list(&path, &read) };
        let survey = list.survey().expect("it can be used");
        assert_eq!((survey.refused, survey.shown.len()), (100, BAD_ROWS_SHOWN));
        assert_eq!(list.parts(&survey, |_| true), Ok(true));
        let report = std::fs::read_to_string(&place).expect("a report");
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines.len(), 102);
        assert_eq!(lines[..2], ["line,kind,problem", "3,refused,'postmaster0' has no '@': an address is LOCAL@DOMAIN"]);
        assert_eq!(lines[101], "103,duplicate,an earlier row has this address");
    }

    #[test]
    fn file_that_cannot_be_read_twice_is_refused_unread() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path(), Path::new("-"), Path::new("/dev/null")] {
            let read = AtomicU64::new(0);
            let failed = list(path, &read).survey().map(|survey| survey.rows).expect_err("no file");
            assert!(failed.message.starts_with("is not a file: a list is read twice"), "{failed:?}");
        }
    }

    #[test]
    fn file_that_is_changed_in_between_becomes_no_audience() {
        let (_folder, path) = file("email\na@x.org\nb@x.org\n");
        let read = AtomicU64::new(0);
        let mut list = list(&path, &read);
        let survey = list.survey().expect("it can be used");
        std::fs::write(&path, "email\na@x.org\na@x.org\n").expect("a file");
        let failed = list.parts(&survey, |part| panic!("{} bytes", part.bytes.len())).expect_err("noticed");
        assert!(failed.message.contains("changed while it was read"), "{failed:?}");
    }

    #[test]
    fn part_that_grows_too_large_is_refused() {
        let wide = "x".repeat(40_000);
        let text: String = (0..2_000).map(|number| format!("r{number}@x.org,{wide}\n")).collect();
        let (_folder, path) = file(&format!("email,wide\n{text}"));
        let read = AtomicU64::new(0);
        let mut list = list(&path, &read);
        let survey = list.survey().expect("it can be used");
        let failed = list.parts(&survey, |_| panic!("taken")).expect_err("too large");
        assert!(failed.message.contains("76 MiB, more than 64"), "{failed:?}");
    }

    #[test]
    fn equal_lists_are_equal_parts_however_they_are_written() {
        let hashes = |text: &str| {
            let (_folder, path) = file(text);
            let read = AtomicU64::new(0);
            let mut list = list(&path, &read);
            let survey = list.survey().expect("it can be used");
            let mut hashes = Vec::new();
            list.parts(&survey, |part| {
                hashes.push(part.hash);
                true
            })
            .expect("all");
            hashes
        };
        let rows = |end: &str| {
            let rows = (0..70_000).map(|number| format!("r{number}@x.org,{number}{end}"));
            format!("email,number{end}{}", rows.collect::<String>())
        };
        let plain = hashes(&rows("\n"));
        assert_eq!(plain.len(), 2);
        assert_eq!(hashes(&format!("\u{feff}{}", rows("\r\n"))), plain);
        assert_eq!(hashes(&format!("{}r3@X.org,again\n", rows("\n"))), plain, "a duplicate leaves no trace");
        assert_ne!(hashes(&format!("{}new@x.org,1\n", rows("\n"))), plain);
    }

    proptest! {
        #![proptest_config(reveille_fuzz::cases(100))]

        /// The audience equals the set of keys, in the file's order.
        #[test]
        fn audience_is_the_set_of_its_addresses(rows in prop::collection::vec((0_u8..40, any::<bool>(), 0_u8..10), 1..200)) {
            let mut text = "email\n".to_owned();
            let (mut seen, mut expected) = (BTreeSet::new(), Vec::new());
            let (mut duplicates, mut refused) = (0, 0);
            for (number, upper, odd) in &rows {
                let address = if *upper { format!("R{number}@x.org") } else { format!("r{number}@X.org") };
                if *odd == 0 {
                    text.push_str("not an address\n");
                    refused += 1;
                    continue;
                }
                text.push_str(&format!("{address}\n"));
                if seen.insert(*number) { expected.push(address) } else { duplicates += 1 }
            }
            prop_assume!(!expected.is_empty());
            let (_folder, path) = file(&text);
            let (survey, found) = addresses(&path);
            prop_assert_eq!(found, expected);
            prop_assert_eq!((survey.duplicates(), survey.refused), (duplicates, refused));
        }
    }
}
