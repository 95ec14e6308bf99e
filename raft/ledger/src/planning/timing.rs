//! Timing of a schedule: a pattern with its zone, the jitter, and the first instant after a time.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::calendar::{self, Firing, Pattern};
use crate::model::{NextInstant, OccurrenceName, Schedule, Time};

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

impl From<calendar::CalendarName> for OccurrenceName {
    fn from(occurrence: calendar::CalendarName) -> OccurrenceName {
        match occurrence {
            calendar::CalendarName::Instant(instant) => OccurrenceName::Instant(instant.into()),
            calendar::CalendarName::Civil { .. } => OccurrenceName::Civil {
                civil_ms: occurrence.civil_ms().unwrap_or_default(),
                fold: (occurrence.fold() == calendar::Fold::Second).into(),
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
pub fn first_instant_after(
    calendar: Calendar<'_>,
    policies: &calendar::DstPolicies,
    after: Time,
    (start, end): (Option<Time>, Option<Time>),
    jitter: Jitter<'_>,
) -> Option<NextInstant> {
    let after = start.map_or(after, |start| after.max(start.plus_ms(-1)));
    let firing = calendar::next_after(calendar.pattern, &calendar.zone.rules, policies, after.timestamp())?;
    let due = Time::from(firing.instant);
    let jitter_ms = jitter.delay_ms(calendar, policies, &firing);
    end.is_none_or(|end| due <= end).then(|| NextInstant { occurrence: firing.occurrence.into(), due, jitter_ms })
}
