//! The pure core of Reveille: what may be asked, what comes of it, and what must always be true.
#![doc = include_str!("essay.md")]

pub mod access;
pub mod address;
mod apply;
pub mod bitmap;
pub mod campaign;
pub mod canary;
pub mod causes;
pub mod check;
pub mod command;
pub mod content;
pub mod deaths;
pub mod decide;
pub mod deferral;
pub mod effect;
pub mod evidence;
pub mod explain;
pub mod fingerprint;
pub mod forecast;
pub mod form;
pub mod ids;
pub mod impossible;
mod key;
pub mod labels;
pub mod level;
pub mod limits;
pub mod moments;
#[cfg(feature = "next-level")]
mod next_level;
pub mod planted;
pub mod policy;
pub mod pool;
pub mod refusal;
mod renumber;
pub mod reply;
mod rows;
pub mod rulings;
pub mod same_words;
mod state;
pub mod strides;
mod table;
pub mod tenant;
pub mod toll;
mod weight;

pub use apply::{Applied, BackfillBatch, Look, TEST_NAME, agreed_time, closed_slots};
pub use level::{GENESIS_LEVEL, LEVEL};
pub use rows::{Change, Changed};
pub use state::*;
pub use table::Table;
pub use weight::Weight;
