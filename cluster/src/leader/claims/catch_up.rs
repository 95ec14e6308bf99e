//! The pace of what is late: caught up after an outage, or backfilled (P16).
//!
//! What is on time goes before what is late wherever both wait (`fair_queue.rs`). That is not enough beside a backlog of a
//! million: what was claimed of it an instant ago is in the relays' sessions already, and it would use up what a
//! relay takes in a day before the day's own mail is due. So each relay has a rate for late mail, half of its own
//! unless an operator says otherwise; a pool's is the sum. The leader's dispatcher keeps to it when it claims
//! (`limits.rs`).

use std::collections::BTreeMap;

use reveille_ledger::{Ledger, Page};

/// Is all of a page late?
pub fn is_late(page: &Page) -> bool {
    page.runs.iter().all(|run| run.cause.is_late())
}

/// Late mails a second by a pool, at most; none where there is no bound, and nothing where there is no relay.
pub fn late_rate(ledger: &Ledger, pool: &str) -> Option<f64> {
    Some(ledger.late_rate_milli(pool)? as f64 / 1_000.0)
}

/// The same by pool, where there is a bound.
pub(crate) fn late_rates(ledger: &Ledger) -> BTreeMap<String, f64> {
    let pools = ledger.relays().iter().map(|(_, relay)| relay.pool.clone());
    pools.filter_map(|pool| late_rate(ledger, &pool).map(|rate| (pool, rate))).collect()
}
