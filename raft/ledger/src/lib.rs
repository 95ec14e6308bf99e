//! The pure core of Reveille: what may be asked, what comes of it, and what must always be true.
#![doc = include_str!("essay.md")]

pub mod access;
pub mod address;
mod apply;
pub mod bitmap;
pub mod bounce_breaker;
pub mod campaign;
pub mod canary;
pub mod causes;
pub mod check;
pub mod claim_history;
pub mod closed_claims;
pub mod command;
pub mod content;
pub mod crash_backoff;
pub mod decide;
pub mod deferral;
pub mod effect;
pub mod explain;
pub mod fingerprint;
pub mod forecast;
pub mod form;
pub mod ids;
pub mod impossible;
pub mod injected_bugs;
pub mod instant_range;
mod key;
pub mod labels;
pub mod level;
pub mod limits;
#[cfg(feature = "next-level")]
mod next_level;
pub mod policy;
pub mod pool;
mod recipient_mapping;
pub mod refusal;
pub mod reply;
mod rows;
pub mod run_events;
pub mod same_words;
mod state;
mod table;
pub mod tenant;
mod weight;

pub use apply::{ApplyResult, BackfillBatch, GapLookups, TEST_NAME, agreed_time, closed_slots};
pub use level::{GENESIS_LEVEL, LEVEL};
pub use rows::{ChangedRows, RowChange};
pub use state::*;
pub use table::Table;
pub use weight::Weight;
