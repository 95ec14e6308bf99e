//! A zone as a series of segments of constant offset from UTC, with the edges between them.
//!
//! Within a segment civil time runs like UTC. At an edge the clocks go forward (a **gap**: local times that do not
//! exist) or back (an **overlap**: local times that exist twice). A change of only the name or the DST flag is not an
//! edge.
//!
//! An overlap is evaluated at its one edge, so both passes of a local time must be in neighbouring segments. This holds
//! if no zone changes its offset twice within the length of a change. In the whole database the shortest time between
//! two changes since 1900 is a week (a test checks this).

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// A change of a zone's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// First instant with the new offset.
    pub at: Timestamp,
    /// Local time at that instant by the old offset.
    pub from: DateTime,
    /// Local time at that instant by the new offset.
    pub to: DateTime,
}

impl Edge {
    fn new(at: Timestamp, before: Offset, after: Offset) -> Option<Edge> {
        let edge = Edge { at, from: before.to_datetime(at), to: after.to_datetime(at) };
        (before != after).then_some(edge)
    }

    /// True if the clocks go forward.
    pub fn is_gap(&self) -> bool {
        self.from < self.to
    }

    /// True if the clocks go back over `local`, so that it exists on both sides.
    pub(super) fn repeats(&self, local: DateTime) -> bool {
        self.to <= local && local < self.from
    }

    /// True if the gap contains the whole date of `local`.
    pub(super) fn contains_date_of(&self, local: DateTime) -> bool {
        let midnight = local.date().to_datetime(jiff::civil::Time::midnight());
        let next = local.date().tomorrow().map(|date| date.to_datetime(midnight.time()));
        self.from <= midnight && next.is_ok_and(|next| next <= self.to)
    }
}

/// Prints "clocks go forward from 02:00 to 03:00", with dates if they differ.
impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.is_gap() { "forward" } else { "back" };
        let show = |local: DateTime| {
            let clock = Clock(local);
            if self.from.date() == self.to.date() { clock.to_string() } else { format!("{} {clock}", local.date()) }
        };
        write!(f, "clocks go {direction} from {} to {}", show(self.from), show(self.to))
    }
}

/// Prints a time of day like a wall clock, with seconds only if they are not zero.
pub(super) struct Clock(pub(super) DateTime);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())?;
        match self.0.second() {
            0 => Ok(()),
            second => write!(f, ":{second:02}"),
        }
    }
}

/// A range of time with a constant offset.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Local time minus UTC.
    pub(super) offset: Offset,
    /// The edge at its start; `None` if it has no start.
    pub(super) opening: Option<Edge>,
    /// The edge at its end; `None` if it has no end.
    pub(super) closing: Option<Edge>,
}

impl Segment {
    /// Returns the segment that contains `instant`.
    pub(super) fn containing(zone: &TimeZone, instant: Timestamp) -> Segment {
        let offset = zone.to_offset(instant);
        let through = instant.checked_add(NANOSECOND).unwrap_or(Timestamp::MAX);
        let opening = zone.preceding(through).find_map(|change| {
            let at = change.timestamp();
            let before = at.checked_sub(NANOSECOND).unwrap_or(Timestamp::MIN);
            Edge::new(at, zone.to_offset(before), offset)
        });
        Segment { offset, opening, closing: closing(zone, instant, offset) }
    }

    /// Returns the next segment; `None` if this one has no end.
    pub(super) fn following(&self, zone: &TimeZone) -> Option<Segment> {
        let opening = self.closing?;
        let offset = zone.to_offset(opening.at);
        Some(Segment { offset, opening: Some(opening), closing: closing(zone, opening.at, offset) })
    }

    /// Local time at `instant`, by this segment's offset.
    pub(super) fn local(&self, instant: Timestamp) -> DateTime {
        self.offset.to_datetime(instant)
    }

    /// Returns the instant of the local time `local`; `None` if this segment ends before it.
    pub(super) fn instant(&self, local: DateTime) -> Option<Timestamp> {
        let instant = self.offset.to_timestamp(local).ok()?;
        self.closing.is_none_or(|edge| instant < edge.at).then_some(instant)
    }
}

fn closing(zone: &TimeZone, instant: Timestamp, offset: Offset) -> Option<Edge> {
    zone.following(instant).find_map(|change| Edge::new(change.timestamp(), offset, change.offset()))
}
