//! When a campaign ends, in words: computed from limits before it opens, and from its speed afterwards.

use reveille_proto::admin::v1::{Forecast, ForecastBound, Progress};

use super::{format, text};

/// Returns text such as `needs 3,472 emails/s; the relays' rates give 4,000: ends at 2026-12-01T12:28:20Z`.
pub fn sentence(forecast: &Forecast) -> String {
    let needs = format!("needs {} emails/s", format::rate(forecast.needed_per_second));
    let gives = format::rate(forecast.budget_per_second.unwrap_or_default());
    let room = format::count(forecast.first_day_room.unwrap_or_default().into());
    let given = match forecast.bound() {
        ForecastBound::NoRelay => "no relay is in its pool: nothing is sent".to_owned(),
        ForecastBound::Unspecified | ForecastBound::Nothing => "no rate bounds it, so no end is known".to_owned(),
        ForecastBound::Relays => format!("the relays' rates give {gives}"),
        ForecastBound::LateRates => format!("the relays' rates for what is late give {gives}"),
        ForecastBound::Tenant => format!("the tenant's rate gives {gives}"),
        ForecastBound::WarmUp => format!("the pool's warm-up lets {room} go on the first day"),
    };
    let ends = text(forecast.end_time.as_ref()).map(|ends| format!(": ends at {ends}")).unwrap_or_default();
    let fits = if forecast.fits || forecast.end_time.is_none() { "" } else { ", after finish by" };
    format!("{needs}; {given}{ends}{fits}")
}

/// Returns text such as `3,912 emails/s on average while it was open: ends at 2026-12-01T12:28:20Z`.
pub fn progress_sentence(progress: &Progress) -> String {
    let ends = match text(progress.end_time.as_ref()) {
        Some(ends) => format!(": ends at {ends}"),
        None => ": too slow for all of it, what is left at its finish by expires".to_owned(),
    };
    format!("{} emails/s on average while it was open{ends}", format::rate(progress.per_second))
}
