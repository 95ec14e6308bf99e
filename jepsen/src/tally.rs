//! The judgement: whom the load named, held against what the sink recorded and what the ledger calls in doubt.
//!
//! The sink's record is the truth. Pure, so that it can be shown to reject bad histories.

use std::collections::{BTreeMap, BTreeSet};

use reveille_sink::Mails;

/// Mails of each address.
#[derive(Debug, Default)]
pub struct Arrivals(BTreeMap<String, u32>);

/// What became of the addresses that were expected, and what else came.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Addresses with a mail.
    pub arrived: u64,
    /// Mails beyond the first of an address (I1).
    pub duplicates: u64,
    /// Addresses with no mail that nobody calls in doubt (I4).
    pub lost: u64,
    /// Addresses that the ledger calls in doubt.
    pub in_doubt: u64,
    /// Those of them with a mail.
    pub in_doubt_arrived: u64,
    /// Mails to addresses that nobody was to write to.
    pub unexplained: u64,
}

impl Arrivals {
    /// All that a sink has in memory.
    pub fn of(mails: &Mails) -> Arrivals {
        Arrivals::counted(mails.iter().map(|(_, mail)| mail.recipient.as_str()))
    }

    fn counted<'a>(recipients: impl Iterator<Item = &'a str>) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for recipient in recipients {
            arrivals.note(recipient);
        }
        arrivals
    }

    /// A mail came. Answers how many that address has by now.
    pub fn note(&mut self, recipient: &str) -> u32 {
        let mails = self.0.entry(recipient.to_owned()).or_default();
        *mails += 1;
        *mails
    }

    /// Judges: each of `expected` arrived once, or is in doubt, and nobody else got anything. `expected` names
    /// each address once, and all that any mail may be for.
    pub fn judge(&self, expected: impl Iterator<Item = String>, doubts: &BTreeSet<String>) -> Tally {
        let mut tally = Tally::default();
        let mut explained = 0;
        for address in expected {
            let mails = self.0.get(&address).copied().unwrap_or(0);
            let in_doubt = doubts.contains(&address);
            explained += u64::from(mails);
            tally.arrived += u64::from(mails > 0);
            tally.duplicates += u64::from(mails.saturating_sub(1));
            tally.lost += u64::from(mails == 0 && !in_doubt);
            tally.in_doubt += u64::from(in_doubt);
            tally.in_doubt_arrived += u64::from(in_doubt && mails > 0);
        }
        let all: u64 = self.0.values().copied().map(u64::from).sum();
        tally.unexplained = all.saturating_sub(explained);
        tally
    }
}

/// Mails of a made audience, by the number in the address `r00000017.s1@audience.invalid`.
#[derive(Debug)]
pub struct Numbers {
    seen: Vec<bool>,
    /// Numbers with a mail.
    pub arrived: u64,
    /// Mails beyond the first of a number (I1).
    pub duplicates: u64,
    /// Mails to anybody else.
    pub unexplained: u64,
}

impl Numbers {
    /// Nobody has a mail yet.
    pub fn new(recipients: u32) -> Numbers {
        Numbers { seen: vec![false; recipients as usize], arrived: 0, duplicates: 0, unexplained: 0 }
    }

    /// A mail came.
    pub fn note(&mut self, recipient: &str, seed: u64) {
        match number_of(recipient, seed).and_then(|number| self.seen.get_mut(number)) {
            None => self.unexplained += 1,
            Some(seen) if *seen => self.duplicates += 1,
            Some(seen) => {
                *seen = true;
                self.arrived += 1;
            }
        }
    }

    /// Did this address get one?
    pub fn has(&self, recipient: &str, seed: u64) -> bool {
        number_of(recipient, seed).and_then(|number| self.seen.get(number)).is_some_and(|seen| *seen)
    }
}

/// The number in an address of the audience of this seed.
fn number_of(recipient: &str, seed: u64) -> Option<usize> {
    let (digits, rest) = recipient.strip_prefix('r')?.split_once('.')?;
    let of_seed = rest.strip_prefix('s')?.strip_suffix("@audience.invalid")?;
    (of_seed.parse() == Ok(seed)).then(|| digits.parse().ok())?
}

impl Tally {
    /// Nothing came twice, nobody is missing, and nobody got what was not for him.
    pub fn is_clean(&self) -> bool {
        self.duplicates == 0 && self.lost == 0 && self.unexplained == 0
    }
}

/// The epoch in a fence `group.epoch.index.place` (`X-Reveille-Fence`).
pub fn epoch_of(fence: &str) -> Option<u64> {
    let mut parts = fence.split('.').map(str::parse::<u64>);
    let (_group, epoch, _index, _place) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    epoch.ok().filter(|_| parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_who_is_missing_and_who_got_two() {
        let mut numbers = Numbers::new(2);
        numbers.note("r00000000.s1@audience.invalid", 1);
        assert!(numbers.has("r00000000.s1@audience.invalid", 1));
        assert!(!numbers.has("r00000001.s1@audience.invalid", 1), "it is missing");
        numbers.note("r00000001.s1@audience.invalid", 1);
        numbers.note("r00000001.s1@audience.invalid", 1);
        for stranger in ["r00000002.s1@audience.invalid", "r00000001.s2@audience.invalid", "ann@example.net"] {
            numbers.note(stranger, 1);
        }
        assert_eq!((numbers.arrived, numbers.duplicates, numbers.unexplained), (2, 1, 3));
    }

    fn judge(mails: &[&str], doubts: &[&str]) -> Tally {
        let expected = ["a", "b", "c"].into_iter().map(str::to_owned);
        let doubts = doubts.iter().map(|&address| address.to_owned()).collect();
        Arrivals::counted(mails.iter().copied()).judge(expected, &doubts)
    }

    #[test]
    fn once_each_is_clean_in_doubt_or_not() {
        assert_eq!(judge(&["c", "a", "b"], &[]), Tally { arrived: 3, ..Tally::default() });
        let doubted = judge(&["a", "b"], &["b", "c"]);
        assert_eq!(doubted, Tally { arrived: 2, in_doubt: 2, in_doubt_arrived: 1, ..Tally::default() });
        assert!(doubted.is_clean());
    }

    #[test]
    fn twice_is_a_duplicate_and_nothing_is_a_loss() {
        let tally = judge(&["a", "a", "a", "b"], &[]);
        assert_eq!(tally, Tally { arrived: 2, duplicates: 2, lost: 1, ..Tally::default() });
        assert!(!tally.is_clean());
        assert!(!judge(&["a", "b", "c", "c"], &["c"]).is_clean(), "doubt excuses no duplicate");
    }

    #[test]
    fn mails_to_others_prove_nothing_and_are_not_clean() {
        let tally = judge(&["a", "b", "z", "z"], &[]);
        assert_eq!(tally, Tally { arrived: 2, lost: 1, unexplained: 2, ..Tally::default() });
        assert!(!judge(&["a", "b", "c", "z"], &[]).is_clean());
    }

    #[test]
    fn a_fence_names_its_epoch() {
        assert_eq!(epoch_of("1.9.1050.4"), Some(9));
        for bad in ["", "1.9", "1.9.1050.4.5", "1.x.1050.4"] {
            assert_eq!(epoch_of(bad), None, "{bad}");
        }
    }
}
