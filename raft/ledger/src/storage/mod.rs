//! Storage of the state: tables, keys as bytes, rows as bytes, and the versions of their forms.

pub mod form;
mod key;
pub mod level;
#[cfg(feature = "next-level")]
pub(crate) mod next_level;
mod rows;
mod table;

pub use key::TableKey;
pub use rows::ROW_BYTES_MAX;
pub use table::Table;
