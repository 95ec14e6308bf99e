//! The calendar: from "when" as a person wrote it to the exact instants at which a schedule fires.
//!
//! Called by the leader before it proposes a `Fire` (P8), by `schedule create` and `preview`, and by
//! catch-up (P16). It is pure: the zone, the policies and the instant to search from arrive as values;
//! it reads no clock and owns no time zone database. `apply` never calls it (P2): the instants that
//! were decided here travel in the entry.
//!
//! What it promises:
//! - **Strict order.** Instants of firings strictly increase, whatever the zone does.
//! - **Closed accounting (P1, P8).** Every civil time that a fixed-time pattern names is a [`Firing`]
//!   or an [`Absence`] with its [`AbsenceReason`]; nothing is dropped in silence.
//! - **No memory.** The steps after an instant depend on nothing but the arguments: to stop after any
//!   firing and to ask again from its instant gives the same continuation.
//! - **Stable names (P7).** A fixed-time pattern's occurrence is named by civil date-time and fold, an
//!   interval pattern's by its instant.
//!
//! How: a zone is a row of segments of constant offset (`segment.rs`); within one, civil time runs as
//! UTC does, so the next firing is the next civil match; at the edges between segments the policies
//! decide (`walk.rs`). croner reads the cron grammar and searches in civil time only; its own handling
//! of clock changes is not used.
//!
//! What it is not: it does not know what was already fired, how late is too late, or whether a zone
//! exists; [`nearest_names`] only helps those who refuse an unknown one.
//!
//! Reading order: [`when`] (what is stored), [`pattern`] (what it compiles to) with `grammar.rs`,
//! [`policy`], [`firing`] (what comes out), [`resolver`], [`range`], [`mod@spread`].

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
mod walk;
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
