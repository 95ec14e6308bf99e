//! Token buckets by name, for whoever claims: of pools for what is late (P16), of tenants (P25).
//!
//! Owned by one term's dispatcher. A new leader's buckets start empty (P25), so a fail-over adds nothing: over any
//! span, whoever led in it, no more is claimed than the rate brings and a bucket holds. What is claimed and comes
//! back unbegun has used up its part: a rate bounds what is claimed, never what arrives.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::smtp::pool::rate_limiter::Pace;

/// Recipients that may be claimed now, by name; who is not named has no bound.
pub(crate) type Gathered = BTreeMap<String, u32>;

/// Claims are made of what a second brings, or of a whole slice: entries are what is scarce.
const GATHER_SECONDS: f64 = 1.0;
/// What is saved up at most: two such gatherings, so that a wake that comes late loses nothing.
const BURST_SECONDS: f64 = 2.0 * GATHER_SECONDS;

/// Recipients that are claimed at once, at the least.
fn gathering(rate: f64, slice: u32) -> u32 {
    (rate * GATHER_SECONDS).min(f64::from(slice)).max(1.0) as u32
}

/// One term's buckets.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, Pace>);

impl Buckets {
    /// How many recipients may be claimed at `now` by these rates, in emails a second. `slice`: the largest claim.
    pub fn gathered(&mut self, rates: BTreeMap<String, f64>, slice: u32, now: Duration) -> Gathered {
        self.0.retain(|name, _| rates.contains_key(name));
        let credit = |(name, rate): (String, f64)| {
            let burst = rate * BURST_SECONDS;
            let pace = self.0.entry(name.clone()).or_insert_with(|| Pace::new(rate, burst));
            pace.set_budget(now, rate, burst);
            let saved = pace.saved(now);
            (name, if saved >= gathering(rate, slice) { saved } else { 0 })
        };
        rates.into_iter().map(credit).collect()
    }

    /// How long after the last look somebody without credit has some again; none where no rate is bounded.
    pub fn until_gathered(&self, name: &str, slice: u32) -> Option<Duration> {
        self.0.get(name).map(|pace| pace.until_saved(gathering(pace.budget(), slice)))
    }

    /// What is left of what was given was not used.
    pub fn spend(&mut self, given: &Gathered, left: &Gathered) {
        for (name, pace) in &mut self.0 {
            let of = |credits: &Gathered| credits.get(name).copied().unwrap_or(0);
            pace.take_saved(of(given).saturating_sub(of(left)));
        }
    }
}
