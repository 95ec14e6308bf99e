//! Daily schedules over all minutes of a day in twelve zones, as the workload creates them. When they are expected is
//! the checker's arithmetic, on other tables than the product's. Pure.

use anyhow::Result;
use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::TimeZone;
use reveille_check::almanac::Rule;
pub use reveille_check::almanac::ZONES;
use reveille_proto::admin::v1::{CatchUp, Daily, Policies, ScheduleBody, When, when};

use crate::load;

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

    /// How many instants it has from `from` to `to`, both included: one for each local date.
    pub fn expected(&self, from: Timestamp, to: Timestamp) -> Result<u64> {
        let (hour, minute) = ((self.minute / 60) as u32, (self.minute % 60) as u32);
        let rule = Rule::Daily { zone: self.zone.to_owned(), hour, minute, days: Vec::new() };
        Ok(rule.instants(from.as_millisecond(), to.as_millisecond())?.len() as u64)
    }
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
    /// The checker's tables are older than ours; in these zones nothing has changed since.
    #[test]
    fn the_checkers_tables_and_the_products_agree_in_all_zones() {
        let (from, to) = (at("2026-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"));
        for zone in ZONES {
            // Neither is in a gap anywhere.
            for (hour, minute) in [(6, 45), (20, 15)] {
                let rule = Rule::Daily { zone: zone.to_owned(), hour, minute, days: Vec::new() };
                let rules = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
                for instant in rule.instants(from.as_millisecond(), to.as_millisecond()).unwrap() {
                    let local = Timestamp::from_millisecond(instant).unwrap().to_zoned(rules.clone());
                    assert_eq!((local.hour(), local.minute()), (hour as i8, minute as i8), "{zone} {local}");
                }
            }
        }
    }
}
