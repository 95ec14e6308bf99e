//! Formats tables and cards: no lines, headings in capitals, one colour per meaning.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell as TableCell, Color, ContentArrangement, Table};
use prost_types::Timestamp;

use super::View;
use crate::cli::escape;
use crate::cli::failure::Failure;
use crate::cli::instant::text;

/// Meaning of a cell, shown by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// No particular meaning.
    Plain,
    /// As it should be.
    Good,
    /// The operator may want to check it.
    Notable,
    /// The operator must act.
    Bad,
    /// Less important than the other cells.
    Dim,
}

/// A text with its tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell with a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }

    /// Creates a cell with a count, dim if it is zero.
    pub fn count(number: u64, tone: Tone) -> Cell {
        Cell::toned(crate::format::count(number), if number == 0 { Tone::Dim } else { tone })
    }

    /// Creates a cell with the text, or with a dim dash if there is none or it is empty.
    pub fn or_dash<'a>(text: impl Into<Option<&'a str>>) -> Cell {
        let text = text.into().filter(|text| !text.is_empty());
        text.map_or_else(|| Cell::toned("-", Tone::Dim), Cell::from)
    }

    /// Creates a cell with an instant, or with a dim dash.
    pub fn at(instant: Option<&Timestamp>) -> Cell {
        Cell::or_dash(text(instant).as_deref())
    }

    /// Creates a cell with a number, or with a dim dash.
    pub fn number(number: Option<u64>) -> Cell {
        Cell::or_dash(number.map(|number| number.to_string()).as_deref())
    }

    /// Creates a cell with a rate per second, or with a dim dash if it is zero: there is no limit.
    pub fn rate(per_second: f64) -> Cell {
        if per_second == 0.0 { Cell::or_dash(None) } else { format!("{per_second}/s").into() }
    }

    fn painted(&self, paint: bool) -> TableCell {
        let cell = TableCell::new(escape::escaped(&self.text, &['\n']));
        match self.tone {
            _ if !paint => cell,
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::Green),
            Tone::Notable => cell.fg(Color::Yellow),
            Tone::Bad => cell.fg(Color::Red),
            Tone::Dim => cell.add_attribute(Attribute::Dim),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// Returns the table of a list: with all columns, or with those that are named, in any case of letters.
///
/// # Errors
/// If a name is none of the headings.
pub fn list<R: View>(rows: &[R], named: &[String], paint: bool) -> Result<String, Failure> {
    let cells: Vec<Vec<Cell>> = rows.iter().map(R::cells).collect();
    let is_empty =
        |place: usize| cells.iter().all(|row| row.get(place).is_none_or(|cell| *cell == Cell::or_dash(None)));
    let shown = match named {
        [] => {
            let columns = R::COLUMNS.iter().enumerate();
            columns
                .filter(|(place, column)| !(R::OPTIONAL.contains(column) && is_empty(*place)))
                .map(|(place, _)| place)
                .collect()
        }
        named => places::<R>(named)?,
    };
    let headings: Vec<&str> = shown.iter().filter_map(|place| R::COLUMNS.get(*place).copied()).collect();
    let pick = |row: &Vec<Cell>| shown.iter().filter_map(|place| row.get(*place).cloned()).collect();
    Ok(table(&headings, cells.iter().map(pick).collect(), paint))
}

/// Returns the places of the columns with these headings.
///
/// # Errors
/// If a name is none of the headings.
pub fn places<R: View>(named: &[String]) -> Result<Vec<usize>, Failure> {
    let place = |name: &String| {
        let found = R::COLUMNS.iter().position(|column| column.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| {
            let next = format!("the columns of {} are {}", R::NOUN, R::COLUMNS.join(","));
            Failure::usage("--columns", format!("there is no column {name:?}"), &next)
        })
    };
    named.iter().map(place).collect()
}

/// Returns a table with headings, without a final line end.
pub fn table(columns: &[&str], rows: Vec<Vec<Cell>>, paint: bool) -> String {
    let mut table = bare(paint);
    let heading = |text: &&str| {
        let cell = TableCell::new(text);
        if paint { cell.add_attribute(Attribute::Bold) } else { cell }
    };
    table.set_header(columns.iter().map(heading));
    fill(table, rows, paint)
}

/// Returns names and values, one pair per line.
pub fn card<N: Into<String>>(pairs: Vec<(N, Cell)>, paint: bool) -> String {
    let rows = pairs.into_iter().map(|(name, value)| vec![Cell::toned(name, Tone::Dim), value]);
    fill(bare(paint), rows.collect(), paint)
}

/// Returns a row as the pairs of a card, named by the headings.
pub fn pairs<R: View + ?Sized>(row: &R) -> Vec<(String, Cell)> {
    R::COLUMNS.iter().map(|column| column.to_lowercase()).zip(row.cells()).collect()
}

fn bare(paint: bool) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if paint {
        table.enforce_styling();
        table.style_text_only();
    }
    table
}

fn fill(mut table: Table, rows: Vec<Vec<Cell>>, paint: bool) -> String {
    for row in rows {
        table.add_row(row.iter().map(|cell| cell.painted(paint)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_narrow_and_ends_its_lines_at_their_last_word() {
        let rows = vec![vec!["a".into(), Cell::or_dash(None)], vec!["longer".into(), Cell::count(1_000, Tone::Good)]];
        assert_eq!(table(&["NAME", "N"], rows, false), "NAME    N\na       -\nlonger  1,000");
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        let rows = || vec![vec![Cell::toned("blocked", Tone::Bad)]];
        assert!(!table(&["STATE"], rows(), false).contains('\u{1b}'));
        assert!(table(&["STATE"], rows(), true).contains('\u{1b}'));
    }

    #[test]
    fn control_characters_in_values_reach_no_terminal() {
        assert_eq!(card(vec![("text", "a\u{1b}[31mb".into())], false), "text  a\\u{1b}[31mb");
        assert_eq!(card(vec![("text", "\u{202e}lleb".into())], false), "text  \\u{202e}lleb");
    }
}
