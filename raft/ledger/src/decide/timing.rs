//! Shared by the files of this folder: a pattern with its zone, the jitter of a schedule, the first instant after
//! another.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::calendar::{self, Firing, Pattern};
use crate::command::ExplainedRange;
use crate::model::instant_range::distance_ms;
use crate::model::{InstantRange, NextInstant, Nominal, OpeningCause, Schedule, Time, UnopenedReason};

/// A pattern with the zone in which it is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Calendar<'a> {
    /// The compiled pattern.
    pub pattern: &'a Pattern,
    /// The zone with its rules.
    pub zone: &'a Zone,
}

/// Rules of a zone, and the version of the database that they come from.
#[derive(Clone, Debug)]
pub struct Zone {
    /// Rules of the zone.
    pub rules: TimeZone,
    /// Version of the database.
    pub tzdb: String,
}

impl From<calendar::CalendarName> for Nominal {
    fn from(nominal: calendar::CalendarName) -> Nominal {
        match nominal {
            calendar::CalendarName::Instant(instant) => Nominal::Instant(instant.into()),
            calendar::CalendarName::Civil { .. } => Nominal::Civil {
                civil_ms: nominal.civil_ms().unwrap_or_default(),
                fold: (nominal.fold() == calendar::Fold::Second).into(),
            },
        }
    }
}

/// The jitter window of a schedule, and the names that seed the delays in it.
#[derive(Clone, Copy, Debug)]
pub struct Jitter<'a> {
    /// Tenant of the schedule.
    pub tenant: &'a str,
    /// Name of the schedule.
    pub name: &'a str,
    /// Length of the window (`jitter`). Milliseconds.
    pub window_ms: i64,
}

impl<'a> Jitter<'a> {
    /// No jitter.
    pub const NONE: Jitter<'static> = Jitter { tenant: "", name: "", window_ms: 0 };

    /// Returns the jitter of a schedule.
    pub fn of(schedule: &'a Schedule) -> Jitter<'a> {
        Jitter {
            tenant: &schedule.settings.tenant,
            name: &schedule.name,
            window_ms: schedule.settings.policies.jitter_ms,
        }
    }

    /// Delay of an occurrence after its instant, in milliseconds. It always ends before the next instant of the
    /// calendar.
    pub fn delay_ms(&self, calendar: Calendar<'_>, dst: &calendar::DstPolicies, firing: &Firing) -> i64 {
        let Some(window) = u64::try_from(self.window_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis) else {
            return 0;
        };
        let following = calendar::next_after(calendar.pattern, &calendar.zone.rules, dst, firing.instant);
        let seed = format!("{}\0{}", self.tenant, self.name);
        let delay = calendar::spread(seed.as_bytes(), firing, following.map(|firing| firing.instant), window);
        i64::try_from(delay.as_millis()).unwrap_or_default()
    }
}

/// Returns the first instant of a schedule after `after`, within its `start` and `end`.
pub fn first(
    pattern: &Pattern,
    zone: &Zone,
    policies: &calendar::DstPolicies,
    after: Time,
    (start, end): (Option<Time>, Option<Time>),
    jitter: Jitter<'_>,
) -> Option<NextInstant> {
    let after = start.map_or(after, |start| after.max(start.plus_ms(-1)));
    let firing = calendar::next_after(pattern, &zone.rules, policies, after.timestamp())?;
    let due = Time::from(firing.instant);
    let jitter_ms = jitter.delay_ms(Calendar { pattern, zone }, policies, &firing);
    end.is_none_or(|end| due <= end).then(|| NextInstant { nominal: firing.nominal.into(), due, jitter_ms })
}

/// An instant, and whether it opens (P16).
pub(super) struct JudgedInstant {
    pub nominal: Nominal,
    pub due: Time,
    /// When it opens, with its jitter.
    pub opens: Time,
    pub verdict: Result<OpeningCause, UnopenedReason>,
}

/// Collects instants that do not open into ranges. So an outage of hours takes a few bytes.
#[derive(Default)]
pub(super) struct ExplainedRanges {
    pub ranges: Vec<ExplainedRange>,
    /// The last instant of the last range; `None` if the next instant begins a new range.
    last: Option<Nominal>,
}

impl ExplainedRanges {
    /// Adds one explained instant. It extends the last range if it follows its last instant and has the same reason;
    /// otherwise it begins a new range. Names that go back, when the clocks go back, begin a new range.
    pub fn add(&mut self, nominal: Nominal, reason: UnopenedReason) {
        let step_ms = self.last.as_ref().and_then(|last| distance_ms(last, &nominal)).filter(|ms| *ms > 0);
        match (self.ranges.last_mut(), step_ms) {
            (Some(range), Some(step_ms)) if range.reason == reason => range.instants.extend(step_ms, 1),
            _ => self.ranges.push(ExplainedRange { first: nominal.clone(), instants: InstantRange::default(), reason }),
        }
        self.last = Some(nominal);
    }

    pub fn end_range(&mut self) {
        self.last = None;
    }
}
