//! Seeds that ever failed: kept in the tree, and replayed for ever.

use anyhow::{Context, Result};

use super::Job;

/// One seed a line: seed, minutes, heartbeat in milliseconds, the commit on which it failed, and why.
const KEPT: &str = include_str!("../../simulation/seeds.txt");

/// All of them.
pub fn all() -> Result<Vec<Job>> {
    let lines = KEPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| read(line).with_context(|| format!("the kept seed '{line}'"))).collect()
}

fn read(line: &str) -> Option<Job> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let job = Job { seed: number()?, minutes: number()?, heartbeat_ms: number()? };
    // A commit and a reason, for the reader.
    (words.count() >= 2).then_some(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_seed_can_be_read() {
        let kept = all().expect("seeds");
        assert!(kept.iter().all(|job| job.minutes >= 4 && job.heartbeat_ms >= 20), "{kept:?}");
        assert_eq!(read("7 20 250 abc123 it lost one"), Some(Job { seed: 7, minutes: 20, heartbeat_ms: 250 }));
        assert_eq!(read("7 20 250"), None, "the reason is missing");
    }
}
