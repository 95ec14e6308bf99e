//! Reads recipients from files: [`crate::recipients`] reads the rows, and here are compressed files (`text`), lists of
//! documents, and the two passes of `audience import` (`parts`).
//!
//! `schedule create` reads a small list as a whole. The cluster finds its duplicates and reports their indices; the
//! line numbers are kept to show lines instead.

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
pub mod parts;
mod text;

use std::path::Path;

use reveille_cluster::compose::is_variable;
use reveille_ledger::LEVEL;
use reveille_ledger::content::Recipient;
use reveille_ledger::limits::limits;
use reveille_proto::admin::v1;

use super::failure::{BadRow, Failure};
use super::input;
pub(super) use crate::recipients::rows;
use crate::recipients::{NAME_SHOWN, NAMES_SHOWN, Reader};
pub(super) use crate::recipients::{PROBLEM_SHOWN, shown, text};
use text::Text;

/// Limit of a file's size in bytes. An audience that fits into a schedule is smaller.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipients {
    /// The usable rows.
    pub audience: v1::Audience,
    /// Line number of each usable row, from 1.
    pub lines: Vec<u64>,
    /// The unusable rows.
    pub bad: Vec<BadRow>,
}

/// Reads a file.
///
/// # Errors
/// Fails if the file cannot be read, is too large, or has an invalid header.
pub fn read(path: &Path) -> Result<Recipients, Failure> {
    let place = path.display().to_string();
    let bytes = input::file(path, FILE_BYTES_MAX)?;
    if bytes.len() > FILE_BYTES_MAX {
        let most = limits(LEVEL).inline_recipients_max;
        let message = format!("has more than {FILE_BYTES_MAX} bytes; a schedule holds at most {most} recipients");
        return Err(Failure::file(place, message).then("reveille audience import"));
    }
    parse(&bytes).map_err(|BadRow { line, problem }| Failure::file(format!("{place}:{line}"), problem))
}

/// Reads a file's bytes. Fails because of the header, or because of too many recipients.
pub fn parse(bytes: &[u8]) -> Result<Recipients, BadRow> {
    let mut reader = Reader::open(bytes)?;
    let mut recipients = Recipients::default();
    recipients.audience.columns = reader.columns().to_vec();
    while let Some((line, read)) = reader.next()? {
        match read {
            Ok(Recipient { address, values, .. }) => {
                recipients.audience.recipients.push(v1::Recipient { address, values });
                recipients.lines.push(line);
            }
            Err(problem) => recipients.bad.push(BadRow { line, problem }),
        }
    }
    let most = limits(LEVEL).inline_recipients_max;
    if recipients.lines.len() > most {
        let problem =
            format!("{} recipients are more than a schedule can hold (at most {most})", recipients.lines.len());
        let line = recipients.lines.get(most).copied().unwrap_or_default();
        return Err(BadRow { line, problem });
    }
    Ok(recipients)
}

