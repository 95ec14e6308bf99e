//! Whether a campaign can be sent in time, as far as rates say: nothing of how fast a relay really answers.

use reveille_cluster::zones::Zones;
use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1;

use super::timestamp;

/// What is to be sent, and when.
pub struct Prospect<'a> {
    /// Pool of relays.
    pub pool: &'a str,
    /// Tenant and name of the audience.
    pub audience: (&'a str, &'a str),
    /// When it is to begin.
    pub due: Time,
    /// What is not sent this long after that expires. Milliseconds.
    pub finish_by_ms: i64,
}

/// What the rates of the pool's relays make of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// When it can begin.
    begins: Time,
    /// What is not sent by then expires.
    finish_by: Time,
    /// Mails a second that it would need.
    needed: f64,
    /// Mails a second of the pool; none where one of its relays has no bound.
    budget: Option<f64>,
    /// How long it takes at that budget. Milliseconds.
    takes_ms: Option<i64>,
}

/// None while the audience is not sealed.
pub fn forecast(ledger: &Ledger, prospect: &Prospect<'_>) -> Option<Forecast> {
    let place = (prospect.audience.0.to_owned(), prospect.audience.1.to_owned());
    let rows = ledger.audiences().get(&place)?.rows;
    let begins = prospect.due.max(ledger.head().now);
    let finish_by = prospect.due.plus_ms(prospect.finish_by_ms);
    let seconds = finish_by.since_ms(begins).max(1) as f64 / 1_000.0;
    let budget = ledger.budget_milli(prospect.pool).map(|milli| milli as f64 / 1_000.0);
    let takes_ms = ledger.takes_ms(prospect.pool, rows);
    Some(Forecast { begins, finish_by, needed: f64::from(rows) / seconds, budget, takes_ms })
}

impl Forecast {
    fn ends(&self) -> Option<Time> {
        self.takes_ms.map(|ms| self.begins.plus_ms(ms))
    }

    /// As a message.
    pub fn told(&self) -> v1::Forecast {
        v1::Forecast {
            needed_per_second: self.needed,
            budget_per_second: self.budget,
            ends: self.ends().map(timestamp),
            fits: self.ends().is_none_or(|ends| ends <= self.finish_by),
        }
    }

    /// Where the budget is not enough, in a sentence.
    pub fn warning(&self, zone: &str, zones: &Zones) -> Option<String> {
        let (budget, ends) = (self.budget?, self.ends().filter(|ends| *ends > self.finish_by)?);
        let local = |time: Time| match zones.get(zone) {
            Ok(zone) => time.timestamp().to_zoned(zone.rules).strftime("%Y-%m-%d %H:%M %Z").to_string(),
            Err(_) => time.to_string(),
        };
        Some(format!(
            "needs {:.0} mails a second, and the relays' rates give {budget:.0}: would end at {}, and what is not sent at {} expires",
            self.needed.ceil(),
            local(ends),
            local(self.finish_by)
        ))
    }
}
