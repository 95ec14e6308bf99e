//! The cron grammar of Reveille: five fields and nicknames. The library croner parses them after a check.
//!
//! croner accepts more than is safe to promise: seconds and years, the name of a month in the weekday field (`JAN` as
//! 1, which is Monday), empty items of a list. So each field is checked first; croner handles numbers, ranges and
//! steps.
//!
//! The meaning is croner's: names in any case, `7` and `0` for Sunday, `L` (last day), `LW` (last weekday), `15W`
//! (weekday nearest to the 15th), `5L` (last Friday), `5#2` (second Friday), `?` as `*` in the two day fields. `+`
//! before the weekday field means day of month AND weekday. Without it, two restricted day fields mean OR, as in Vixie
//! cron. Only a plain `*` is unrestricted.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{DateTime, date};

use super::PatternError;

/// Longest expression, in bytes: it fits a list of all sixty minutes.
pub(super) const EXPRESSION_BYTES_MAX: usize = 512;

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

/// The Gregorian calendar repeats every 400 years, and croner stops at the year 5000. A pattern without a match from
/// this date on never matches.
const LAST_CYCLE: DateTime = date(4599, 12, 31).at(23, 59, 0, 0);

/// One of the five fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display(rename_all = "kebab-case")]
pub enum Field {
    /// The first field.
    Minute,
    /// The second field.
    Hour,
    /// The third field.
    DayOfMonth,
    /// The fourth field.
    Month,
    /// The fifth field.
    Weekday,
}

impl Field {
    /// All five fields, in the order in which they are written.
    pub(super) const ALL: [Field; 5] = [Field::Minute, Field::Hour, Field::DayOfMonth, Field::Month, Field::Weekday];

    /// Text for error messages that says what the field accepts.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Field::Minute => "it takes 0-59, lists `0,30`, ranges `0-29` and steps `*/15` or `5-59/15`",
            Field::Hour => "it takes 0-23, lists `9,17`, ranges `9-17` and steps `*/2` or `8-18/2`",
            Field::DayOfMonth => "it takes 1-31, lists, ranges, steps, `L` (last day), `LW` (last weekday) and `15W`",
            Field::Month => "it takes 1-12 or jan-dec, lists, ranges and steps",
            Field::Weekday => {
                "it takes 0-7 or sun-sat (0 and 7 are Sunday), lists, ranges that do not wrap, `5L` and `5#2`"
            }
        }
    }

    /// True if the field accepts this word: a number, `*`, or one of its names and modifiers.
    fn accepts(self, word: &str) -> bool {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if word == "*" || digits(word) {
            return true;
        }
        match self {
            Field::Minute | Field::Hour => false,
            Field::Month => MONTHS.contains(&word),
            Field::DayOfMonth => matches!(word, "L" | "LW") || word.strip_suffix('W').is_some_and(digits),
            Field::Weekday => {
                let day = word.strip_suffix('L').unwrap_or(word);
                digits(day) || WEEKDAYS.contains(&day)
            }
        }
    }
}

/// One field, as the user wrote it.
pub(super) struct Word {
    /// Position in the expression, in characters from 1.
    position: usize,
    /// Text of the field.
    pub text: String,
}

/// Parses `expression`. The flag is true for a pattern with fixed times: no `*`, `/` or `-` in minute and hour.
pub(super) fn read(expression: &str) -> Result<(Cron, bool), PatternError> {
    read_words(&split(expression)?, expression)
}

/// Splits `expression` into its five fields. A nickname is replaced by its fields.
pub(super) fn split(expression: &str) -> Result<[Word; 5], PatternError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(PatternError::TooLong { bytes: expression.len() });
    }
    five(words(expand(expression.trim())?.unwrap_or(expression)))
}

/// Like [`read`], for fields that were split from `expression`.
pub(super) fn read_words(words: &[Word; 5], expression: &str) -> Result<(Cron, bool), PatternError> {
    for (field, word) in Field::ALL.into_iter().zip(words) {
        check(field, word)?;
    }
    let cron =
        parse(&words.each_ref().map(|word| word.text.as_str())).map_err(|error| find_invalid_field(words, &error))?;
    if cron.find_next_occurrence(&LAST_CYCLE, false).is_err() {
        return Err(PatternError::NeverFires { expression: expression.trim().to_string() });
    }
    let fixed = words.iter().take(2).all(|word| !word.text.contains(['*', '/', '-']));
    Ok((cron, fixed))
}

