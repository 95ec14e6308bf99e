//! The accepts of a benchmark by the sink's clock: by recipient, to find duplicates and missing emails, and their instants,
//! for rates and lateness.

use std::collections::HashMap;
use std::ops::Range;

use reveille_harness::measure::rounded;
use serde_json::{Value, json};

/// The start of a run that a rate excludes.
const WARM_UP_MS: i64 = 2_000;
/// Windows before and after a kill.
const BEFORE_US: i64 = 5_000_000;
const AFTER_US: i64 = 10_000_000;

/// The accepted emails. Instants are microseconds since 1970 UTC.
#[derive(Debug)]
pub struct Accepts {
    numbers: Numbers,
    /// Emails of each expected address, by its number.
    counts: Vec<u8>,
    /// Emails that each address gets.
    expected: u8,
    /// Emails to addresses that are not expected.
    unexpected: u64,
    /// The instant of each email to an expected address, and the number of the address, in the order of arrival.
    log: Vec<(i64, u32)>,
}

/// The number of an address.
#[derive(Debug)]
enum Numbers {
    /// `r00000017.s1@audience.invalid` of this seed.
    Generated(u64),
    /// As listed.
    Listed(HashMap<String, u32>),
}

impl Accepts {
    /// The generated audience of this seed and size is expected.
    pub fn of_generated(recipients: u32, seed: u64) -> Accepts {
        Accepts::new(recipients as usize, Numbers::Generated(seed))
    }

    /// These addresses are expected.
    pub fn of(addresses: impl Iterator<Item = String>) -> Accepts {
        let numbers: HashMap<String, u32> = addresses.zip(0..).collect();
        Accepts::new(numbers.len(), Numbers::Listed(numbers))
    }

    fn new(addresses: usize, numbers: Numbers) -> Accepts {
        Accepts { numbers, counts: vec![0; addresses], expected: 1, unexpected: 0, log: Vec::new() }
    }

    /// From now on each address gets so many emails in all. 255 and more cannot be told apart.
    pub fn set_expected(&mut self, emails: u8) {
        self.expected = emails;
    }

    /// Counts an email.
    pub fn note(&mut self, recipient: &str, at_us: i64) {
        match self.number_of(recipient).filter(|number| (*number as usize) < self.counts.len()) {
            Some(number) => {
                let count = &mut self.counts[number as usize];
                *count = count.saturating_add(1);
                self.log.push((at_us, number));
            }
            None => self.unexpected += 1,
        }
    }

    /// Whether an email came to this address.
    pub fn has(&self, recipient: &str) -> bool {
        self.number_of(recipient).and_then(|number| self.counts.get(number as usize)).is_some_and(|count| *count > 0)
    }

    /// Expected emails that came.
    pub fn arrived(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count.min(&self.expected))).sum()
    }

    /// Expected emails that did not come.
    pub fn missing(&self) -> u64 {
        self.counts.len() as u64 * u64::from(self.expected) - self.arrived()
    }

    /// Whether no address got more than the expected emails, and no other address any.
    pub fn is_without_surplus(&self) -> bool {
        self.unexpected == 0 && self.duplicates() == 0
    }

    /// Whether each address got exactly the expected emails, and no other address any.
    pub fn is_exact(&self) -> bool {
        self.is_without_surplus() && self.missing() == 0
    }

    /// The counts, for a report.
    pub fn figures(&self) -> Value {
        json!({
            "arrived": self.arrived(),
            "duplicates": self.duplicates(),
            "missing": self.missing(),
            "unexplained": self.unexpected,
        })
    }

    /// Number of emails so far.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// The instants of all emails after the first `skipped`, sorted.
    pub fn instants_us(&self, skipped: usize) -> Vec<i64> {
        let mut instants: Vec<i64> = self.log.iter().skip(skipped).map(|(at_us, _)| *at_us).collect();
        instants.sort_unstable();
        instants
    }

    /// The instants of the first emails to these addresses, sorted.
    pub fn firsts_us(&self, numbers: Range<u32>) -> Vec<i64> {
        let mut firsts: HashMap<u32, i64> = HashMap::new();
        for (at_us, number) in self.log.iter().filter(|(_, number)| numbers.contains(number)) {
            firsts.entry(*number).or_insert(*at_us);
        }
        let mut instants: Vec<i64> = firsts.into_values().collect();
        instants.sort_unstable();
        instants
    }

    /// Emails beyond the expected ones of an address.
    fn duplicates(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.saturating_sub(self.expected))).sum()
    }

    fn number_of(&self, recipient: &str) -> Option<u32> {
        match &self.numbers {
            Numbers::Listed(numbers) => numbers.get(recipient).copied(),
            Numbers::Generated(seed) => {
                let (digits, rest) = recipient.strip_prefix('r')?.split_once('.')?;
                let audience = rest.strip_prefix('s')?.strip_suffix("@audience.invalid")?;
                (audience.parse() == Ok(*seed)).then(|| digits.parse().ok())?
            }
        }
    }
}

