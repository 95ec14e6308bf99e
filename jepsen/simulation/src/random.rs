//! Chance from one seed: a stream for each concern, so that a new draw in one does not shift the others.

use std::ops::Range;

/// What chance decides. The number is part of the stream: never change it, or kept seeds become others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What the operating system would draw: hash keys, Raft's election times.
    System = 1,
    /// How long messages take, and which are lost.
    Network = 2,
    /// What a power cut leaves on a disk.
    Disk = 3,
    /// How far the clocks of nodes differ.
    Clock = 4,
    /// Schedules, recipients, what operators do.
    Workload = 5,
    /// Which fault comes when.
    Faults = 6,
    /// How the relay answers.
    Relay = 7,
    /// Which campaigns there are, and how they are launched.
    Campaigns = 8,
}

/// One stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct RandomStream(u64);

impl RandomStream {
    /// The stream of one concern.
    pub fn of(seed: u64, concern: Purpose) -> RandomStream {
        let mut random = RandomStream(seed ^ (concern as u64).wrapping_mul(0xD1B5_4A32_D192_ED03));
        // Seeds that lie side by side shall have nothing in common.
        random.next();
        random
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// True so often in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of these, which are not none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0..all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concerns_and_seeds_have_nothing_in_common() {
        let first = |seed, concern| RandomStream::of(seed, concern).next();
        assert_eq!(first(1, Purpose::Network), first(1, Purpose::Network));
        assert_ne!(first(1, Purpose::Network), first(1, Purpose::Disk));
        assert_ne!(first(1, Purpose::Network), first(2, Purpose::Network));
    }

    #[test]
    fn percentage_is_one() {
        let mut random = RandomStream::of(3, Purpose::Faults);
        let hits = (0..10_000).filter(|_| random.percent(30)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
    }
}
