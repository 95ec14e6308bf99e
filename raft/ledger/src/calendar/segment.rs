//! A zone as a row of segments: stretches of constant offset from UTC, with the edges between them.
//!
//! Inside a segment civil time runs as UTC does. At an edge the clocks go forward (a **gap**: local
//! times that do not exist) or back (an **overlap**: local times that exist twice). Changes of name
//! or of the DST flag alone are no edges.
//!
//! An overlap is read from its one edge, so the two passes of a local time must lie in neighbouring
//! segments. That holds as long as no zone changes its offset twice within the width of a change; in
//! the whole database the shortest time between two changes since 1900 is a week (a test watches it).

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// A change of a zone's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The first instant with the new offset.
    pub at: Timestamp,
    /// What local clocks would have shown then with the old offset.
    pub from: DateTime,
    /// What they show.
    pub to: DateTime,
}

impl Edge {
    fn new(at: Timestamp, before: Offset, after: Offset) -> Option<Edge> {
        let edge = Edge { at, from: before.to_datetime(at), to: after.to_datetime(at) };
        (before != after).then_some(edge)
    }

    /// Whether clocks go forward.
    pub fn is_gap(&self) -> bool {
        self.from < self.to
    }

    /// Whether clocks go back over `local`, so that it exists once on each side.
    pub(super) fn repeats(&self, local: DateTime) -> bool {
        self.to <= local && local < self.from
    }

    /// Whether the gap swallows the whole date of `local`.
    pub(super) fn swallows_date_of(&self, local: DateTime) -> bool {
        let midnight = local.date().to_datetime(jiff::civil::Time::midnight());
        let next = local.date().tomorrow().map(|date| date.to_datetime(midnight.time()));
        self.from <= midnight && next.is_ok_and(|next| next <= self.to)
    }
}

/// "clocks go forward from 02:00 to 03:00", with dates where they differ.
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

/// The time of day as a wall clock shows it: seconds only where there are any.
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

/// A stretch of constant offset.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Local time minus UTC.
    pub(super) offset: Offset,
    /// Where it begins; none when it has always been so.
    pub(super) opening: Option<Edge>,
    /// Where it ends; none when it will always be so.
    pub(super) closing: Option<Edge>,
}

impl Segment {
    /// The segment in which `instant` lies.
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

    /// The next segment; none when this one never ends.
    pub(super) fn following(&self, zone: &TimeZone) -> Option<Segment> {
        let opening = self.closing?;
        let offset = zone.to_offset(opening.at);
        Some(Segment { offset, opening: Some(opening), closing: closing(zone, opening.at, offset) })
    }

    /// What local clocks show at `instant`, by this segment's offset.
    pub(super) fn local(&self, instant: Timestamp) -> DateTime {
        self.offset.to_datetime(instant)
    }

    /// The instant at which clocks show `local`; none when this segment ends before it.
    pub(super) fn instant(&self, local: DateTime) -> Option<Timestamp> {
        let instant = self.offset.to_timestamp(local).ok()?;
        self.closing.is_none_or(|edge| instant < edge.at).then_some(instant)
    }
}

fn closing(zone: &TimeZone, instant: Timestamp, offset: Offset) -> Option<Edge> {
    zone.following(instant).find_map(|change| Edge::new(change.timestamp(), offset, change.offset()))
}
