//! The accepts of a benchmark: counts by recipient, to find duplicates and missing emails, and instants by the sink's
//! clock, for rates and lateness.

use std::collections::HashMap;
use std::ops::Range;

use reveille_harness::measure::rounded;
use serde_json::{Value, json};

/// Time at the start of a run that a rate excludes.
const WARM_UP_MS: i64 = 2_000;
/// Length of the windows before and after a kill.
const BEFORE_US: i64 = 5_000_000;
const AFTER_US: i64 = 10_000_000;

/// The accepted emails. Instants are microseconds since 1970 UTC.
#[derive(Debug)]
pub struct Accepts {
    numbers: Numbers,
    /// Number of emails to each expected address, by the number of the address.
    counts: Vec<u8>,
    /// Number of emails that each address must get.
    expected: u8,
    /// Number of emails to other addresses.
    unexpected: u64,
    /// Instant of each email to an expected address, and the number of the address, in order of arrival.
    log: Vec<(i64, u32)>,
}

/// Maps an address to its number.
#[derive(Debug)]
enum Numbers {
    /// Addresses of the generated audience of this seed: `r00000017.s1@audience.invalid`.
    Generated(u64),
    /// Numbers by address.
    Listed(HashMap<String, u32>),
}

impl Accepts {
    /// Expects the addresses of the generated audience of this seed and size.
    pub fn of_generated(recipients: u32, seed: u64) -> Accepts {
        Accepts::new(recipients as usize, Numbers::Generated(seed))
    }

    /// Expects these addresses.
    pub fn of(addresses: impl Iterator<Item = String>) -> Accepts {
        let numbers: HashMap<String, u32> = addresses.zip(0..).collect();
        Accepts::new(numbers.len(), Numbers::Listed(numbers))
    }

    fn new(addresses: usize, numbers: Numbers) -> Accepts {
        Accepts { numbers, counts: vec![0; addresses], expected: 1, unexpected: 0, log: Vec::new() }
    }

    /// Sets the number of emails that each address must have received in total from now on. Counts stop at 255, so a
    /// larger number cannot be checked.
    pub fn set_expected(&mut self, emails: u8) {
        self.expected = emails;
    }

    /// Counts an email.
    pub fn record(&mut self, recipient: &str, at_us: i64) {
        match self.number_of(recipient).filter(|number| (*number as usize) < self.counts.len()) {
            Some(number) => {
                let count = &mut self.counts[number as usize];
                *count = count.saturating_add(1);
                self.log.push((at_us, number));
            }
            None => self.unexpected += 1,
        }
    }

    /// Returns true if an email to this address has arrived.
    pub fn has(&self, recipient: &str) -> bool {
        self.number_of(recipient).and_then(|number| self.counts.get(number as usize)).is_some_and(|count| *count > 0)
    }

    /// Returns the number of expected emails that have arrived.
    pub fn arrived(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count.min(&self.expected))).sum()
    }

    /// Returns the number of expected emails that have not arrived.
    pub fn missing(&self) -> u64 {
        self.counts.len() as u64 * u64::from(self.expected) - self.arrived()
    }

    /// Returns true if no address got more emails than expected, and no other address got an email.
    pub fn is_without_surplus(&self) -> bool {
        self.unexpected == 0 && self.duplicates() == 0
    }

    /// Returns true if each address got exactly the expected number of emails, and no other address got an email.
    pub fn is_exact(&self) -> bool {
        self.is_without_surplus() && self.missing() == 0
    }

    /// Returns the counts for a report.
    pub fn figures(&self) -> Value {
        json!({
            "arrived": self.arrived(),
            "duplicates": self.duplicates(),
            "missing": self.missing(),
            "unexplained": self.unexpected,
        })
    }

    /// Returns the number of emails so far.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Returns the sorted instants of all emails after the first `skipped` emails.
    pub fn instants_us(&self, skipped: usize) -> Vec<i64> {
        let mut instants: Vec<i64> = self.log.iter().skip(skipped).map(|(at_us, _)| *at_us).collect();
        instants.sort_unstable();
        instants
    }

    /// Returns the sorted instants of the first email to each of these addresses.
    pub fn firsts_us(&self, numbers: Range<u32>) -> Vec<i64> {
        let mut firsts: HashMap<u32, i64> = HashMap::new();
        for (at_us, number) in self.log.iter().filter(|(_, number)| numbers.contains(number)) {
            firsts.entry(*number).or_insert(*at_us);
        }
        let mut instants: Vec<i64> = firsts.into_values().collect();
        instants.sort_unstable();
        instants
    }

    /// Returns the number of emails above the expected number of their address.
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

