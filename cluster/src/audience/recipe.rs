//! An audience generated from a number, for tests of speed and memory on any cluster without a list.
//!
//! The same recipe gives the same recipients on every node and in every build, byte for byte. Their addresses are under
//! `.invalid` (RFC 2606), so that no email to them is delivered, whatever the relay.

use std::ops::Range;

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::Recipient;

use super::file::{BLOCK, encode, encode_blocks};

/// Parameters of a generated audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Seed that distinguishes generated audiences.
    pub seed: u64,
    /// Number of its recipients.
    pub rows: u32,
    /// Names of their variables.
    pub columns: Vec<String>,
}

impl Recipe {
    /// Returns the number of its parts.
    pub fn parts(&self) -> u32 {
        self.rows.div_ceil(CHUNK)
    }

    /// Returns the recipients of a part.
    pub fn part(&self, number: u32) -> Vec<Recipient> {
        self.numbers(number).map(|number| recipient(self, number)).collect()
    }

    /// Returns the bytes of a part. Only one block of recipients is in memory at a time.
    pub fn encoded(&self, number: u32) -> Vec<u8> {
        let numbers = self.numbers(number);
        let (rows, end) = (numbers.len() as u32, numbers.end);
        let blocks = numbers.step_by(usize::from(BLOCK)).map(|first| {
            let last = end.min(first + u32::from(BLOCK));
            (first..last).map(|number| recipient(self, number)).collect::<Vec<_>>()
        });
        encode_blocks(rows, blocks)
    }

    /// Returns an upper bound for the bytes of its largest part, without making it. All recipients have the same size.
    pub fn part_bytes(&self) -> u64 {
        let of = |rows: u32| encode(&(0..rows).map(|number| recipient(self, number)).collect::<Vec<_>>()).len() as u64;
        let (alone, rows) = (of(1), u64::from(self.rows.min(CHUNK)));
        // Each block has an entry in the head. It is not larger than a part of one recipient without that recipient.
        let line = of(2) - alone;
        rows * line + rows.div_ceil(u64::from(BLOCK)) * (alone - line + 1)
    }

    fn numbers(&self, part: u32) -> Range<u32> {
        let first = part.saturating_mul(CHUNK).min(self.rows);
        first..self.rows.min(first.saturating_add(CHUNK))
    }
}

/// Returns the recipient with this number.
pub fn recipient(recipe: &Recipe, number: u32) -> Recipient {
    let address = format!("r{number:08}.s{}@audience.invalid", recipe.seed);
    let value = |(place, column): (u64, &String)| {
        let chance = mixed(recipe.seed ^ mixed(u64::from(number) << 8 | place));
        format!("{column} {:06x}", chance & 0xff_ffff)
    };
    let values = (0..).zip(&recipe.columns).map(value).collect();
    Recipient { key: address.clone(), address, values }
}

/// Final step of SplitMix64: similar numbers give very different results.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
