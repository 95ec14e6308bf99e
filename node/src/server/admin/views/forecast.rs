//! Forecasts whether a campaign can be sent in time. It uses only the limits that operators set, not the real speed of
//! the relays.

use reveille_ledger::Ledger;
use reveille_ledger::forecast::{Forecast, ForecastLimit, ForecastRequest};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::FINISH_MS_MIN;
use reveille_proto::admin::v1;

use super::timestamp;
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
    Some(DeadlineForecast { pool, rows, due, finish_by: due.plus_ms(finish_by_ms).max(least), forecast })
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

    /// Returns what the operator should know: it opens late, takes days, or does not fit.
    pub fn warnings(&self) -> Vec<v1::Warning> {
        let warning = |reason: v1::WarningReason| v1::Warning {
            reason: reason.into(),
            pool: self.pool.to_owned(),
            due_time: Some(timestamp(self.due)),
            open_time: Some(timestamp(self.forecast.begins)),
            expire_time: Some(timestamp(self.finish_by)),
            ..v1::Warning::default()
        };
        let late = self.forecast.is_late.then_some(v1::WarningReason::OpensLate);
        let end = match (self.forecast.ends, self.forecast.bound) {
            (None, _) | (_, ForecastLimit::NoRelay | ForecastLimit::Nothing) => None,
            (Some(_), _) if !self.fits() => Some(v1::WarningReason::EndsTooLate),
            (Some(_), ForecastLimit::WarmUp) => Some(v1::WarningReason::TakesDays),
            (Some(_), _) => None,
        };
        late.into_iter().chain(end).map(warning).collect()
    }
}
