//! When a schedule fires, as flags; and what they mean to the calendar and to the API.

use reveille_ledger::calendar::{self, Weekdays};
use reveille_proto::admin::v1;

use super::{ArgGroup, Args, SignedDuration, Timestamp, duration_to_wire, parse_duration, parse_instant, to_wire};

/// At most one of four ways to say when; [`needed`] where there must be one.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "When")]
#[command(group = ArgGroup::new("when").args(["cron", "daily", "every", "at"]))]
pub struct WhenArgs {
    /// Five fields (minute hour day-of-month month weekday), or @daily, @weekly …; `H` is a value drawn from
    /// tenant and name: 'H H(0-7) * * *', 'H/15 * * * *'
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// At one time of day
    #[arg(long, value_name = "HH:MM")]
    pub daily: Option<TimeOfDay>,
    /// With --daily: on these days only, such as mon-fri or sat,sun
    #[arg(long, value_name = "DAYS", conflicts_with_all = ["cron", "every", "at"])]
    pub days: Option<Weekdays>,
    /// Interval, such as 90m or 36h; clock changes do not matter
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub every: Option<SignedDuration>,
    /// With --every: one of its instants; the others are counted from it [default: --start-time, or
    /// 1970-01-01T00:00:00Z]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant, conflicts_with_all = ["cron", "daily", "at", "days"])]
    pub anchor_time: Option<Timestamp>,
    /// Once, such as 2026-12-24T09:00:00+01:00
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Option<Timestamp>,
}

/// Which of the instants are occurrences.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct SpanArgs {
    /// No instant before this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub start_time: Option<Timestamp>,
    /// No instant after this one
    #[arg(long, value_name = "INSTANT", help_heading = "When", value_parser = parse_instant)]
    pub end_time: Option<Timestamp>,
    /// Maximum number of occurrences, including those that have opened
    #[arg(long, value_name = "N", help_heading = "When", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_runs: Option<u32>,
}

/// The flags of which a new schedule needs one, and those that only belong to one of them. An update may give a part
/// alone: the schedule has the rest.
pub fn needed() -> [ArgGroup; 3] {
    [
        ArgGroup::new("when-needed").required(true).args(["cron", "daily", "every", "at"]),
        ArgGroup::new("days-of-daily").arg("days").requires("daily"),
        ArgGroup::new("anchor-time-of-every").arg("anchor_time").requires("every"),
    ]
}

/// A time of day, on a whole minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay {
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
}

impl std::str::FromStr for TimeOfDay {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeOfDay, String> {
        let wrong = || "a time of day is HH:MM, from 00:00 to 23:59".to_owned();
        let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
        let part = |digits: &str, below: u8| {
            let is_number = matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|number| is_number && *number < below).ok_or_else(wrong)
        };
        match minute.len() {
            2 => Ok(TimeOfDay { hour: part(hour, 24)?, minute: part(minute, 60)? }),
            _ => Err(wrong()),
        }
    }
}

impl WhenArgs {
    /// The flag that was given: where an error is.
    pub fn flag(&self) -> &'static str {
        match self {
            WhenArgs { cron: Some(_), .. } => "--cron",
            WhenArgs { daily: Some(_), .. } => "--daily",
            WhenArgs { every: Some(_), .. } => "--every",
            _ => "--at",
        }
    }

    /// For the calendar; a period is counted from `anchor` where --anchor-time does not say another. None when nothing
    /// was given, which the parser does not let through.
    pub fn to_calendar(&self, anchor: Timestamp) -> Option<calendar::When> {
        let anchor_ms = self.anchor_time.unwrap_or(anchor).as_millisecond();
        if let Some(expression) = &self.cron {
            return Some(calendar::When::Cron { expression: expression.as_str().into() });
        }
        if let Some(TimeOfDay { hour, minute }) = self.daily {
            return Some(calendar::When::Daily { hour, minute, weekdays: self.days.unwrap_or(Weekdays::EVERY_DAY) });
        }
        if let Some(period) = self.every {
            let period_ms = u64::try_from(period.as_millis()).unwrap_or_default();
            return Some(calendar::When::Every { period_ms, anchor_ms });
        }
        self.at.map(|instant| calendar::When::At { instant_ms: instant.as_millisecond() })
    }

    /// For the API.
    pub fn to_wire(&self) -> v1::When {
        use v1::when::Pattern;
        let daily = (self.daily.is_some() || self.days.is_some()).then(|| {
            let (hour, minute) = self.daily.map(|TimeOfDay { hour, minute }| (hour, minute)).unwrap_or_default();
            let days = self.days.filter(|days| *days != Weekdays::EVERY_DAY);
            let days = days.map(|days| days.to_string()).unwrap_or_default();
            Pattern::Daily(v1::Daily { hour: hour.into(), minute: minute.into(), days })
        });
        let every = (self.every.is_some() || self.anchor_time.is_some()).then(|| {
            Pattern::Every(v1::Every {
                period: self.every.map(duration_to_wire),
                anchor_time: self.anchor_time.map(to_wire),
            })
        });
        let cron = self.cron.clone().map(Pattern::Cron);
        let at = self.at.map(|instant| Pattern::At(to_wire(instant)));
        v1::When { pattern: cron.or(daily).or(every).or(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_is_hours_and_minutes() {
        assert_eq!("09:05".parse(), Ok(TimeOfDay { hour: 9, minute: 5 }));
        assert_eq!("9:05".parse(), Ok(TimeOfDay { hour: 9, minute: 5 }));
        assert_eq!("23:59".parse(), Ok(TimeOfDay { hour: 23, minute: 59 }));
        for text in ["", "9", "24:00", "09:60", "9:5", "+9:05", "009:05", "09:05:00", "ab:cd"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
    }
}
