//! The pace of what is late: caught up after an outage, or backfilled (P16).
//!
//! What is on time goes before what is late wherever both wait (`fair.rs`). That is not enough beside a backlog of a
//! million: what was claimed of it an instant ago is in the relays' sessions already, and it would use up what a
//! relay takes in a day before the day's own mail is due. So each relay has a rate for late mail, half of its own
//! unless an operator says otherwise; a pool's is the sum. The leader's dispatcher keeps to it when it claims.
//!
//! A new leader's buckets start empty (P25), so a fail-over adds nothing. What is claimed and comes back unbegun has
//! used up its part: the rate is what is claimed at most, never what arrives.

use std::collections::BTreeMap;
use std::time::Duration;

use reveille_ledger::command::SLICE_MAX;
use reveille_ledger::{Ledger, Page};

use crate::pace::Pace;

/// Late recipients that may be claimed now, by pool; a pool that is not named has no bound.
pub(crate) type LateCredits = BTreeMap<String, u32>;

/// Claims are made of what a second brings, or of a whole slice: entries are what is scarce.
const GATHER_SECONDS: f64 = 1.0;
/// What is saved up at most: two such gatherings, so that a wake that comes late loses nothing.
const BURST_SECONDS: f64 = 2.0 * GATHER_SECONDS;

/// Is all of a page late?
pub fn is_late(page: &Page) -> bool {
    page.runs.iter().all(|run| run.cause.is_late())
}

/// Late mails a second by a pool, at most; none where there is no bound, and nothing where there is no relay.
pub fn late_rate(ledger: &Ledger, pool: &str) -> Option<f64> {
    let relays = ledger.relays().iter().map(|(_, relay)| relay);
    let relays = relays.filter(|relay| relay.pool == pool && relay.max_sessions > 0);
    let bounds = relays.map(|relay| relay.late_bound_milli()).collect::<Option<Vec<u64>>>()?;
    Some(bounds.into_iter().sum::<u64>() as f64 / 1_000.0)
}

/// Late recipients that are claimed at once, at the least.
fn gathered(rate: f64) -> u32 {
    (rate * GATHER_SECONDS).clamp(1.0, f64::from(SLICE_MAX)) as u32
}

/// One term's buckets.
#[derive(Debug, Default)]
pub(crate) struct LatePaces(BTreeMap<String, Pace>);

impl LatePaces {
    /// What may be claimed at `now`.
    pub fn credits(&mut self, ledger: &Ledger, now: Duration) -> LateCredits {
        let pools = ledger.relays().iter().map(|(_, relay)| relay.pool.clone());
        let bounds: BTreeMap<String, f64> =
            pools.filter_map(|pool| late_rate(ledger, &pool).map(|rate| (pool, rate))).collect();
        self.0.retain(|pool, _| bounds.contains_key(pool));
        let credit = |(pool, rate): (String, f64)| {
            let burst = rate * BURST_SECONDS;
            let pace = self.0.entry(pool.clone()).or_insert_with(|| Pace::new(rate, burst));
            pace.set_budget(now, rate, burst);
            let saved = pace.saved(now);
            (pool, if saved >= gathered(rate) { saved } else { 0 })
        };
        bounds.into_iter().map(credit).collect()
    }

    /// How long after the last look a pool without credit has some again.
    pub fn until_gathered(&self, pool: &str) -> Duration {
        self.0.get(pool).map_or(Duration::ZERO, |pace| pace.until_saved(gathered(pace.budget())))
    }

    /// What is left of the credits was not used.
    pub fn spend(&mut self, given: &LateCredits, left: &LateCredits) {
        for (pool, pace) in &mut self.0 {
            let of = |credits: &LateCredits| credits.get(pool).copied().unwrap_or(0);
            pace.take_saved(of(given).saturating_sub(of(left)));
        }
    }
}