/// Returns the emails per second after the first two seconds. `None`: the run is shorter.
pub fn rate(sorted_us: &[i64]) -> Option<f64> {
    let from_ms = sorted_us.first()? / 1_000 + WARM_UP_MS;
    let counted = sorted_us.len() - sorted_us.partition_point(|at_us| at_us / 1_000 < from_ms);
    let length_ms = sorted_us.last()? / 1_000 + 1 - from_ms;
    (length_ms > 0).then(|| counted as f64 * 1e3 / length_ms as f64)
}

/// Returns the emails per second between two instants. `None`: the second one is not later.
fn rate_between(sorted_us: &[i64], from_us: i64, until_us: i64) -> Option<f64> {
    let before = |instant_us: i64| sorted_us.partition_point(|at_us| *at_us < instant_us) as f64;
    (from_us < until_us).then(|| (before(until_us) - before(from_us)) * 1e6 / (until_us - from_us) as f64)
}

/// Returns the rate before an event, the rate from then until its end or the last email, and the ratio of both. The
/// first [`WARM_UP_MS`] of sending do not count. `None`: no email.
pub fn rates_around(sorted_us: &[i64], from_us: i64, until_us: i64) -> Option<Value> {
    let (begun_us, ended_us) = (sorted_us.first()? + WARM_UP_MS * 1_000, *sorted_us.last()?);
    let before = rate_between(sorted_us, begun_us, from_us);
    let meanwhile = rate_between(sorted_us, from_us, until_us.min(ended_us));
    Some(json!({
        "before": before.map(rounded),
        "meanwhile": meanwhile.map(rounded),
        "ratio": before.zip(meanwhile).map(|(before, meanwhile)| rounded(meanwhile / before)),
        // False: the last email was sent before the end, and the rates say nothing about the rest.
        "while_sending": until_us <= ended_us,
    }))
}

/// Returns the seconds of sending that a kill cost: the number of emails that are missing in the ten seconds after the
/// kill, divided by the rate of the five seconds before the kill. `None`: the run began or ended within these windows.
pub fn lost_seconds(sorted_us: &[i64], killed_us: i64) -> Option<f64> {
    let (from_us, until_us) = (killed_us - BEFORE_US, killed_us + AFTER_US);
    let is_within = *sorted_us.first()? <= from_us && until_us <= *sorted_us.last()?;
    let rate = rate_between(sorted_us, from_us, killed_us)?;
    let missing_share = 1.0 - rate_between(sorted_us, killed_us, until_us)? / rate;
    (is_within && rate > 0.0).then(|| rounded((missing_share * AFTER_US as f64 / 1e6).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_addresses_are_counted_by_number() {
        let mut accepts = Accepts::of_generated(2, 1);
        accepts.record("r00000000.s1@audience.invalid", 0);
        assert!(accepts.has("r00000000.s1@audience.invalid") && !accepts.has("r00000001.s1@audience.invalid"));
        accepts.record("r00000001.s1@audience.invalid", 0);
        assert!(accepts.is_exact());
        accepts.record("r00000001.s1@audience.invalid", 0);
        for unexpected in ["r00000002.s1@audience.invalid", "r00000001.s2@audience.invalid", "ann@example.net"] {
            accepts.record(unexpected, 0);
        }
        assert_eq!(accepts.figures(), json!({"arrived": 2, "duplicates": 1, "missing": 0, "unexplained": 3}));
    }

    #[test]
    fn second_email_does_not_replace_missing_one() {
        let mut accepts = Accepts::of(["a", "b", "c"].into_iter().map(str::to_owned));
        for (address, at_us) in [("a", 5), ("a", 7), ("b", 6)] {
            accepts.record(address, at_us);
        }
        assert_eq!((accepts.arrived(), accepts.missing(), accepts.duplicates()), (2, 1, 1));
        assert!(!accepts.is_exact() && !accepts.is_without_surplus());
        assert_eq!((accepts.firsts_us(0..2), accepts.firsts_us(1..3)), (vec![5, 6], vec![6]));
        assert_eq!((accepts.instants_us(0), accepts.instants_us(2)), (vec![5, 6, 7], vec![6]));
    }

    #[test]
    fn further_emails_are_missing_until_they_come() {
        let mut accepts = Accepts::of(["a", "b"].into_iter().map(str::to_owned));
        ["a", "b"].into_iter().for_each(|address| accepts.record(address, 0));
        assert!(accepts.is_exact());
        accepts.set_expected(2);
        assert_eq!((accepts.arrived(), accepts.missing()), (2, 2));
        ["b", "b", "a"].into_iter().for_each(|address| accepts.record(address, 0));
        assert_eq!((accepts.arrived(), accepts.missing(), accepts.duplicates()), (4, 0, 1));
    }

    /// Returns one accept for each millisecond, except in `quiet`.
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