/// The five fields of a nickname; `None` if the expression is not a nickname.
fn expand(expression: &str) -> Result<Option<&'static str>, PatternError> {
    if !expression.starts_with('@') {
        return Ok(None);
    }
    match expression.to_ascii_lowercase().as_str() {
        "@hourly" => Ok(Some("0 * * * *")),
        "@daily" | "@midnight" => Ok(Some("0 0 * * *")),
        "@weekly" => Ok(Some("0 0 * * 0")),
        "@monthly" => Ok(Some("0 0 1 * *")),
        "@yearly" | "@annually" => Ok(Some("0 0 1 1 *")),
        _ => Err(PatternError::UnknownNickname { nickname: expression.to_string() }),
    }
}

fn words(expression: &str) -> Vec<Word> {
    let mut position = 1;
    let mut words = Vec::new();
    for piece in expression.split(|c: char| c.is_ascii_whitespace()) {
        if !piece.is_empty() {
            words.push(Word { position, text: piece.to_string() });
        }
        position += piece.chars().count() + 1;
    }
    words
}

fn five(words: Vec<Word>) -> Result<[Word; 5], PatternError> {
    words.try_into().map_err(|words: Vec<Word>| match words.as_slice() {
        [] => PatternError::Empty,
        [.., last] if words.len() == 6 && names_years(&last.text) => PatternError::YearsNotAllowed,
        [_, _, _, _, _, _] => PatternError::SecondsNotAllowed,
        [_, _, _, _, _, _, _] => PatternError::YearsNotAllowed,
        _ => PatternError::FieldCount { found: words.len() },
    })
}

/// True if a sixth field is a year rather than a weekday after seconds.
fn names_years(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() == 4)
}

/// Accepts only fields that have the same meaning for Reveille, the reader and croner.
fn check(field: Field, word: &Word) -> Result<(), PatternError> {
    let text = word.text.to_ascii_uppercase();
    if matches!(field, Field::Weekday | Field::DayOfMonth) && text == "?" {
        return Ok(());
    }
    let listed = match field {
        Field::Weekday => text.strip_prefix('+').unwrap_or(&text),
        _ => &text,
    };
    for item in listed.split(',') {
        check_item(field, item).map_err(|problem| syntax(field, word, problem))?;
    }
    Ok(())
}

fn check_item(field: Field, item: &str) -> Result<(), String> {
    if item.is_empty() {
        return Err("an item of the list is empty".to_string());
    }
    if is_hashed(item) {
        return Err("`H` is drawn from a schedule's tenant and name, and there is no name here".to_string());
    }
    let (days, nth) = match item.split_once('#') {
        Some((days, nth)) if field == Field::Weekday => (days, Some(nth)),
        _ => (item, None),
    };
    let nth_is_known = nth.is_none_or(|nth| matches!(nth, "1" | "2" | "3" | "4" | "5" | "L"));
    let unknown = days.split(['-', '/']).find(|word| !field.accepts(word));
    match unknown {
        Some("") => Err("a number is missing".to_string()),
        Some(word) => Err(format!("`{word}` has no meaning here")),
        None if nth_is_known => Ok(()),
        None => Err("after `#` stands 1 to 5, or L".to_string()),
    }
}

fn parse(fields: &[&str; 5]) -> Result<Cron, CronError> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(&fields.join(" "))
}

/// Finds the invalid field, which croner does not report: it is the field that fails alone.
fn find_invalid_field(words: &[Word; 5], error: &CronError) -> PatternError {
    let alone = Field::ALL.into_iter().zip(words).enumerate().find_map(|(number, (field, word))| {
        let mut fields = ["*"; 5];
        *fields.get_mut(number)? = word.text.as_str();
        parse(&fields).err().map(|error| syntax(field, word, plain(&error)))
    });
    let [minute, ..] = words;
    alone.unwrap_or_else(|| syntax(Field::Minute, minute, plain(error)))
}

pub(super) fn syntax(field: Field, word: &Word, problem: String) -> PatternError {
    PatternError::Syntax { field, position: word.position, text: word.text.clone(), problem }
}

/// Returns croner's message in the form of the middle of a sentence.
fn plain(error: &CronError) -> String {
    let text = match error {
        CronError::ComponentError(text) | CronError::InvalidPattern(text) | CronError::IllegalCharacters(text) => {
            text.clone()
        }
        other => other.to_string(),
    };
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// True if this list item asks for a value from the hash. No name of a month or a weekday begins with `H`.
pub(super) fn is_hashed(item: &str) -> bool {
    item.starts_with(['H', 'h'])
}
