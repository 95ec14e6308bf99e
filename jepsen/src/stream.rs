//! A steady stream of mail whose every instant is known beforehand: one schedule with one recipient a moment.
//!
//! Because each mail has a schedule of its own, whom to expect needs no calendar and no answer of the cluster:
//! everybody whose moment is over.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};

use crate::admin::Admin;
use crate::load::{self, Until};

/// Clients that create; the cluster has other things to do.
const CLIENTS: u32 = 16;
/// A moment lies at least so far ahead when its schedule is created.
const LEAD: Duration = Duration::from_secs(5);

/// The moments that were created, in order.
pub struct Stream {
    every: Duration,
    moments: Vec<SystemTime>,
}

impl Stream {
    /// So many mails a second; none yet.
    pub fn new(mails_per_second: u32) -> Stream {
        Stream { every: Duration::from_secs(1) / mails_per_second.max(1), moments: Vec::new() }
    }

    /// Creates further moments, up to this instant.
    pub async fn extend(&mut self, admin: &Admin, end: SystemTime) -> Result<()> {
        let first = self.moments.len();
        self.moments.extend(self.further(SystemTime::now(), end));
        let Some(new) = self.moments.get(first..).filter(|new| !new.is_empty()).map(<[_]>::to_vec) else {
            return Ok(());
        };
        let (count, every, start) = (new.len() as u32, self.every, Instant::now());
        let body = move |number: u64| {
            let due = new.get(number as usize).copied().unwrap_or(end);
            load::once_to(name(first + number as usize), due, 1)
        };
        load::create(admin, CLIENTS, Until::Count(count.into()), "moments", body).await?;
        // The last moment is the last to be created, so if that is on time, all are.
        if start.elapsed() > LEAD + every * count / 2 {
            bail!("creating {count} moments took {:.1} s: choose a lower --rate", start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Addresses whose moment is over at this instant.
    pub fn expected(&self, end: SystemTime) -> impl Iterator<Item = String> + '_ {
        let over = self.moments.iter().enumerate().filter(move |(_, due)| **due <= end);
        over.map(|(number, _)| load::address(&name(number), 0))
    }

    /// The last moment.
    pub fn end(&self) -> Option<SystemTime> {
        self.moments.last().copied()
    }

    /// Goes on after the last moment, or leaves a gap where that is over or too near.
    fn further(&self, now: SystemTime, end: SystemTime) -> Vec<SystemTime> {
        let next = self.moments.last().map_or(now + LEAD, |last| (*last + self.every).max(now + LEAD));
        std::iter::successors(Some(next), |due| Some(*due + self.every)).take_while(|due| *due <= end).collect()
    }
}

fn name(number: usize) -> String {
    format!("moment-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn moments_go_on_where_they_ended_and_nobody_is_expected_before_his() {
        let mut stream = Stream::new(10);
        stream.moments = stream.further(at(0), at(5_200));
        assert_eq!(stream.moments, [at(5_000), at(5_100), at(5_200)]);
        assert_eq!(stream.further(at(200), at(5_400)), [at(5_300), at(5_400)]);
        assert_eq!(stream.further(at(1_000), at(6_000)), [at(6_000)], "never too near");
        assert_eq!(stream.further(at(0), at(5_250)), []);
        let expected: Vec<String> = stream.expected(at(5_100)).collect();
        assert_eq!(expected, ["moment-0-0@example.net", "moment-1-0@example.net"]);
    }
}
