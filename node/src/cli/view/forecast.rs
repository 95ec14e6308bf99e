//! When a campaign ends: computed from limits before it opens, and from its speed afterwards.

use reveille_proto::admin::v1::{self, ForecastBound};

use super::fields::view;
use crate::cli::word::word;
use crate::format;

view! {
    /// Forecast that shows if a campaign can be sent in time.
    pub struct ForecastView of v1::Forecast as forecast {
        needed_per_second: f64,
        budget_per_second: Option<f64>,
        ends: Option<String>,
        fits: bool,
        bound: String = word("FORECAST_BOUND_", forecast.bound().as_str_name()),
        first_day_room: Option<u32>,
        #[serde(skip)]
        kind: ForecastBound = forecast.bound(),
    }
}

impl ForecastView {
    /// Returns text such as `needs 3,472 emails/s; the relays' rates give 4,000: ends at 2026-12-01T12:28:20Z`.
    pub fn sentence(&self) -> String {
        let needs = format!("needs {} emails/s", format::rate(self.needed_per_second));
        let gives = format::rate(self.budget_per_second.unwrap_or_default());
        let room = format::count(self.first_day_room.unwrap_or_default().into());
        let given = match self.kind {
            ForecastBound::NoRelay => "no relay is in its pool: nothing is sent".to_owned(),
            ForecastBound::Unspecified | ForecastBound::Nothing => "no rate bounds it, so no end is known".to_owned(),
            ForecastBound::Relays => format!("the relays' rates give {gives}"),
            ForecastBound::LateRates => format!("the relays' rates for what is late give {gives}"),
            ForecastBound::Tenant => format!("the tenant's rate gives {gives}"),
            ForecastBound::WarmUp => format!("the pool's warm-up lets {room} go on the first day"),
        };
        let ends = self.ends.as_ref().map(|ends| format!(": ends at {ends}")).unwrap_or_default();
        let fits = if self.fits || self.ends.is_none() { "" } else { ", after finish by" };
        format!("{needs}; {given}{ends}{fits}")
    }
}

view! {
    /// Progress of a campaign that is being sent.
    pub struct ProgressView of v1::Progress as progress {
        per_second: f64,
        ends: Option<String>,
    }
}

impl ProgressView {
    /// Returns text such as `3,912 emails/s on average while it was open: ends at 2026-12-01T12:28:20Z`.
    pub fn sentence(&self) -> String {
        let ends = match &self.ends {
            Some(ends) => format!(": ends at {ends}"),
            None => ": too slow for all of it, what is left at its finish by expires".to_owned(),
        };
        format!("{} emails/s on average while it was open{ends}", format::rate(self.per_second))
    }
}
