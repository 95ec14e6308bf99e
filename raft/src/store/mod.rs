//! The applied state on disk: a node reads it at the start instead of replaying its whole log.
//!
//! The ledger collects which rows changed. Four times a second a [`Mirror`] writes those rows into a [`StateStore`]; at the
//! start the node loads the store and replays the log beyond it.
//!
//! Invariant: the log and the snapshots are the truth. A store may lose its last writes, or all of them, but it never returns
//! wrong rows: a damaged one is moved away ([`open_or_quarantine`]) and rewritten, and no log is purged because of a store.
//!
//! Reading order: this file, `memory_store` (the contract), `cell` (a row on disk), `sled_store`, `mirror/`.

mod cell;
mod memory_store;
mod mirror;
mod quarantine;
mod sled_guard;
mod sled_store;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod kill_tests;
#[cfg(test)]
mod mirror_tests;
#[cfg(test)]
pub(crate) mod small_disk;
#[cfg(test)]
mod suite;

use std::collections::BTreeMap;
use std::io;

pub use memory_store::MemoryStore;
pub use mirror::{MIRROR_EVERY, Mirror, MirrorError, MirrorFailure, Source, StateUpdate, UpdatedRows};
pub use sled_store::{SledStore, open_or_quarantine};

/// A row: key bytes and value bytes. Keys are unique and are ordered as bytes.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows to write, by key; `None` takes the row away. One entry a key: the latest wins by construction.
pub type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Content of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing was ever written, or the store was moved away.
    Empty,
    /// A whole state.
    State {
        /// The blob of the last write that is in here: the caller's applied index, log id and membership.
        meta: Vec<u8>,
        /// All rows, ascending by key.
        rows: Vec<Row>,
    },
}

/// Why a store did not do as asked. After any error of [`StateStore::write`] or [`StateStore::replace`] only
/// `replace` (or opening the store again) helps.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The content is not what was written. Move it away and rewrite; a retry does not help.
    #[error("the state store is damaged: {why}")]
    Damaged {
        /// What was found.
        why: String,
    },
    /// The disk is full. Rewrite when it has space.
    #[error("the disk of the state store is full (while {doing})")]
    Full {
        /// The verb and object that failed.
        doing: &'static str,
    },
    /// Another process, or a closing handle of this one, has the store.
    #[error("the state store is held by another process")]
    Busy,
    /// The operating system refused.
    #[error("cannot {doing}")]
    Io {
        /// The verb and object that failed.
        doing: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn damaged(why: impl Into<String>) -> StoreError {
        StoreError::Damaged { why: why.into() }
    }

    pub(crate) fn io(doing: &'static str, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { doing },
            _ => StoreError::Io { doing, source },
        }
    }
}

/// Holds one state: rows, and one `meta` blob that says which state it is.
///
/// The contract, kept by every implementation and proved by one suite:
///
/// * **Whole.** [`load`](StateStore::load) answers rows and meta of *one* completed `write` or `replace`, or `Empty`,
///   or an error. Never a mix of two, never a row less, whatever happened to the process, the machine or the disk.
/// * **Perhaps old.** After a crash it may be an earlier completed write than the last. The caller reads the applied
///   index in `meta`, and rebuilds when the log no longer reaches back to it.
/// * **Opaque.** Keys, values and meta are bytes; any length, empty ones too.
/// * **Order.** Writes take effect in the order of the calls; a store has one owner.
/// * **Blocking.** Every method blocks on the disk; call it from a thread of its own, never from the async runtime.
pub trait StateStore: Send {
    /// All that is there, checked. O(state) in time and memory.
    fn load(&mut self) -> Result<Contents, StoreError>;

    /// Applies `changes` and puts `meta` in place of the former blob, both or neither. A write so large that the
    /// implementation must split it may leave a store that loads as `Damaged` when the process dies within.
    fn write(&mut self, changes: &Changes, meta: &[u8]) -> Result<(), StoreError>;

    /// Puts `rows` (any order, each key once) in place of everything. Also repairs a store that failed or is damaged.
    /// When the process dies within, the store loads as `Damaged`.
    fn replace(&mut self, rows: &mut dyn Iterator<Item = Row>, meta: &[u8]) -> Result<(), StoreError>;

    /// Hands everything to the operating system and lets go of the files.
    fn close(self: Box<Self>) -> Result<(), StoreError>;
}
