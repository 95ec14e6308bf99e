//! Parses and prints the arguments of a script: durations, sets of slots, names.
//!
//! Times in scripts count from the script's first instant: `10s`, `1m30s`, `2h`, `4d`, `500ms`.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Argument, Command};
use reveille_ledger::bitmap::Bitmap;

pub type Parsed<T> = Result<T, Box<dyn Error>>;

/// The arguments of one command; an unused argument is an error.
pub struct Words<'a> {
    positional: Vec<&'a str>,
    keyed: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    pub fn of(command: &'a Command) -> Words<'a> {
        let mut words = Words { positional: vec![], keyed: vec![] };
        for argument in &command.args {
            match argument {
                Argument::Positional(value) => words.positional.push(value),
                Argument::KeyValue(key, value) => words.keyed.push((key, value)),
                _ => {}
            }
        }
        words
    }

    pub fn none() -> Words<'a> {
        Words { positional: vec![], keyed: vec![] }
    }

    pub fn next(&mut self) -> Option<&'a str> {
        (!self.positional.is_empty()).then(|| self.positional.remove(0))
    }

    pub fn need(&mut self, what: &str) -> Parsed<&'a str> {
        self.next().ok_or_else(|| format!("missing: {what}").into())
    }

    pub fn rest(&mut self) -> Vec<&'a str> {
        std::mem::take(&mut self.positional)
    }

    /// All values of a key, in order.
    pub fn all(&mut self, key: &str) -> Vec<&'a str> {
        let (taken, left) = self.keyed.iter().partition(|(name, _)| *name == key);
        self.keyed = left;
        let taken: Vec<(&str, &str)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    pub fn key(&mut self, key: &str) -> Option<&'a str> {
        self.all(key).pop()
    }

    pub fn number<T: std::str::FromStr>(&mut self, key: &str, default: T) -> Parsed<T> {
        match self.key(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{key}: '{text}' is not a number").into()),
        }
    }

    pub fn ms(&mut self, key: &str) -> Parsed<Option<i64>> {
        self.key(key).map(milliseconds).transpose()
    }

    pub fn slots(&mut self, key: &str) -> Parsed<Bitmap> {
        self.key(key).map_or(Ok(Bitmap::new()), slots)
    }

    pub fn end(self) -> Parsed<()> {
        match (self.positional.first(), self.keyed.first()) {
            (Some(word), _) => Err(format!("unexpected argument '{word}'").into()),
            (_, Some((key, _))) => Err(format!("unexpected argument '{key}='").into()),
            _ => Ok(()),
        }
    }
}

/// `1m30s` in milliseconds; negative with a leading minus.
pub fn milliseconds(text: &str) -> Parsed<i64> {
    let (sign, body) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut whole = 0_i64;
    let mut rest = body;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| format!("'{text}' has no unit"))?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            other => return Err(format!("'{other}' is no unit of time").into()),
        };
        whole = whole.saturating_add(number.parse::<i64>()?.saturating_mul(scale));
        rest = tail;
    }
    Ok(sign * whole)
}

/// Parses `0-2,5` as a set.
pub fn slots(text: &str) -> Parsed<Bitmap> {
    let mut set = Bitmap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        for slot in first.parse::<u16>()?..=last.parse::<u16>()? {
            set.insert(slot);
        }
    }
    Ok(set)
}

/// Prints milliseconds as `+1m30s`.
pub fn offset(milliseconds: i64) -> String {
    let mut text = String::from(if milliseconds < 0 { "-" } else { "+" });
    let mut left = milliseconds.unsigned_abs();
    for (unit, scale) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if left >= scale {
            let _ = write!(text, "{}{unit}", left / scale);
            left %= scale;
        }
    }
    if text.len() == 1 { "+0s".to_owned() } else { text }
}

/// Prints sorted numbers as `0-2,5`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = vec![];
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}
