//! What comes out of the calendar: firings, absences, their names and the words that explain them.
//!
//! The texts of [`Remark`] and [`AbsenceReason`] are what `preview` and `schedule create` print.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::segment::{Clock, Edge};

/// Which of two equal local times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fold {
    /// The only one, or the one before the clocks go back.
    First,
    /// The one after the clocks went back.
    Second,
}

impl Fold {
    /// As a plain number, 0 or 1.
    pub const fn number(self) -> u8 {
        match self {
            Fold::First => 0,
            Fold::Second => 1,
        }
    }
}

/// The name of an occurrence within its schedule (P7). It never contains "now".
///
/// Names are for equality. They are ordered by instant only under the default policies: with
/// `shift` or `both` a later name may come first, so order by [`Firing::instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarName {
    /// Of a fixed-time pattern: the local time that the pattern names, also when it does not exist
    /// and the firing was moved.
    Civil {
        /// On a whole minute.
        local: DateTime,
        /// Which one, where it exists twice.
        fold: Fold,
    },
    /// Of an interval pattern, a period or a single instant.
    Instant(Timestamp),
}

impl CalendarName {
    /// The civil date-time read as if it were UTC, in milliseconds since 1970-01-01T00:00; none for
    /// an interval pattern. With [`CalendarName::fold`] it is the name as plain numbers.
    pub fn civil_ms(&self) -> Option<i64> {
        match self {
            CalendarName::Civil { local, .. } => Offset::UTC.to_timestamp(*local).ok().map(Timestamp::as_millisecond),
            CalendarName::Instant(_) => None,
        }
    }

    /// The fold; [`Fold::First`] for an interval pattern, whose names are unique by themselves.
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

/// One step of a schedule through time: in order of their instants, and of their names where
/// several share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An occurrence.
    Fires(Firing),
    /// A name of the pattern that has no occurrence of its own.
    Absent(Absence),
}

impl Step {
    /// Where on the time line it stands. Never decreases from step to step.
    pub fn instant(&self) -> Timestamp {
        match self {
            Step::Fires(firing) => firing.instant,
            Step::Absent(absence) => absence.at,
        }
    }

    /// The name that it fires or explains.
    pub fn nominal(&self) -> CalendarName {
        match self {
            Step::Fires(firing) => firing.nominal,
            Step::Absent(absence) => absence.nominal,
        }
    }
}

/// An occurrence and the instant at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Its name.
    pub nominal: CalendarName,
    /// When it is due. Strictly increases from firing to firing.
    pub instant: Timestamp,
    /// The zone's offset from UTC then.
    pub offset: Offset,
    /// What a clock change did to it, if anything.
    pub remark: Option<Remark>,
}

impl Firing {
    /// What local clocks show when it is due.
    pub fn local(&self) -> DateTime {
        self.offset.to_datetime(self.instant)
    }

    /// RFC 3339 with the local offset: `2026-03-08T03:00:00-04:00`.
    pub fn local_text(&self) -> String {
        self.instant.display_with_offset(self.offset).to_string()
    }

    /// The remark as a sentence, empty where there is none.
    pub fn remark_text(&self) -> String {
        self.remark.map(|remark| remark.to_string()).unwrap_or_default()
    }
}

/// What a clock change did to a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Its local time does not exist; it fires at the end of the gap.
    MovedAfterGap {
        /// The local time that the pattern names.
        wanted: DateTime,
        /// The change.
        edge: Edge,
        /// How many other times of the gap fall together with it.
        others: usize,
    },
    /// Its local time does not exist; it fires later by the width of the gap.
    ShiftedOverGap {
        /// The local time that the pattern names.
        wanted: DateTime,
        /// The change.
        edge: Edge,
    },
    /// It exists, and times of the pattern in a gap fall together with it.
    JoinedFromGap {
        /// The change.
        edge: Edge,
        /// How many.
        others: usize,
    },
    /// Its local time exists twice; this is the one before the clocks go back.
    FirstOfTwo {
        /// The change.
        edge: Edge,
    },
    /// Its local time exists twice; this is the one after the clocks went back.
    SecondOfTwo {
        /// The change.
        edge: Edge,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::MovedAfterGap { wanted, edge, others } => {
                write!(f, "{} does not exist that day: {edge}; moved to the end of the gap", Clock(*wanted))?;
                match others {
                    0 => Ok(()),
                    others => write!(f, ", together with {}", times(*others)),
                }
            }
            Remark::ShiftedOverGap { wanted, edge } => {
                write!(f, "{} does not exist that day: {edge}; moved by the same", Clock(*wanted))
            }
            Remark::JoinedFromGap { edge, others } => {
                write!(f, "stands also for {} that do not exist that day: {edge}", times(*others))
            }
            Remark::FirstOfTwo { edge } => write!(f, "first of two: {edge}"),
            Remark::SecondOfTwo { edge } => write!(f, "second of two: {edge}"),
        }
    }
}

fn times(count: usize) -> String {
    if count == 1 { "1 other time".to_string() } else { format!("{count} other times") }
}

/// A name of the pattern that has no firing of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The name.
    pub nominal: CalendarName,
    /// Where on the time line it stands: the end of its gap, or the firing it falls together with.
    pub at: Timestamp,
    /// Why.
    pub reason: AbsenceReason,
}

/// Why a name has no firing of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceReason {
    /// The zone skipped its whole date.
    DateMissing {
        /// The change.
        edge: Edge,
    },
    /// The zone skipped its local time, and `dst_gap` is `skip`.
    TimeMissing {
        /// The change.
        edge: Edge,
    },
    /// The zone skipped its local time, and another firing stands where it was moved to.
    FallsTogether {
        /// The change.
        edge: Edge,
        /// The name of that firing.
        with: CalendarName,
    },
}

impl fmt::Display for AbsenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AbsenceReason::DateMissing { edge } => write!(f, "date does not exist: {edge}"),
            AbsenceReason::TimeMissing { edge } => write!(f, "local time does not exist: {edge}"),
            AbsenceReason::FallsTogether { edge, with } => {
                write!(f, "local time does not exist: {edge}; falls together with {with}")
            }
        }
    }
}
