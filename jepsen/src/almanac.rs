//! Daily schedules over all minutes of a day in twelve zones, and when they are expected, by an arithmetic of
//! our own: one instant a local date, whatever the clocks do on it. Pure.

use anyhow::{Context, Result};
use jiff::civil::date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use reveille_proto::admin::v1::{CatchUp, Daily, Policies, ScheduleBody, When, when};

use crate::load;

/// Half-hour changes, changes for Ramadan, offsets of quarters of an hour, both hemispheres, and UTC.
pub const ZONES: [&str; 12] = [
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/St_Johns",
    "Pacific/Chatham",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Cairo",
    "Pacific/Apia",
    "Asia/Kolkata",
    "UTC",
];
const MINUTES_A_DAY: u64 = 1_440;

/// When the first day begins: half a minute into the March of next year, when clocks change in many places.
pub fn first_day(now: Timestamp) -> Result<Timestamp> {
    let year = now.to_zoned(TimeZone::UTC).year() + 1;
    Ok(date(year, 3, 1).at(0, 0, 30, 0).to_zoned(TimeZone::UTC)?.timestamp())
}

/// One daily schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    number: u64,
    zone: &'static str,
    minute: u64,
}

impl Entry {
    /// The schedule of this number: numbers go over all minutes of a day, and then over the zones.
    pub fn new(number: u64, zones: usize) -> Entry {
        let (round, minute) = (number / MINUTES_A_DAY, number % MINUTES_A_DAY);
        let place = (round + minute) % zones.clamp(1, ZONES.len()) as u64;
        Entry { number, zone: ZONES[place as usize], minute }
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("daily-{}", self.number)
    }

    /// Its only recipient; nobody else writes there.
    pub fn address(&self) -> String {
        load::address(&self.name(), 0)
    }

    /// The schedule, with nothing before `from` and nothing after `to`. Each third catches up in another way.
    pub fn body(&self, from: Timestamp, to: Timestamp) -> ScheduleBody {
        let catch_up = [CatchUp::One, CatchUp::All, CatchUp::None][(self.number % 3) as usize];
        let daily = Daily { hour: (self.minute / 60) as u32, minute: (self.minute % 60) as u32, days: String::new() };
        ScheduleBody {
            when: Some(When { pattern: Some(when::Pattern::Daily(daily)) }),
            zone: self.zone.to_owned(),
            start: Some(wire(from)),
            end: Some(wire(to)),
            policies: Some(Policies { catch_up: catch_up.into(), ..Policies::default() }),
            ..load::once(self.name(), std::time::SystemTime::UNIX_EPOCH, vec![self.address()])
        }
    }

    /// How many instants it has from `from` to `to`, both included: one for each local date. A time that a
    /// change leaves out counts as the same distance after it, one that is told twice as the first.
    pub fn expected(&self, from: Timestamp, to: Timestamp) -> Result<u64> {
        let zone = rules(self.zone)?;
        let mut date = from.to_zoned(zone.clone()).date().yesterday()?;
        let mut count = 0;
        loop {
            let local = date.at((self.minute / 60) as i8, (self.minute % 60) as i8, 0, 0);
            let instant = local.to_zoned(zone.clone())?.timestamp();
            if instant > to {
                return Ok(count);
            }
            count += u64::from(instant >= from);
            date = date.checked_add(1.day())?;
        }
    }
}

fn rules(zone: &str) -> Result<TimeZone> {
    TimeZoneDatabase::bundled().get(zone).with_context(|| format!("the rules of {zone}"))
}

/// As the API's timestamp, in whole seconds.
pub fn wire(instant: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: instant.as_second(), nanos: 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn ten_thousand_cover_every_minute_and_every_zone() {
        let entries: Vec<Entry> = (0..10_000).map(|number| Entry::new(number, 12)).collect();
        let minutes: BTreeSet<u64> = entries.iter().map(|entry| entry.minute).collect();
        let zones: BTreeSet<&str> = entries.iter().map(|entry| entry.zone).collect();
        let names: BTreeSet<String> = entries.iter().map(Entry::name).collect();
        assert_eq!((minutes.len(), zones.len(), names.len()), (1_440, 12, 10_000));
        assert!((0..100).all(|number| Entry::new(number, 1).zone == ZONES[0]));
    }

    #[test]
    fn a_local_date_has_one_instant_also_when_the_clocks_change() {
        let (from, to) = (at("2027-03-01T00:00:00Z"), at("2027-03-31T00:00:00Z"));
        for number in 0..3_000 {
            let count = Entry::new(number, 12).expected(from, to).unwrap();
            assert!((29..=31).contains(&count), "{number}: {count}");
        }
        let berlin = Entry { number: 0, zone: "Europe/Berlin", minute: 150 };
        assert_eq!(berlin.expected(at("2027-03-27T12:00:00Z"), at("2027-03-29T12:00:00Z")).unwrap(), 2);
        let noon = Entry { number: 0, zone: "UTC", minute: 720 };
        assert_eq!(noon.expected(at("2027-03-01T12:00:00Z"), at("2027-03-02T12:00:00Z")).unwrap(), 2, "both ends");
    }
}
