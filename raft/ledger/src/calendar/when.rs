//! When a schedule fires, as stored in the ledger: plain data that can be read without a calendar library.
//! [`Pattern::compile`](super::Pattern::compile) checks it once.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Weekday;
use serde::{Deserialize, Serialize};

use super::PatternError;

/// When a schedule fires, as the user gave it. Civil times are in the schedule's zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum When {
    /// At a single instant.
    At {
        /// The instant, in milliseconds since the Unix epoch.
        instant_ms: i64,
    },
    /// At `anchor`, and then after each `period`; never before `anchor`. It is elapsed time, so clock changes do not
    /// matter.
    Every {
        /// Period in milliseconds: one second to ten years.
        period_ms: u64,
        /// First instant, in milliseconds since the Unix epoch.
        anchor_ms: i64,
    },
    /// At one time of day on some weekdays.
    Daily {
        /// Hour, 0 to 23.
        hour: u8,
        /// Minute, 0 to 59.
        minute: u8,
        /// Weekdays; at least one.
        weekdays: Weekdays,
    },
    /// A cron expression of five fields, or a nickname such as `@daily`.
    Cron {
        /// The expression, as the user wrote it.
        expression: Arc<str>,
    },
    /// A cron expression that contains `H`; made by [`When::cron`].
    Hashed {
        /// The expression, as the user wrote it.
        written: Arc<str>,
        /// The expression with the values of the schedule's name: five fields without `H`.
        expression: Arc<str>,
    },
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::At { instant_ms } => match Timestamp::from_millisecond(*instant_ms) {
                Ok(instant) => write!(f, "at {instant}"),
                Err(_) => write!(f, "at {instant_ms} ms"),
            },
            When::Every { period_ms, .. } => {
                write!(f, "every {:?}", std::time::Duration::from_millis(*period_ms))
            }
            When::Daily { hour, minute, weekdays } => {
                write!(f, "daily {hour:02}:{minute:02} {weekdays}")
            }
            When::Cron { expression } => write!(f, "cron {expression}"),
            When::Hashed { written, expression } => write!(f, "cron {written} ({expression})"),
        }
    }
}

/// A set of weekdays. Stored as one byte: bit 0 is Monday, bit 6 is Sunday.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Weekdays(u8);

const ALL_BITS: u8 = 0b111_1111;

/// Three-letter names, Monday first. The position in this list is the bit.
const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Weekdays {
    /// All seven days.
    pub const EVERY_DAY: Weekdays = Weekdays(ALL_BITS);

    /// Returns the set of these days. The set of an empty list is empty, which no pattern accepts.
    pub fn of(days: &[Weekday]) -> Weekdays {
        Weekdays(days.iter().fold(0, |bits, day| bits | 1 << day.to_monday_zero_offset()))
    }

    /// True if the set has no day.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Names of its days, Monday first.
    pub(super) fn names(self) -> Vec<&'static str> {
        let named = NAMES.iter().enumerate();
        named.filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name).collect()
    }
}

impl TryFrom<u8> for Weekdays {
    type Error = PatternError;

    /// Rejects the eighth bit, which is not a day.
    fn try_from(bits: u8) -> Result<Weekdays, PatternError> {
        if bits & !ALL_BITS == 0 {
            Ok(Weekdays(bits))
        } else {
            Err(PatternError::UnknownWeekday { text: format!("{bits:#010b}") })
        }
    }
}

impl From<Weekdays> for u8 {
    fn from(days: Weekdays) -> u8 {
        days.0
    }
}

impl FromStr for Weekdays {
    type Err = PatternError;

    /// Parses `mon-fri`, `sat,sun` or `fri-mon` in any case. Ranges may pass the end of the week.
    fn from_str(text: &str) -> Result<Weekdays, PatternError> {
        let mut bits = 0;
        for item in text.split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last) = (weekday_number(first)?, weekday_number(last)?);
            let length = (last + 7 - first) % 7;
            bits |= (0..=length).fold(0, |bits, step| bits | 1 << ((first + step) % 7));
        }
        Ok(Weekdays(bits))
    }
}

/// Position of a name in the week; Monday is 0.
fn weekday_number(name: &str) -> Result<usize, PatternError> {
    let wanted = name.trim();
    NAMES
        .iter()
        .position(|known| known.eq_ignore_ascii_case(wanted))
        .ok_or_else(|| PatternError::UnknownWeekday { text: wanted.to_string() })
}

impl fmt::Display for Weekdays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Weekdays::EVERY_DAY => f.write_str("every day"),
            days => f.write_str(&days.names().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weekdays_read_back_what_they_print() {
        for (text, printed) in
            [("mon-fri", "mon,tue,wed,thu,fri"), ("Sat,SUN", "sat,sun"), ("fri-mon", "mon,fri,sat,sun"), ("wed", "wed")]
        {
            let days: Weekdays = text.parse().unwrap();
            assert_eq!(days.to_string(), printed);
            assert_eq!(printed.parse(), Ok(days));
        }
        assert_eq!("mon-sun".parse(), Ok(Weekdays::EVERY_DAY));
        for text in ["", "monday", "mon-", "1", "mon,,tue"] {
            assert!(text.parse::<Weekdays>().is_err(), "{text}");
        }
    }

    #[test]
    fn weekdays_know_their_days() {
        let days = Weekdays::of(&[Weekday::Monday, Weekday::Sunday]);
        assert_eq!(days.names(), ["mon", "sun"]);
        assert!(!days.is_empty());
        assert!(Weekdays::of(&[]).is_empty());
        assert!(Weekdays::try_from(0x80).is_err());
    }
}
