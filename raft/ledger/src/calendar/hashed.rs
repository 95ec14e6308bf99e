//! `H` in a cron field: a value that is a hash of the schedule's tenant and name. It spreads schedules, so that hourly
//! or nightly ones do not all begin in the same minute. The same name has the same value on every node and after a
//! restart.
//!
//! The forms are those of Jenkins: `H`, `H(0-7)`, `H/15` and `H(0-29)/10`, also as items of a list. `H` alone is any
//! value of its field; for a day of the month it is 1 to 28. With a step, the hash selects the first value. `H` is
//! replaced before the expression is parsed, and the result is stored. So a later release with another hash moves no
//! schedule.

use super::PatternError;
use super::grammar::{Field, Word, is_hashed, read_words, split, syntax};
use super::when::When;

/// Key derivation context: separates these hashes from other uses of the same names.
const CONTEXT: &str = "reveille 2026 calendar cron hash v1";

/// Forms of `H`, for error messages.
const FORMS: &str = "`H` stands alone, with a range as H(0-7), with a step as H/15, or with both as H(0-29)/10";

impl When {
    /// Makes a cron expression for the schedule of this tenant and name. Each `H` is replaced by its value.
    ///
    /// # Errors
    /// As [`Pattern::compile`](super::Pattern::compile). Positions in errors are those of the expression as written.
    pub fn cron(expression: &str, tenant: &str, name: &str) -> Result<When, PatternError> {
        let mut words = split(expression)?;
        if !words.iter().any(|word| items(&word.text).any(is_hashed)) {
            return Ok(When::Cron { expression: expression.into() });
        }
        for (field, word) in Field::ALL.into_iter().zip(&mut words) {
            let text = write_out(field, &word.text, (tenant, name)).map_err(|problem| syntax(field, word, problem))?;
            word.text = text;
        }
        let written_out = words.each_ref().map(|word: &Word| word.text.as_str()).join(" ");
        read_words(&words, expression)?;
        Ok(When::Hashed { written: expression.into(), expression: written_out.into() })
    }
}

/// Items of a field's list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.strip_prefix('+').unwrap_or(text).split(',')
}

fn write_out(field: Field, text: &str, names: (&str, &str)) -> Result<String, String> {
    let plus = if text.starts_with('+') { "+" } else { "" };
    let write = |(number, item)| match is_hashed(item) {
        true => item_of(field, item, |below| draw(names, field, number, below)),
        false => Ok(item.to_owned()),
    };
    let items: Result<Vec<String>, String> = items(text).enumerate().map(write).collect();
    Ok(format!("{plus}{}", items?.join(",")))
}

/// Replaces one item by a value, or by a range whose first value is within the first step.
fn item_of(field: Field, item: &str, draw: impl Fn(u32) -> u32) -> Result<String, String> {
    let forms = || format!("`{item}` has no meaning; {FORMS}");
    let rest = item.get(1..).unwrap_or_default();
    let (range, step) = match rest.split_once('/') {
        Some((range, step)) => (range, Some(number(step).ok_or_else(forms)?)),
        None => (rest, None),
    };
    let (default, widest) = bounds(field);
    let (first, last) = match range {
        "" => default,
        _ => {
            let inside = range.strip_prefix('(').and_then(|range| range.strip_suffix(')')).ok_or_else(forms)?;
            let (first, last) = inside.split_once('-').ok_or_else(forms)?;
            (number(first).ok_or_else(forms)?, number(last).ok_or_else(forms)?)
        }
    };
    if first > last || first < widest.0 || last > widest.1 {
        return Err(format!("`{item}`: a range goes from low to high, within {} to {}", widest.0, widest.1));
    }
    let values = last - first + 1;
    match step {
        None => Ok((first + draw(values)).to_string()),
        Some(0) => Err(format!("`{item}`: a step of 0 has no next value")),
        Some(step) if step > values => {
            let written = item.split('/').next().unwrap_or(item);
            Err(format!("`{item}`: a step of {step} is more than the {values} values; write `{written}`"))
        }
        Some(step) => match first + draw(step) {
            only if only + step > last => Ok(only.to_string()),
            start => Ok(format!("{start}-{last}/{step}")),
        },
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// First and last value of a plain `H`, and the limits of an explicit range.
fn bounds(field: Field) -> ((u32, u32), (u32, u32)) {
    match field {
        Field::Minute => ((0, 59), (0, 59)),
        Field::Hour => ((0, 23), (0, 23)),
        // Every month has these days.
        Field::DayOfMonth => ((1, 28), (1, 31)),
        Field::Month => ((1, 12), (1, 12)),
        Field::Weekday => ((0, 6), (0, 6)),
    }
}

/// Returns a number below `below`, uniform over names. Each item of each field gets its own number.
fn draw((tenant, name): (&str, &str), field: Field, number: usize, below: u32) -> u32 {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for text in [tenant, name] {
        hasher.update(&(text.len() as u64).to_be_bytes()).update(text.as_bytes());
    }
    hasher.update(&[field as u8]).update(&(number as u64).to_be_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    let drawn = (u128::from(u64::from_be_bytes(bytes)) * u128::from(below)) >> 64;
    u32::try_from(drawn).unwrap_or_default()
}
