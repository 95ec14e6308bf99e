//! Makes the ledger replicated: the write-ahead log, and openraft's log storage on it.

pub mod log_store;
pub mod types;
pub mod wal;
