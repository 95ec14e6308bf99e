//! A compiled [`When`], which the resolver searches. It has at least one occurrence in every 400 years of the calendar,
//! or is a single instant. So every search ends.

use croner::Cron;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::grammar::{self, Field};
use super::when::When;

/// Shortest period, in milliseconds: each firing costs a log entry.
const PERIOD_MS_MIN: u64 = 1_000;
/// Longest period, in milliseconds: ten years.
const PERIOD_MS_MAX: u64 = 10 * 366 * 24 * 3_600_000;

/// A compiled [`When`].
#[derive(Clone, Debug)]
pub struct Pattern {
    pub(super) rule: Rule,
}

/// The three kinds of patterns, by how the next instant is found. With `fixed`, occurrences are named by civil
/// date-time and fold (P7), and the policies for clock changes apply.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    Once { instant: Timestamp },
    Interval { period: SignedDuration, anchor: Timestamp },
    Civil { cron: Box<Cron>, fixed: bool },
}

impl Pattern {
    /// Checks and compiles `when`.
    ///
    /// # Errors
    /// Returns a [`PatternError`] that says what is wrong, where, and what to write instead.
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

    /// Time between two occurrences of an interval, in milliseconds; `None` for other patterns.
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
        PERIOD_MS_MIN..=PERIOD_MS_MAX => Ok(SignedDuration::from_millis(i64::try_from(period_ms).unwrap_or(i64::MAX))),
        _ => Err(PatternError::PeriodOutOfRange { period_ms }),
    }
}

/// Why a [`When`] is refused at creation. The same input always gives the same error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The expression is empty or blank.
    #[error(
        "the cron expression is empty; give five fields (minute hour day-of-month month weekday), such as `0 9 * * mon-fri`, or a nickname such as @daily"
    )]
    Empty,
    /// The expression is longer than any useful one.
    #[error("the cron expression has {bytes} bytes, more than {bytes_max}; split it into several schedules", bytes_max = grammar::EXPRESSION_BYTES_MAX)]
    TooLong {
        /// Length of the expression, in bytes.
        bytes: usize,
    },
    /// The expression has fewer than five fields, or more than seven.
    #[error(
        "a cron expression has five fields (minute hour day-of-month month weekday), this one has {found}; write `*` for a field that does not matter"
    )]
    FieldCount {
        /// Number of fields.
        found: usize,
    },
    /// The expression has six fields; the first would be seconds.
    #[error(
        "seconds are not allowed: the expression has six fields; drop the first, or give a period instead of a cron expression"
    )]
    SecondsNotAllowed,
    /// The expression has a field for the year.
    #[error("years are not allowed: drop the year and give the schedule a start and an end, or a single instant")]
    YearsNotAllowed,
    /// The word after `@` is not a nickname.
    #[error("`{nickname}` is not a nickname; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually")]
    UnknownNickname {
        /// The nickname, as the user wrote it.
        nickname: String,
    },
    /// A field is invalid.
    #[error("{field} field `{text}` (position {position}): {problem}; {hint}", hint = field.hint())]
    Syntax {
        /// The field.
        field: Field,
        /// Position of the field in the expression, in characters from 1.
        position: usize,
        /// Text of the field, as the user wrote it.
        text: String,
        /// Description of the problem.
        problem: String,
    },
    /// The expression is valid, but no date of the calendar matches it.
    #[error(
        "`{expression}` never fires: no date matches its day and month; for the last day of each month write `L` as day of month"
    )]
    NeverFires {
        /// The expression, as the user wrote it.
        expression: String,
    },
    /// The period is zero.
    #[error("the period is zero; give at least one second")]
    ZeroPeriod,
    /// The period is shorter than a second or longer than ten years.
    #[error("a period of {period_ms} ms is out of range; give from one second to ten years")]
    PeriodOutOfRange {
        /// The period, in milliseconds.
        period_ms: u64,
    },
    /// The time of day does not exist.
    #[error("{hour:02}:{minute:02} is not a time of day; give from 00:00 to 23:59")]
    TimeOfDay {
        /// The hour, as the user gave it.
        hour: u8,
        /// The minute, as the user gave it.
        minute: u8,
    },
    /// The set of weekdays is empty.
    #[error("no weekday is chosen, so it never fires; give days such as mon-fri, or leave them out")]
    NoWeekday,
    /// The word is not a weekday.
    #[error("`{text}` is not a weekday; use mon, tue, wed, thu, fri, sat, sun, lists and ranges")]
    UnknownWeekday {
        /// The word, as the user wrote it.
        text: String,
    },
    /// The instant is outside the years -9999 to 9999.
    #[error("the instant {instant_ms} ms is out of range; give milliseconds since 1970-01-01T00:00Z")]
    InstantOutOfRange {
        /// The instant, in milliseconds since the Unix epoch.
        instant_ms: i64,
    },
}
