//! An audience made of a number: what a trial of speed and memory needs, on any cluster and without a list.
//!
//! The same recipe gives the same recipients on every node and in every build, byte for byte. Their addresses are
//! under `.invalid` (RFC 2606), so that no email to one of them arrives, whatever the relay.

use std::ops::Range;

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::Recipient;

use super::file::{BLOCK, encode, encode_blocks};

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
        self.numbers(number).map(|number| recipient(self, number)).collect()
    }

    /// The bytes of a part, of which no more than a block of recipients are made at once.
    pub fn encoded(&self, number: u32) -> Vec<u8> {
        let numbers = self.numbers(number);
        let (rows, end) = (numbers.len() as u32, numbers.end);
        let blocks = numbers.step_by(usize::from(BLOCK)).map(|first| {
            let last = end.min(first + u32::from(BLOCK));
            (first..last).map(|number| recipient(self, number)).collect::<Vec<_>>()
        });
        encode_blocks(rows, blocks)
    }

    /// Bytes of its largest part at most, without making it: every recipient has as many.
    pub fn part_bytes(&self) -> u64 {
        let of = |rows: u32| encode(&(0..rows).map(|number| recipient(self, number)).collect::<Vec<_>>()).len() as u64;
        let (alone, rows) = (of(1), u64::from(self.rows.min(CHUNK)));
        // Each block has a head, no larger than all of a part of one recipient but that one.
        let line = of(2) - alone;
        rows * line + rows.div_ceil(u64::from(BLOCK)) * (alone - line + 1)
    }

    fn numbers(&self, part: u32) -> Range<u32> {
        let first = part.saturating_mul(CHUNK).min(self.rows);
        first..self.rows.min(first.saturating_add(CHUNK))
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
