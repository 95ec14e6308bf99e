//! Fuzz targets (`reveille-fuzz`) for lists of recipients.

use std::io::BufReader;

use proptest::prelude::*;
use reveille_fuzz::{cases, text};
use reveille_ledger::address::Address;

use super::*;
use crate::recipients::Read;

#[rustfmt::skip]
const FRAGMENTS: &[&str] = &[
    "email", "name", "email,name\n", "email;name\r\n", "ann@example.com", "bob@example.com", "Ann", ",", ";", "\t",
    "\"", "\"\"", "\n", "\r\n", "\r", "\u{feff}", " ", "\0", "\u{1b}", "é", "#",
];

/// Returns everything that is read of these bytes, which come in pieces.
fn read_all(bytes: &[u8], piece: usize) -> Result<Vec<Read>, String> {
    let mut reader = Reader::open(BufReader::with_capacity(piece, bytes)).map_err(|bad| bad.to_string())?;
    let mut rows = Vec::new();
    while let Some(row) = reader.next().map_err(|bad| bad.to_string())? {
        rows.push(row);
    }
    Ok(rows)
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn list_reads_back(
        rows in prop::collection::vec(("[a-z]{1,9}", "[a-zé ,;\"\n]{0,12}"), 1..8),
        delimiter in prop::sample::select(&b",;\t"[..]),
    ) {
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
        writer.write_record(["email", "name"]).expect("memory");
        for (local, value) in &rows {
            writer.write_record([&format!("{local}@example.com"), value]).expect("memory");
        }
        let read = parse(&writer.into_inner().expect("memory")).expect("a list");
        prop_assert_eq!(&read.bad, &[]);
        let read = read.audience.recipients.into_iter().map(|one| (one.address, one.values));
        let rows = rows.into_iter().map(|(local, value)| (format!("{local}@example.com"), vec![value]));
        prop_assert!(read.eq(rows));
    }

    #[test]
    fn list_depends_on_no_boundary_and_has_valid_addresses(text in text(FRAGMENTS, 40), piece in 1_usize..20) {
        let whole = read_all(text.as_bytes(), 1 << 16);
        prop_assert_eq!(&read_all(text.as_bytes(), piece), &whole);
        for (_, row) in whole.unwrap_or_default() {
            match row {
                Ok(recipient) => prop_assert!(Address::parse(&recipient.address).is_ok(), "{recipient:?}"),
                Err(problem) => prop_assert!(!problem.contains(char::is_control), "{problem:?}"),
            }
        }
    }
}
