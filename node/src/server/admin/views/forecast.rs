//! Forecasts whether a campaign can be sent in time. It uses only the limits that operators set, not the real speed of
//! the relays.

use reveille_cluster::ops::zones::Zones;
use reveille_ledger::Ledger;
use reveille_ledger::forecast::{Forecast, ForecastLimit, ForecastRequest};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::FINISH_MS_MIN;
use reveille_proto::admin::v1;

use super::timestamp;
use crate::format;
use crate::server::admin::enums::OnWire;

/// What a campaign sends, and when.
#[derive(Clone, Copy, Debug)]
pub struct ForecastSubject<'a> {
    /// Pool of relays.
    pub pool: &'a str,
    /// Tenant and name of the audience.
    pub audience: (&'a str, &'a str),
    /// Instant at which the run is due.
    pub due: Time,
    /// Time from `due` to the deadline, in milliseconds. Recipients that are not sent by then expire.
    pub finish_by_ms: i64,
}

/// The forecast within the limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadlineForecast<'a> {
    tenant: &'a str,
    pool: &'a str,
    rows: u32,
    due: Time,
    /// Deadline: recipients that are not sent by then expire.
    finish_by: Time,
    forecast: Forecast,
}

/// Returns the forecast as of `now`. Returns `None` if the audience is not sealed.
pub fn deadline_forecast<'a>(
    ledger: &Ledger,
    subject: &ForecastSubject<'a>,
    now: Time,
) -> Option<DeadlineForecast<'a>> {
    let ForecastSubject { pool, audience: (tenant, name), due, finish_by_ms } = *subject;
    let rows = ledger.audiences().get(&(tenant.to_owned(), name.to_owned()))?.rows;
    let forecast = ledger.forecast(&ForecastRequest { tenant, pool, rows, due }, now);
    // A run that opens late has at least ten minutes, or `finish_by` if that is shorter (P16).
    let least = forecast.begins.plus_ms(FINISH_MS_MIN.min(finish_by_ms));
    Some(DeadlineForecast { tenant, pool, rows, due, finish_by: due.plus_ms(finish_by_ms).max(least), forecast })
}

impl DeadlineForecast<'_> {
    fn needed(&self) -> f64 {
        let seconds = self.finish_by.since_ms(self.forecast.begins).max(1) as f64 / 1_000.0;
        f64::from(self.rows) / seconds
    }

    fn budget(&self) -> Option<f64> {
        self.forecast.rate_milli.map(|milli| milli as f64 / 1_000.0)
    }

    fn fits(&self) -> bool {
        self.forecast.bound != ForecastLimit::NoRelay && self.forecast.ends.is_none_or(|ends| ends <= self.finish_by)
    }

    /// Builds the message.
    pub fn view(&self) -> v1::Forecast {
        v1::Forecast {
            needed_per_second: self.needed(),
            budget_per_second: self.budget(),
            end_time: self.forecast.ends.map(timestamp),
            fits: self.fits(),
            bound: self.forecast.bound.wire().into(),
            first_day_room: self.forecast.first_day_remaining,
        }
    }

    /// Returns warnings for the operator, one sentence each: it starts late, takes days, or does not fit.
    pub fn warnings(&self, zone: &str, zones: &Zones) -> Vec<String> {
        let local = |time: Time, form: &str| match zones.get(zone) {
            Ok(zone) => time.timestamp().to_zoned(zone.rules).strftime(form).to_string(),
            Err(_) => time.to_string(),
        };
        let minute = |time: Time| local(time, "%Y-%m-%d %H:%M %Z");
        let mut warnings = Vec::new();
        if self.forecast.is_late {
            let late = format::duration(self.forecast.begins.since_ms(self.due));
            let (due, finish_by) = (minute(self.due), minute(self.finish_by));
            warnings.push(format!(
                "its instant, {due}, is {late} ago: it opens at once, goes as what is late does, and what is not sent at {finish_by} expires"
            ));
        }
        let Some(ends) = self.forecast.ends else { return warnings };
        let Some(bounded) = self.bounded(&local(self.forecast.begins, "%Y-%m-%d")) else { return warnings };
        match (self.fits(), self.forecast.bound) {
            (false, _) => warnings.push(format!(
                "{bounded}: would end at {}, and what is not sent at {} expires",
                minute(ends),
                minute(self.finish_by)
            )),
            (true, ForecastLimit::WarmUp) => warnings.push(format!("{bounded}: ends at {}", minute(ends))),
            (true, _) => {}
        }
        warnings
    }

    /// Returns a text with the required rate, and the lowest limit with its name.
    fn bounded(&self, day: &str) -> Option<String> {
        let needs = format!("needs {} emails/s", format::rate(self.needed()));
        let gives = self.budget().map(format::rate);
        let (tenant, pool) = (self.tenant, self.pool);
        Some(match self.forecast.bound {
            ForecastLimit::NoRelay | ForecastLimit::Nothing => return None,
            ForecastLimit::Relays => format!("{needs}, and the relays of pool {pool} give {}", gives?),
            ForecastLimit::LateRates => {
                format!("{needs}, and the relays of pool {pool} give {} to what is late", gives?)
            }
            ForecastLimit::Tenant => format!("{needs}, and the rate of tenant {tenant} gives {}", gives?),
            ForecastLimit::WarmUp => {
                let (rows, room) =
                    (format::count(self.rows.into()), format::count(self.forecast.first_day_remaining?.into()));
                format!("has {rows} emails, and the warm-up of pool {pool} lets {room} go on {day} and the rest later")
            }
        })
    }
}
