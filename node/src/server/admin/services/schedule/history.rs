//! The history of a schedule, latest first: the outcome of each instant, and the triggered runs.
//!
//! The ledger orders instants by time and triggers by request id. Both are read backwards and merged by log index.

use std::ops::Bound;

use reveille_ledger::ids::{Nominal, ScheduleId};
use reveille_ledger::{InstantOutcome, Ledger, Schedule};
use reveille_proto::admin::v1::HistoryEntry;
use serde::{Deserialize, Serialize};

use crate::server::admin::paging::Paging;
use crate::server::admin::views;

/// Where a page ended in both orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryCursor {
    /// The last instant that was returned.
    instant: Option<Nominal>,
    /// The last trigger that was returned: log index and request id.
    trigger: Option<(u64, String)>,
}

/// Returns the key that separates the instants of a schedule from its triggers, which follow.
fn first_trigger(id: ScheduleId) -> (ScheduleId, Nominal) {
    (id, Nominal::Trigger(String::new()))
}

fn first_instant(id: ScheduleId) -> (ScheduleId, Nominal) {
    (id, Nominal::Civil { civil_ms: i64::MIN, fold: 0 })
}

fn index_of(row: &InstantOutcome) -> u64 {
    match row {
        InstantOutcome::Opened(run) => run.index,
        InstantOutcome::Explained { index, .. } => *index,
    }
}

/// Returns one page. Also returns where it ended if there is more.
pub fn list(
    ledger: &Ledger,
    id: ScheduleId,
    schedule: &Schedule,
    paging: &Paging<HistoryCursor>,
) -> (Vec<HistoryEntry>, Option<HistoryCursor>) {
    let mut place = paging.after.clone().unwrap_or_default();
    let before = place.instant.clone().map_or_else(|| first_trigger(id), |nominal| (id, nominal));
    let instants = ledger.history().range((Bound::Included(first_instant(id)), Bound::Excluded(before)));
    let mut instants = instants.rev().map(|((_, nominal), row)| (index_of(row), nominal, row)).peekable();
    let mut triggers = triggers(ledger, id, place.trigger.as_ref()).into_iter().peekable();
    let mut entries = Vec::new();
    if paging.after.is_none() {
        entries.extend(views::waiting(ledger, id, schedule));
    }
    while entries.len() < paging.size {
        let later = match (instants.peek(), triggers.peek()) {
            (Some((instant, ..)), Some((trigger, ..))) => instant >= trigger,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let next = if later { instants.next() } else { triggers.next() };
        let Some((index, nominal, row)) = next else { return (entries, None) };
        match nominal {
            Nominal::Trigger(request) => place.trigger = Some((index, request.clone())),
            Nominal::Civil { .. } | Nominal::Instant(_) => place.instant = Some(nominal.clone()),
        }
        entries.push(views::history(ledger, &schedule.policies, nominal, row));
    }
    let more = instants.peek().is_some() || triggers.peek().is_some();
    (entries, more.then_some(place))
}

type Row<'l> = (u64, &'l Nominal, &'l InstantOutcome);

/// Returns triggered runs, latest first, after the last one that was returned.
fn triggers<'l>(ledger: &'l Ledger, id: ScheduleId, last: Option<&(u64, String)>) -> Vec<Row<'l>> {
    let until = first_instant(ScheduleId(id.0.saturating_add(1)));
    let rows = ledger.history().range((Bound::Included(first_trigger(id)), Bound::Excluded(until)));
    let mut rows: Vec<Row> = rows.map(|((_, nominal), row)| (index_of(row), nominal, row)).collect();
    let key = |row: &Row<'l>| match row.1 {
        Nominal::Trigger(request) => (row.0, request.clone()),
        Nominal::Civil { .. } | Nominal::Instant(_) => (row.0, String::new()),
    };
    rows.retain(|row| last.is_none_or(|last| key(row) < *last));
    rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
    rows
}
