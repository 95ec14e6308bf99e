//! The checker: judges a run only by its recorded history.
//!
//! It reads no clock, no random numbers and no network, and links no code of the product. The recorder of real
//! processes and the simulation write the same history format, and the same code judges both.
//!
//! The verdict on an invariant is true, false with its violations, or unknown with the missing observations. **Unknown
//! does not pass**, and neither does a run that did not exercise the system: [`coverage`].
//!
//! Reading order: [`events`] (what is recorded), [`history`] (the same in memory, by item), [`verdict`], [`invariants`]
//! (one function for each invariant), [`coverage`], [`judgement`].

pub mod calendar;
pub mod coverage;
pub mod events;
pub mod failover;
pub mod history;
pub mod invariants;
pub mod judgement;
pub mod names;
pub mod time;
pub mod verdict;

pub use history::History;
pub use judgement::Judgement;
pub use verdict::Verdict;
