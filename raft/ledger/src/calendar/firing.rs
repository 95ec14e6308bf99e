//! Results of the calendar: firings and absences, with their names and explanations.
//!
//! `preview` and `schedule create` print the texts of [`Remark`] and [`AbsenceReason`].

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::segment::{Clock, Edge};

/// Selects one of two equal local times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fold {
    /// The only one, or the one before the clocks go back.
    First,
    /// The one after the clocks went back.
    Second,
}

impl Fold {
    /// The fold as a number, 0 or 1.
    pub const fn number(self) -> u8 {
        match self {
            Fold::First => 0,
            Fold::Second => 1,
        }
    }
}

/// Name of an occurrence within its schedule (P7). It never depends on the current time.
///
/// Names are only compared for equality. Their order is that of the instants only under the default policies: with
/// `shift` or `both` a later name may come first. To sort occurrences, use [`Firing::instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarName {
    /// For a pattern with fixed times: the local time of the pattern, even if it does not exist and the firing was
    /// moved.
    Civil {
        /// Local time; a whole minute.
        local: DateTime,
        /// Selects one of the times if the local time exists twice.
        fold: Fold,
    },
    /// For a pattern with intervals, a period or a single instant.
    Instant(Timestamp),
}

impl CalendarName {
    /// The civil date-time as if it were UTC, in milliseconds since 1970-01-01T00:00; `None` for other names. With
    /// [`CalendarName::fold`] it is the name in numbers.
    pub fn civil_ms(&self) -> Option<i64> {
        match self {
            CalendarName::Civil { local, .. } => Offset::UTC.to_timestamp(*local).ok().map(Timestamp::as_millisecond),
            CalendarName::Instant(_) => None,
        }
    }

    /// The fold; always [`Fold::First`] for an instant, which is unique by itself.
    pub fn fold(&self) -> Fold {
        match self {
            CalendarName::Civil { fold, .. } => *fold,
            CalendarName::Instant(_) => Fold::First,
        }
    }
}

impl fmt::Display for CalendarName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarName::Civil { local, fold: Fold::First } => write!(f, "{local}"),
            CalendarName::Civil { local, fold: Fold::Second } => write!(f, "{local} (second)"),
            CalendarName::Instant(instant) => write!(f, "{instant}"),
        }
    }
}

/// A firing or an absence of a schedule. Steps are in the order of their instants, then of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An occurrence fires.
    Fires(Firing),
    /// A name of the pattern has no occurrence of its own.
    Absent(Absence),
}

impl Step {
    /// Position on the time line. It never decreases from step to step.
    pub fn instant(&self) -> Timestamp {
        match self {
            Step::Fires(firing) => firing.instant,
            Step::Absent(absence) => absence.at,
        }
    }

    /// Name of the firing or the absence.
    pub fn occurrence(&self) -> CalendarName {
        match self {
            Step::Fires(firing) => firing.occurrence,
            Step::Absent(absence) => absence.occurrence,
        }
    }
}

/// An occurrence and the instant at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Name of the occurrence.
    pub occurrence: CalendarName,
    /// Instant at which it is due. It strictly increases from firing to firing.
    pub instant: Timestamp,
    /// The zone's offset from UTC at that instant.
    pub offset: Offset,
    /// How a clock change affects it; `None` if it does not.
    pub remark: Option<Remark>,
}

impl Firing {
    /// Local time at which it is due.
    pub fn local(&self) -> DateTime {
        self.offset.to_datetime(self.instant)
    }

    /// The instant in RFC 3339 with the local offset: `2026-03-08T03:00:00-04:00`.
    pub fn local_text(&self) -> String {
        self.instant.display_with_offset(self.offset).to_string()
    }
}

/// How a clock change affects a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// Its local time does not exist; it fires at the end of the gap.
    #[error("{} does not exist that day: {edge}; moved to the end of the gap{}", Clock(*wanted), together(*others))]
    MovedAfterGap {
        /// The local time that the pattern names.
        wanted: DateTime,
        /// The clock change.
        edge: Edge,
        /// Number of other times of the gap that fire together with it.
        others: usize,
    },
    /// Its local time does not exist; it fires later by the length of the gap.
    #[error("{} does not exist that day: {edge}; moved by the same", Clock(*wanted))]
    ShiftedOverGap {
        /// The local time that the pattern names.
        wanted: DateTime,
        /// The clock change.
        edge: Edge,
    },
    /// Its local time exists; times of the pattern in a gap fire together with it.
    #[error("stands also for {} that do not exist that day: {edge}", times(*others))]
    JoinedFromGap {
        /// The clock change.
        edge: Edge,
        /// Number of these times.
        others: usize,
    },
    /// Its local time exists twice; this is the one before the clocks go back.
    #[error("first of two: {edge}")]
    FirstOfTwo {
        /// The clock change.
        edge: Edge,
    },
    /// Its local time exists twice; this is the one after the clocks went back.
    #[error("second of two: {edge}")]
    SecondOfTwo {
        /// The clock change.
        edge: Edge,
    },
}

fn together(others: usize) -> String {
    if others == 0 { String::new() } else { format!(", together with {}", times(others)) }
}

fn times(count: usize) -> String {
    if count == 1 { "1 other time".to_string() } else { format!("{count} other times") }
}

/// A name of the pattern that has no firing of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The name of the pattern.
    pub occurrence: CalendarName,
    /// Position on the time line: the end of its gap, or the firing with which it falls together.
    pub at: Timestamp,
    /// Why it has no firing.
    pub reason: AbsenceReason,
}

/// Why a name has no firing of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbsenceReason {
    /// The zone skipped its whole date.
    #[error("date does not exist: {edge}")]
    DateMissing {
        /// The clock change.
        edge: Edge,
    },
    /// The zone skipped its local time, and `dst_gap` is `skip`.
    #[error("local time does not exist: {edge}")]
    TimeMissing {
        /// The clock change.
        edge: Edge,
    },
    /// The zone skipped its local time, and another firing is at the instant to which it was moved.
    #[error("local time does not exist: {edge}; falls together with {with}")]
    FallsTogether {
        /// The clock change.
        edge: Edge,
        /// Name of that firing.
        with: CalendarName,
    },
}
