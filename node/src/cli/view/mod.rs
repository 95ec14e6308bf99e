//! What is printed: our own structs, one a noun, made from the API's messages.
//!
//! With `-o json` their fields are a promise to scripts: snake_case, numbers as numbers, zeros present,
//! instants RFC 3339 in UTC with `Z`, no value is null; fields are added, never renamed or removed.
//! The same structs know how they look in a table, on a card of their own, and by name.

pub mod apply;
pub mod audience;
pub mod backfill;
pub mod barrier;
pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod completion;
pub mod config;
pub mod dead_letter;
pub mod doctor;
pub mod doubt;
pub mod explain;
pub mod forecast;
pub mod history;
pub mod import;
pub mod instant;
pub mod mail;
pub mod moved;
pub mod opt_out;
pub mod pool;
pub mod relay;
pub mod run;
pub mod schedule;
pub mod send_test;
pub mod several;
pub mod sheet;
pub mod template;
pub mod tenant;
pub mod update;
pub mod upgrade;
pub mod version;

use serde::Serialize;

use sheet::Cell;

/// Something that is printed by itself.
pub trait View: Serialize {
    /// What `-o name` prints.
    fn name(&self) -> String;
    /// What people read; with colours when `paint`. Without a line end.
    fn text(&self, paint: bool) -> String;
}

/// Something that is also printed as a line of a table.
pub trait Row: View {
    /// What there is none of in an empty list; plural.
    const NOUN: &'static str;
    /// The headings.
    const COLUMNS: &'static [&'static str];
    /// As many cells as headings.
    fn cells(&self) -> Vec<Cell>;
}

/// No value where the API has an empty text.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
