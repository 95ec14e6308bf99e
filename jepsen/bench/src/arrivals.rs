//! Counts emails by recipient, with a byte for each expected recipient.

use std::collections::HashMap;

/// How many emails came to each expected address, by its number.
#[derive(Debug)]
pub struct Arrivals {
    counts: Vec<u8>,
    numbers: Numbers,
    /// Emails that each address gets.
    expected: u8,
    /// Emails to addresses that are not expected.
    pub unexpected: u64,
}

/// The number of an address.
#[derive(Debug)]
enum Numbers {
    /// `r00000017.s1@audience.invalid` of this seed.
    Generated(u64),
    /// As listed.
    Listed(HashMap<String, usize>),
}

impl Arrivals {
    /// The generated audience of this seed and size is expected.
    pub fn of_generated(recipients: u32, seed: u64) -> Arrivals {
        Arrivals { counts: vec![0; recipients as usize], numbers: Numbers::Generated(seed), expected: 1, unexpected: 0 }
    }

    /// These addresses are expected.
    pub fn of(addresses: impl Iterator<Item = String>) -> Arrivals {
        let numbers: HashMap<String, usize> =
            addresses.enumerate().map(|(number, address)| (address, number)).collect();
        Arrivals { counts: vec![0; numbers.len()], numbers: Numbers::Listed(numbers), expected: 1, unexpected: 0 }
    }

    /// From now on each address gets so many emails in all. 255 and more cannot be told apart.
    pub fn set_expected(&mut self, emails: u8) {
        self.expected = emails;
    }

    /// Counts an email. Returns whether its address is expected, and had too few.
    pub fn note(&mut self, recipient: &str) -> bool {
        match self.number_of(recipient).and_then(|number| self.counts.get_mut(number)) {
            Some(count) => {
                *count = count.saturating_add(1);
                *count <= self.expected
            }
            None => {
                self.unexpected += 1;
                false
            }
        }
    }

    /// Whether an email came to this address.
    pub fn has(&self, recipient: &str) -> bool {
        self.number_of(recipient).and_then(|number| self.counts.get(number)).is_some_and(|count| *count > 0)
    }

    /// Expected emails that came.
    pub fn arrived(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count.min(&self.expected))).sum()
    }

    /// Expected emails that did not come.
    pub fn missing(&self) -> u64 {
        self.counts.len() as u64 * u64::from(self.expected) - self.arrived()
    }

    /// Emails beyond the expected ones of an address.
    pub fn duplicates(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.saturating_sub(self.expected))).sum()
    }

    /// Whether each address got exactly the expected emails, and no other address any.
    pub fn is_exact(&self) -> bool {
        self.unexpected == 0 && self.counts.iter().all(|count| *count == self.expected)
    }

    fn number_of(&self, recipient: &str) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_addresses_are_counted_by_number() {
        let mut arrivals = Arrivals::of_generated(2, 1);
        assert!(arrivals.note("r00000000.s1@audience.invalid"));
        assert!(arrivals.has("r00000000.s1@audience.invalid") && !arrivals.has("r00000001.s1@audience.invalid"));
        assert!(arrivals.note("r00000001.s1@audience.invalid") && arrivals.is_exact());
        assert!(!arrivals.note("r00000001.s1@audience.invalid"));
        for unexpected in ["r00000002.s1@audience.invalid", "r00000001.s2@audience.invalid", "ann@example.net"] {
            assert!(!arrivals.note(unexpected));
        }
        assert_eq!((arrivals.arrived(), arrivals.duplicates(), arrivals.unexpected), (2, 1, 3));
    }

    #[test]
    fn second_email_does_not_replace_missing_one() {
        let mut arrivals = Arrivals::of(["a", "b", "c"].into_iter().map(str::to_owned));
        let firsts = ["a", "a", "b"].map(|address| arrivals.note(address));
        assert_eq!(firsts, [true, false, true]);
        assert_eq!((arrivals.arrived(), arrivals.missing(), arrivals.duplicates()), (2, 1, 1));
        assert!(!arrivals.is_exact());
    }

    #[test]
    fn further_emails_are_missing_until_they_come() {
        let mut arrivals = Arrivals::of(["a", "b"].into_iter().map(str::to_owned));
        assert!(arrivals.note("a") && arrivals.note("b") && arrivals.is_exact());
        arrivals.set_expected(2);
        assert_eq!((arrivals.arrived(), arrivals.missing()), (2, 2));
        assert_eq!(["b", "b", "a"].map(|address| arrivals.note(address)), [true, false, true]);
        assert_eq!((arrivals.arrived(), arrivals.missing(), arrivals.duplicates()), (4, 0, 1));
        assert!(!arrivals.is_exact());
    }
}