/// Emails a second after the first two seconds; `None` for a shorter run.
pub fn rate(sorted_us: &[i64]) -> Option<f64> {
    let from_ms = sorted_us.first()? / 1_000 + WARM_UP_MS;
    let counted = sorted_us.len() - sorted_us.partition_point(|at_us| at_us / 1_000 < from_ms);
    let length_ms = sorted_us.last()? / 1_000 + 1 - from_ms;
    (length_ms > 0).then(|| counted as f64 * 1e3 / length_ms as f64)
}

/// How many seconds of sending a kill cost: the emails that are missing in the ten seconds after it, divided by the rate of
/// the five seconds before it. `None` if the run began or ended within these.
pub fn lost_seconds(sorted_us: &[i64], killed_us: i64) -> Option<f64> {
    let (from_us, until_us) = (killed_us - BEFORE_US, killed_us + AFTER_US);
    let is_within = *sorted_us.first()? <= from_us && until_us <= *sorted_us.last()?;
    let before = |instant_us: i64| sorted_us.partition_point(|at_us| *at_us < instant_us) as f64;
    let rate = (before(killed_us) - before(from_us)) / BEFORE_US as f64;
    let missing = rate * AFTER_US as f64 - (before(until_us) - before(killed_us));
    (is_within && rate > 0.0).then(|| rounded((missing / rate / 1e6).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_addresses_are_counted_by_number() {
        let mut accepts = Accepts::of_generated(2, 1);
        accepts.note("r00000000.s1@audience.invalid", 0);
        assert!(accepts.has("r00000000.s1@audience.invalid") && !accepts.has("r00000001.s1@audience.invalid"));
        accepts.note("r00000001.s1@audience.invalid", 0);
        assert!(accepts.is_exact());
        accepts.note("r00000001.s1@audience.invalid", 0);
        for unexpected in ["r00000002.s1@audience.invalid", "r00000001.s2@audience.invalid", "ann@example.net"] {
            accepts.note(unexpected, 0);
        }
        assert_eq!(accepts.figures(), json!({"arrived": 2, "duplicates": 1, "missing": 0, "unexplained": 3}));
    }

    #[test]
    fn second_email_does_not_replace_missing_one() {
        let mut accepts = Accepts::of(["a", "b", "c"].into_iter().map(str::to_owned));
        for (address, at_us) in [("a", 5), ("a", 7), ("b", 6)] {
            accepts.note(address, at_us);
        }
        assert_eq!((accepts.arrived(), accepts.missing(), accepts.duplicates()), (2, 1, 1));
        assert!(!accepts.is_exact() && !accepts.is_without_surplus());
        assert_eq!((accepts.firsts_us(0..2), accepts.firsts_us(1..3)), (vec![5, 6], vec![6]));
        assert_eq!((accepts.instants_us(0), accepts.instants_us(2)), (vec![5, 6, 7], vec![6]));
    }

    #[test]
    fn further_emails_are_missing_until_they_come() {
        let mut accepts = Accepts::of(["a", "b"].into_iter().map(str::to_owned));
        ["a", "b"].into_iter().for_each(|address| accepts.note(address, 0));
        assert!(accepts.is_exact());
        accepts.set_expected(2);
        assert_eq!((accepts.arrived(), accepts.missing()), (2, 2));
        ["b", "b", "a"].into_iter().for_each(|address| accepts.note(address, 0));
        assert_eq!((accepts.arrived(), accepts.missing(), accepts.duplicates()), (4, 0, 1));
    }

    /// One accept a millisecond, except in `quiet`.
    fn steady(until_ms: i64, quiet: Range<i64>) -> Vec<i64> {
        (0..until_ms).filter(|ms| !quiet.contains(ms)).map(|ms| 7_000 + 1_000 * ms + ms % 1_000).collect()
    }

    #[test]
    fn rate_excludes_first_two_seconds() {
        assert_eq!(rate(&steady(4_000, 0..0)), Some(1_000.0));
        assert_eq!(rate(&steady(4_000, 2_100..2_200)), Some(950.0));
        assert_eq!(rate(&steady(4_000, 0..2_000)), None, "two seconds after the first accept, not after the start");
        assert_eq!((rate(&steady(2_000, 0..0)), rate(&[])), (None, None), "too short");
    }

    #[test]
    fn kill_costs_emails_that_were_not_sent() {
        let kill = 7_000 + 10_000_000;
        assert_eq!(lost_seconds(&steady(30_000, 10_001..12_001), kill), Some(2.0));
        let all = steady(30_000, 0..0);
        assert_eq!(lost_seconds(&all, kill), Some(0.0));
        assert_eq!(lost_seconds(&all, 25_000_000), None, "ended too early");
        assert_eq!(lost_seconds(&all, 1_000_000), None, "began too late");
    }
}
