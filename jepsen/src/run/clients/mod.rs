//! Clients of the admin API during the faults: operators that change things, and readers.

pub mod backfills;
mod coordination;
mod decisions;
pub mod edits;
mod http;
pub mod messages;
mod objects;
mod operator;
pub mod readers;
pub mod templates;
pub mod uploads;

pub use coordination::Coordination;
pub use operator::Operator;
