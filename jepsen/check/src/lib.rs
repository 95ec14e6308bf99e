//! The checker: judges a run by its recorded history, and by nothing else.
//!
//! Pure: no clock, no chance, no network, and nothing of the product, not even its words on the wire. The recorder of
//! real processes and the simulation write the same history and are judged by the same code.
//!
//! An invariant comes out as true, false with its offences, or unknown with what is missing. **Unknown is no pass**, and
//! neither is a run that did not exercise the system: [`coverage`].
//!
//! Reading order: [`history`] (what a run records), [`history_index`] (the same in memory, by item), [`verdict`],
//! [`invariants`] (one function an invariant), [`coverage`], [`judgement`].

pub mod calendar;
pub mod coverage;
pub mod failover;
pub mod history;
pub mod history_index;
pub mod invariants;
pub mod judgement;
pub mod names;
pub mod time;
pub mod verdict;

pub use history_index::HistoryIndex;
pub use judgement::Judgement;
pub use verdict::Verdict;
