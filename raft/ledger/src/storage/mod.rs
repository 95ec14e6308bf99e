//! Storage of the state: tables, rows as bytes, and the versions of their forms.

mod archived;
pub(crate) mod block;
pub mod form;
mod frozen;
pub mod level;
#[cfg(feature = "next-level")]
pub(crate) mod next_level;
mod rows;
mod table;
mod test_leaf;

pub use archived::{block_with_list, block_without};
pub use block::{BLOCK_BYTES_MAX, BlockEntry, Row, hash_of_blocks, unpack_block};
pub use form::Unreadable;
pub use frozen::{FrozenBlock, FrozenLeaf, FrozenState, TableSize};
pub use rows::ROW_BYTES_MAX;
pub use table::{SharedRows, Table};
