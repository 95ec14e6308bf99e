//! Output of commands: one struct per kind of object, made from the API's messages.
//!
//! Scripts rely on the fields of `-o json`: snake_case, numbers as numbers, zeros included, instants as RFC 3339 in UTC
//! with `Z`, and null for a missing value. Fields are added, never renamed or removed. The same structs format their
//! table row, their card and their name.

pub mod apply;
pub mod audience;
pub mod audit;
pub mod authority;
pub mod backfill;
pub mod backup;
pub mod barrier;
pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod completion;
pub mod config;
pub mod context;
pub mod dead_letter;
pub mod doctor;
pub mod doubt;
pub mod event;
pub mod explain;
pub mod fields;
pub mod forecast;
pub mod history;
pub mod import;
pub mod instant;
pub mod layout;
pub mod mail;
pub mod message;
pub mod moved;
pub mod opt_out;
pub mod pool;
pub mod recipient;
pub mod recover;
pub mod relay;
pub mod restore;
pub mod run;
pub mod schedule;
pub mod scrub;
pub mod send_test;
pub mod several;
pub mod template;
pub mod tenant;
pub mod token;
pub mod update;
pub mod upgrade;
pub mod version;

use serde::Serialize;

use layout::Cell;

/// An object that can be printed.
pub trait View: Serialize {
    /// Returns what `-o name` prints.
    fn name(&self) -> String;
    /// Returns the text for the user, without a final line end; with colours if `paint` is set.
    fn text(&self, paint: bool) -> String;
}

/// An object that can also be printed as a row of a table.
pub trait Row: View {
    /// Plural noun for the message about an empty list.
    const NOUN: &'static str;
    /// Headings of the table.
    const COLUMNS: &'static [&'static str];
    /// Returns the cells, one per heading.
    fn cells(&self) -> Vec<Cell>;
}

/// Returns `None` for an empty text, which the API uses for a missing value.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
