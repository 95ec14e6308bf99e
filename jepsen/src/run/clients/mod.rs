//! Clients of the admin API during the faults: operators that change things, and readers.

pub mod backfills;
mod coordination;
mod decisions;
pub mod edits;
pub mod messages;
mod operator;
pub mod readers;

pub use coordination::Coordination;
pub use operator::Operator;
