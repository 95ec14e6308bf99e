//! The backlog: what is late and not sent yet, how old it is, how fast it shrinks, and when it is over (P16).
//!
//! Every node looks at its own applied state every few seconds, so any node can be asked. It decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::Time;
use reveille_ledger::{Ledger, RunState, Standing};
use tokio_util::sync::CancellationToken;

use crate::late::{is_late, late_rate};
use crate::site::Site;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Over which span it is seen to shrink.
const SPAN: Duration = Duration::from_secs(60);
/// A change over less than this tells nothing: two looks are far enough apart, also where one came late.
const SPAN_MIN: Duration = Duration::from_secs(3);

/// What is late of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// The pool that its runs go by.
    pub pool: String,
    /// Recipients that are pending or claimed, in runs that send.
    pub recipients: u64,
    /// When the oldest of its runs was due.
    pub oldest: Time,
    /// Late mails a second that may be claimed at most; none where there is no bound.
    pub bound_per_second: Option<f64>,
    /// By how many it shrank a second lately; none where it does not shrink, or nobody has looked for long enough.
    pub shrinks_per_second: Option<f64>,
    /// How long it lasts at that; none where nobody knows.
    pub eta: Option<Duration>,
    /// Was it looked at for long enough to say whether it shrinks?
    pub measured: bool,
}

/// What is late in the state: recipients and the oldest due instant, by pool.
fn late(ledger: &Ledger) -> BTreeMap<String, (u64, Time)> {
    let mut found: BTreeMap<String, (u64, Time)> = BTreeMap::new();
    for (_, page) in ledger.open_pages().filter(|(_, page)| is_late(page)) {
        let runs = page.runs.iter().filter(|run| matches!(run.state, RunState::Open));
        let left = |standing| runs.clone().map(|run| u64::from(run.counts.get(standing))).sum::<u64>();
        let recipients = left(Standing::Pending) + left(Standing::Claimed);
        if recipients > 0 {
            let known = found.entry(page.pool.clone()).or_insert((0, page.due));
            *known = (known.0 + recipients, known.1.min(page.due));
        }
    }
    found
}

/// What was seen over the last minute.
#[derive(Debug, Default)]
struct Watch(BTreeMap<String, VecDeque<(Duration, u64)>>);

impl Watch {
    /// Takes in what is late at `now`.
    fn look(&mut self, ledger: &Ledger, now: Duration) -> Vec<Backlog> {
        let late = late(ledger);
        self.0.retain(|pool, _| late.contains_key(pool));
        let told = late.into_iter().map(|(pool, (recipients, oldest))| {
            let seen = self.0.entry(pool.clone()).or_default();
            seen.push_back((now, recipients));
            while seen.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= SPAN) {
                seen.pop_front();
            }
            let since = seen.front().map(|(at, before)| (now.saturating_sub(*at), *before));
            let since = since.filter(|(span, _)| *span >= SPAN_MIN);
            let shrinks_per_second = since.and_then(|(span, before)| {
                let gone = before.checked_sub(recipients).filter(|gone| *gone > 0)?;
                Some(gone as f64 / span.as_secs_f64())
            });
            let eta = shrinks_per_second.and_then(|rate| Duration::try_from_secs_f64(recipients as f64 / rate).ok());
            let bound_per_second = late_rate(ledger, &pool);
            Backlog { pool, recipients, oldest, bound_per_second, shrinks_per_second, eta, measured: since.is_some() }
        });
        told.collect()
    }
}

/// Looks until `stop`.
pub(crate) async fn run(site: Arc<Site>, stop: CancellationToken) {
    let mut watch = Watch::default();
    let mut gauges = BTreeMap::new();
    let mut every = tokio::time::interval(LOOK_EVERY);
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        let now = site.clock.boot();
        let (backlogs, ledger_time) = site.replica.read(|ledger| (watch.look(ledger, now), ledger.head().now));
        for (pool, _) in std::mem::take(&mut gauges) {
            gauges.insert(pool, (0.0, 0.0));
        }
        for backlog in &backlogs {
            let age = ledger_time.since_ms(backlog.oldest).max(0) as f64 / 1_000.0;
            gauges.insert(backlog.pool.clone(), (backlog.recipients as f64, age));
        }
        for (pool, (recipients, age)) in &gauges {
            metrics::gauge!("reveille_backlog_recipients", "pool" => pool.clone()).set(*recipients);
            metrics::gauge!("reveille_backlog_age_seconds", "pool" => pool.clone()).set(*age);
        }
        site.note_backlogs(backlogs);
    }
}

#[cfg(test)]
mod tests;
