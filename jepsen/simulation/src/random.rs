//! Random numbers from one seed. Each purpose has its own stream, so that a new draw in one stream does not shift the
//! other streams.

use std::ops::Range;

/// The purpose of a stream. Its number is part of the stream: if the number changes, kept seeds no longer repeat their
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Random numbers of the operating system: hash keys, Raft's election times.
    System = 1,
    /// Delays and losses of messages.
    Network = 2,
    /// Bytes that a power cut leaves on a disk.
    Disk = 3,
    /// Differences between the clocks of nodes.
    Clock = 4,
    /// Schedules, recipients, operations.
    Workload = 5,
    /// Faults and their times.
    Faults = 6,
    /// Answers of the relay.
    Relay = 7,
    /// Campaigns and their launches.
    Campaigns = 8,
}

/// One stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct RandomStream(u64);

impl RandomStream {
    /// Returns the stream of one purpose.
    pub fn of(seed: u64, purpose: Purpose) -> RandomStream {
        let mut random = RandomStream(seed ^ (purpose as u64).wrapping_mul(0xD1B5_4A32_D192_ED03));
        // Makes the streams of consecutive seeds unrelated.
        random.next();
        random
    }

    /// Returns the next number of the stream.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in this range, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// Returns true with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// Returns one of the values of `all`, which must not be empty.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0..all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_seeds_have_nothing_in_common() {
        let first = |seed, purpose| RandomStream::of(seed, purpose).next();
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