/// Returns a warning about columns that a template cannot use, because of their names. `None` if there are none.
pub fn unusable(columns: &[String]) -> Option<String> {
    let unusable: Vec<&String> = columns.iter().filter(|name| !is_variable(name)).collect();
    let first = unusable.first()?;
    let named: Vec<String> =
        unusable.iter().take(NAMES_SHOWN).map(|name| format!("`{}`", shown(name, NAME_SHOWN))).collect();
    let more = unusable.len().checked_sub(NAMES_SHOWN).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    let plain: String = first.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
    let plain = if plain.starts_with(|first: char| first.is_ascii_digit()) { format!("_{plain}") } else { plain };
    Some(format!(
        "line 1: no text can use {}{more}: the name of a variable is letters, digits and `_`; rename it where one is to, \
         as in `{}`",
        named.join(", "),
        shown(&plain, NAME_SHOWN),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Recipients {
        parse(text.as_bytes()).unwrap_or_else(|bad| panic!("{bad}"))
    }

    fn refused(bytes: &[u8]) -> String {
        parse(bytes).map(|read| panic!("taken as {read:?}")).unwrap_or_else(|bad| bad.to_string())
    }

    fn addresses(recipients: &Recipients) -> Vec<&str> {
        recipients.audience.recipients.iter().map(|recipient| recipient.address.as_str()).collect()
    }

    #[test]
    fn rows_become_recipients_with_the_values_of_their_columns() {
        let read = read("name,Email,city\nAnn,ann@example.com,\"Rome, IT\"\nBob, bob@example.com ,\n");
        assert_eq!(read.audience.columns, ["name", "city"]);
        assert_eq!(addresses(&read), ["ann@example.com", "bob@example.com"]);
        assert_eq!(
            read.audience.recipients.first().map(|ann| ann.values.clone()),
            Some(vec!["Ann".into(), "Rome, IT".into()])
        );
        assert_eq!((read.lines, read.bad), (vec![2, 3], vec![]));
    }

    #[test]
    fn files_of_spreadsheets_are_read() {
        let read = parse(
            "\u{feff}email;name\r\nann@example.com;Ann\r\n\r\nbob@example.com;\"B\r\nob\"\r\ncy@example.com;Cy"
                .as_bytes(),
        );
        let read = read.expect("readable");
        assert_eq!(addresses(&read), ["ann@example.com", "bob@example.com", "cy@example.com"]);
        assert_eq!(read.lines, [2, 4, 6], "blank lines and lines within quotes count");
    }

    #[test]
    fn rows_that_cannot_be_used_are_reported_with_their_lines() {
        let read = read("email,name\nann@example.com\n\npostmaster,No\nbob@example.com,Bob\n,\n");
        assert_eq!(addresses(&read), ["bob@example.com"]);
        let bad: Vec<String> = read.bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            bad,
            [
                "line 2: 1 field, the header has 2",
                "line 4: 'postmaster' has no '@': an address is LOCAL@DOMAIN",
                "line 6: the address is empty",
            ]
        );
    }

    #[test]
    fn unusable_columns_are_reported() {
        let unusable_of = |names: &[&str]| unusable(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(unusable_of(&["name", "last_order", "x1"]), None);
        let rule = "the name of a variable is letters, digits and `_`; rename it where one is to, as in";
        assert_eq!(
            unusable_of(&["name", "first name"]),
            Some(format!("line 1: no text can use `first name`: {rule} `first_name`"))
        );
        assert_eq!(unusable_of(&["2nd", "a-b"]), Some(format!("line 1: no text can use `2nd`, `a-b`: {rule} `_2nd`")));
        let many: Vec<String> = (0..12).map(|number| format!("c {number}")).collect();
        assert!(unusable(&many).is_some_and(|message| message.contains("`c 9` and 2 more: ")));
    }

    #[test]
    fn header_that_cannot_be_meant_is_refused() {
        assert_eq!(refused(b""), "line 1: the file is empty; its first line names the columns, such as `email,name`");
        assert_eq!(refused(b"name,city\n"), "line 1: no column is named `email`; the header has: name, city");
        assert!(refused(b"ann@example.com\nbob@example.com\n").contains("this one holds an address"));
        assert_eq!(refused(b"email,a,A\n"), "line 1: the column `A` is there twice");
        assert_eq!(refused(b"email,EMAIL\n"), "line 1: the column `EMAIL` is there twice");
        assert_eq!(refused(b"email,,a\n"), "line 1: column 2 has no name");
        let built_in = "line 1: the column `recipient` cannot be used: it is a built-in variable (the recipient's \
                        address); rename the column";
        assert_eq!(refused(b"email,recipient\n"), built_in);
        assert_eq!(read("email,Recipient\na@b.c,A\n").audience.columns, ["Recipient"], "another name");
        assert_eq!(refused(&[0xFF, 0xFE, b'e', 0]), "line 1: the file is UTF-16; save it as UTF-8");
    }

    #[test]
    fn control_characters_spoil_their_row_and_name_their_column() {
        let read =
            read("email,name,bio\na@b.c,Ann\0,x\nb@b.c,Bob,\"one\r\n\ttwo\"\nc@b.c,Cy\u{9b}2J,x\nd\u{7f}@b.c,D,x\n");
        assert_eq!(addresses(&read), ["b@b.c"], "tabs and line ends are for the text");
        let bad: Vec<String> = read.bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            bad[0],
            "line 2: column `name` holds the control character U+0000, which no email carries; remove it"
        );
        assert!(bad[1].starts_with("line 5: column `name` holds the control character U+009B"), "{bad:?}");
        assert!(bad[2].starts_with("line 6: a control character (U+007F) at character 2"), "{bad:?}");
    }

    #[test]
    fn file_that_is_no_text_is_not_poured_over_the_terminal() {
        let zip = refused(b"PK\x03\x04\x14\0\x06\0\x08\0");
        assert_eq!(zip, "line 1: the file is a spreadsheet or an archive (ZIP), no text; save it as CSV (UTF-8)");
        let binary = refused(b"\x7fELF\x02\x01\x01\x1b[2J,b\n");
        let name = "\\u{7f}ELF\\u{2}\\u{1}\\u{1}\\u{1b}[2J";
        let why = "is not the name of a column: it holds a control character; is this a CSV file?";
        assert_eq!(binary, format!("line 1: `{name}` {why}"));
        let long = refused(format!("{}\n", vec!["x".repeat(5_000); 50].join(",")).as_bytes());
        assert!(long.len() < 700 && long.ends_with("… and 40 more"), "{long}");
        let row = read(&format!("email\n{}\u{1b}[2J\n", "x".repeat(100_000)));
        assert!(row.bad.first().is_some_and(|bad| bad.problem.len() < 300), "{:?}", row.bad);
    }

    #[test]
    fn bytes_that_are_no_text_spoil_their_row_only() {
        let read = parse(b"email,name\nann@example.com,\xE9\nbob@example.com,Bob\n").expect("readable");
        assert_eq!(addresses(&read), ["bob@example.com"]);
        assert_eq!(read.bad.first().map(|bad| bad.line), Some(2));
    }

    #[test]
    fn recipients_above_schedule_limit_are_refused_with_their_line() {
        let mut text = "email\n".to_owned();
        for number in 0..=limits(LEVEL).inline_recipients_max {
            text.push_str(&format!("r{number}@example.com\n"));
        }
        assert!(refused(text.as_bytes()).starts_with("line 10002: 10001 recipients"));
    }
}
