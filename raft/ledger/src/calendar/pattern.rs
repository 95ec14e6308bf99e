//! A [`When`] that was checked: what the resolver walks over. Whatever compiles here has at least one
//! occurrence in every 400 years of the calendar (or is a single instant), so a search always ends.

use croner::Cron;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::grammar::{self, Field};
use super::when::When;

/// The shortest period, in milliseconds: each firing costs a log entry.
const PERIOD_MIN_MS: u64 = 1_000;
/// The longest period, in milliseconds: ten years.
const PERIOD_MAX_MS: u64 = 10 * 366 * 24 * 3_600_000;

/// A compiled [`When`].
#[derive(Clone, Debug)]
pub struct Pattern {
    pub(super) rule: Rule,
}

/// The three ways to find a next instant.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    Once { instant: Timestamp },
    Interval { period: SignedDuration, anchor: Timestamp },
    Civil { cron: Box<Cron>, fixed: bool },
}

impl Pattern {
    /// Checks `when`, once and for all.
    ///
    /// # Errors
    /// A [`PatternError`] that says what is wrong, where, and what to write instead.
    pub fn compile(when: &When) -> Result<Pattern, PatternError> {
        let rule = match when {
            When::At { instant_ms } => Rule::Once { instant: instant(*instant_ms)? },
            When::Every { period_ms, anchor_ms } => {
                Rule::Interval { period: period(*period_ms)?, anchor: instant(*anchor_ms)? }
            }
            When::Daily { hour, minute, weekdays } => {
                if *hour > 23 || *minute > 59 {
                    return Err(PatternError::TimeOfDay { hour: *hour, minute: *minute });
                }
                if weekdays.is_empty() {
                    return Err(PatternError::NoWeekday);
                }
                civil(&format!("{minute} {hour} * * {}", weekdays.names().join(",")))?
            }
            When::Cron { expression } | When::Hashed { expression, .. } => civil(expression)?,
        };
        Ok(Pattern { rule })
    }

    /// Whether occurrences are named by civil date-time and fold (P7), and the policies apply.
    /// Otherwise they are named by their instant.
    pub fn is_fixed_time(&self) -> bool {
        matches!(self.rule, Rule::Civil { fixed: true, .. })
    }

    /// The distance between two occurrences of an interval.
    pub fn period_ms(&self) -> Option<i64> {
        match &self.rule {
            Rule::Interval { period, .. } => i64::try_from(period.as_millis()).ok(),
            Rule::Civil { .. } | Rule::Once { .. } => None,
        }
    }
}

fn civil(expression: &str) -> Result<Rule, PatternError> {
    let (cron, fixed) = grammar::read(expression)?;
    Ok(Rule::Civil { cron: Box::new(cron), fixed })
}

fn instant(instant_ms: i64) -> Result<Timestamp, PatternError> {
    Timestamp::from_millisecond(instant_ms).map_err(|_| PatternError::InstantOutOfRange { instant_ms })
}

fn period(period_ms: u64) -> Result<SignedDuration, PatternError> {
    match period_ms {
        0 => Err(PatternError::ZeroPeriod),
        PERIOD_MIN_MS..=PERIOD_MAX_MS => Ok(SignedDuration::from_millis(i64::try_from(period_ms).unwrap_or(i64::MAX))),
        _ => Err(PatternError::PeriodOutOfRange { period_ms }),
    }
}

/// Why a [`When`] is refused at creation. Deterministic: the same input is always refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Nothing but white space.
    #[error(
        "the cron expression is empty; give five fields (minute hour day-of-month month weekday), such as `0 9 * * mon-fri`, or a nickname such as @daily"
    )]
    Empty,
    /// Longer than any sensible expression.
    #[error("the cron expression has {bytes} bytes, more than {bytes_max}; split it into several schedules", bytes_max = grammar::EXPRESSION_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Fewer than five fields, or more than seven.
    #[error(
        "a cron expression has five fields (minute hour day-of-month month weekday), this one has {found}; write `*` for a field that does not matter"
    )]
    FieldCount {
        /// How many fields it has.
        found: usize,
    },
    /// Six fields: the first would be seconds.
    #[error(
        "seconds are not allowed: the expression has six fields; drop the first, or give a period instead of a cron expression"
    )]
    SecondsNotAllowed,
    /// A field for the year.
    #[error("years are not allowed: drop the year and give the schedule a start and an end, or a single instant")]
    YearsNotAllowed,
    /// A word after `@` that is no nickname.
    #[error("`{nickname}` is no nickname; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually")]
    UnknownNickname {
        /// As it was written.
        nickname: String,
    },
    /// A field that cannot be read.
    #[error("{field} field `{text}` (position {position}): {problem}; {hint}", hint = field.hint())]
    Syntax {
        /// Which of the five.
        field: Field,
        /// Where the field starts in the expression, counted from 1.
        position: usize,
        /// The field as it was written.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It can be read, but no date of the calendar matches.
    #[error(
        "`{expression}` never fires: no date matches its day and month; for the last day of each month write `L` as day of month"
    )]
    NeverFires {
        /// As it was written.
        expression: String,
    },
    /// A period of nothing.
    #[error("the period is zero; give at least one second")]
    ZeroPeriod,
    /// A period below a second or above ten years.
    #[error("a period of {period_ms} ms is out of range; give from one second to ten years")]
    PeriodOutOfRange {
        /// The period, in milliseconds.
        period_ms: u64,
    },
    /// A time of day that no clock shows.
    #[error("{hour:02}:{minute:02} is no time of day; give from 00:00 to 23:59")]
    TimeOfDay {
        /// The hour asked for.
        hour: u8,
        /// The minute asked for.
        minute: u8,
    },
    /// An empty set of weekdays.
    #[error("no weekday is chosen, so it never fires; give days such as mon-fri, or leave them out")]
    NoWeekday,
    /// A word that is no weekday.
    #[error("`{text}` is no weekday; use mon, tue, wed, thu, fri, sat, sun, lists and ranges")]
    UnknownWeekday {
        /// As it was written.
        text: String,
    },
    /// An instant outside the years -9999 to 9999.
    #[error("the instant {instant_ms} ms is out of range; give milliseconds since 1970-01-01T00:00Z")]
    InstantOutOfRange {
        /// Milliseconds since the Unix epoch.
        instant_ms: i64,
    },
}
