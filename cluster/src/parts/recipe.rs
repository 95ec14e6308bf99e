//! An audience made of a number: what a trial of speed and memory needs, on any cluster and without a list.
//!
//! The same recipe gives the same recipients on every node and in every build, byte for byte. Their addresses are
//! under `.invalid` (RFC 2606), so that no mail to one of them reaches anybody, whatever the relay.

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::Recipient;

/// What an audience is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Tells one made audience from another.
    pub seed: u64,
    /// Its recipients.
    pub rows: u32,
    /// Names of their variables.
    pub columns: Vec<String>,
}

impl Recipe {
    /// Number of its parts.
    pub fn parts(&self) -> u32 {
        self.rows.div_ceil(CHUNK)
    }

    /// The recipients of a part.
    pub fn part(&self, number: u32) -> Vec<Recipient> {
        let first = number.saturating_mul(CHUNK);
        (first..self.rows.min(first.saturating_add(CHUNK))).map(|number| recipient(self, number)).collect()
    }
}

/// A recipient by number.
pub fn recipient(recipe: &Recipe, number: u32) -> Recipient {
    let address = format!("r{number:08}.s{}@audience.invalid", recipe.seed);
    let value = |(place, column): (u64, &String)| {
        let chance = mixed(recipe.seed ^ mixed(u64::from(number) << 8 | place));
        format!("{column} {:06x}", chance & 0xff_ffff)
    };
    let values = (0..).zip(&recipe.columns).map(value).collect();
    Recipient { key: address.clone(), address, values }
}

/// SplitMix64's finish: neighbouring numbers give unlike ones.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
