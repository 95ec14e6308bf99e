//! The calendar: computes the exact instants at which a schedule fires. It is pure; `apply` never calls it (P2).
//!
//! Called by the leader before it proposes a `Fire` (P8), by `schedule create`, `preview` and catch-up (P16).
//! - **Strict order.** Instants of firings strictly increase, whatever the zone does.
//! - **Complete accounting (P1, P8).** Each civil time of a fixed-time pattern is a [`Firing`], or an [`Absence`]
//!   with its [`AbsenceReason`].
//! - **No memory.** A caller may stop after any firing and continue from its instant, with the same result.
//! - **Stable names (P7).** A fixed-time occurrence is named by civil date-time and fold, any other by its instant.
//!
//! A zone is a series of segments of constant offset (`segment.rs`); at the edges the policies decide
//! (`civil_iterator.rs`). For errors about unknown zones: [`nearest_names`]. Reading order: [`when`], [`pattern`],
//! [`policy`], [`firing`], [`resolver`], [`range`], [`mod@spread`].

mod civil_iterator;
pub mod firing;
mod grammar;
mod hashed;
pub mod pattern;
pub mod policy;
pub mod range;
pub mod resolver;
mod search;
mod segment;
pub mod spread;
pub mod when;
pub mod zone;

pub use firing::{Absence, AbsenceReason, CalendarName, Firing, Fold, Remark, Step};
pub use grammar::Field;
pub use pattern::{Pattern, PatternError};
pub use policy::{DstGap, DstOverlap, DstPolicies, PolicyError};
pub use range::{Count, Missed, count, missed};
pub use resolver::{Steps, next_after, steps_after};
pub use segment::Edge;
pub use spread::spread;
pub use when::{Weekdays, When};
pub use zone::nearest_names;
