//! Backfills. Some schedules are paused from the beginning, so that their three instants fall into a pause. Then an
//! operator resumes a schedule: some instants open, and the others are explained, because a run delays the next run.
//! When no instant is left, a backfill opens the explained instants: two clients send one request id, and a third
//! client another. If no schedule is paused, an instant that has run is backfilled, which must open nothing (I10).

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_check::events::{Answer, Operation, Target};
use reveille_harness::measure::{now_ms, unix_us};
use reveille_harness::{CallResult, wait};
use reveille_proto::admin::v1::{BackfillScheduleResponse, ScheduleState};

use super::operator::{Operator, at};
use crate::run::workload::{ItemKind, PAUSED_PERIOD_MS, TENANT, WorkloadItem};

/// Length of the parts of a fault phase that have one paused schedule each, up to [`PAUSED_MAX`] schedules.
const EVERY: Duration = Duration::from_secs(20);
const PAUSED_MAX: u32 = 6;
const INSTANTS: i64 = 3;
const RECIPIENTS: u32 = 2;
/// Minimum age of an instant that counts as run: it has opened, or will be caught up.
const OVER_FOR_MS: u64 = 5_000;
/// Maximum time, with a leader, until a resumed schedule has opened or explained all instants.
const OVER_WITHIN: Duration = Duration::from_secs(10);
const PAUSE_TRIES_MAX: u32 = 4;
const RELEASE_TRIES_MAX: u32 = 5;

/// Returns the paused schedules of a fault phase.
pub fn items(first: SystemTime, phase: Duration) -> Vec<WorkloadItem> {
    let count = ((phase.as_secs() / EVERY.as_secs()) as u32).clamp(1, PAUSED_MAX);
    let item = |number: u32| {
        let from_ms = unix_us(first + phase * (number + 1) / (count + 2)) / 1_000_000 * 1_000;
        paused(format!("paused-{number}"), from_ms)
    };
    (0..count).map(item).collect()
}

/// Returns a schedule that is to be paused before its first instant.
pub(super) fn paused(name: String, from_ms: i64) -> WorkloadItem {
    let instants_ms = (0..INSTANTS).map(|index| from_ms + index * PAUSED_PERIOD_MS).collect();
    WorkloadItem::without_instant(name, RECIPIENTS, ItemKind::Paused(instants_ms))
}

/// Pauses the schedules, before any fault.
pub async fn pause_all(operator: &Operator) -> Result<()> {
    let is_paused = |item: &&WorkloadItem| matches!(item.kind, ItemKind::Paused(_));
    let items: Vec<WorkloadItem> = operator.workload.items().iter().filter(is_paused).cloned().collect();
    for item in items {
        let mut result = CallResult::Unknown;
        for _ in 0..PAUSE_TRIES_MAX {
            let operation = Operation::Pause { target: target(&item) };
            let call = operator.admin.pause_schedule(&item.name);
            result = operator.call(("operator", None), operation, call, at).await;
            if result != CallResult::Unknown {
                break;
            }
        }
        anyhow::ensure!(result.is_done(), "{} was not paused: {result:?}", item.name);
        operator.coordination.keep_paused(item);
    }
    Ok(())
}

impl Operator {
    /// Releases a paused schedule, or backfills an instant that ran.
    pub(super) async fn backfill(&self) -> bool {
        match self.coordination.take_paused(now_ms() as i64) {
            Some(item) => self.release(item).await,
            None => self.backfill_again().await,
        }
    }

    /// Releases all schedules that are still paused. Begins no release after `until`.
    pub async fn release_all(&mut self, until: Instant) {
        for _ in 0..RELEASE_TRIES_MAX {
            while Instant::now() < until
                && let Some(item) = self.coordination.take_paused(i64::MAX)
            {
                self.number += 1;
                if !self.release(item).await {
                    break;
                }
            }
        }
    }

    /// Resumes a schedule, and backfills its instants.
    async fn release(&self, item: WorkloadItem) -> bool {
        let operation = Operation::Resume { target: target(&item) };
        self.call(("operator", None), operation, self.admin.resume_schedule(&item.name), at).await;
        if !self.is_over(&item).await {
            self.coordination.keep_paused(item);
            return false;
        }
        let instants = item.instants_ms();
        let [from, until] = [instants.first(), instants.last()].map(|ms| ms.copied().unwrap_or_default());
        let [same, other] = ["same", "other"].map(|which| format!("backfill-{}-{which}", self.number));
        let (first, second, third) = tokio::join!(
            self.backfill_as("first", &same, &item.name, (from, until)),
            self.backfill_as("second", &same, &item.name, (from, until)),
            self.backfill_as("third", &other, &item.name, (from, until))
        );
        let opened = [first, second, third].iter().any(|result| {
            matches!(result, CallResult::Done(answer)
                if i64::from(answer.opened) + i64::from(answer.opened_before) == INSTANTS)
        });
        if !opened {
            self.coordination.keep_paused(item);
        }
        opened
    }

    /// Waits until no instant of the schedule is left.
    async fn is_over(&self, item: &WorkloadItem) -> bool {
        let is_over = || async {
            let found = self.admin.schedule(&item.name).await.flatten();
            found.is_some_and(|schedule| schedule.state() == ScheduleState::Done)
        };
        wait::until(OVER_WITHIN, is_over).await
    }

    async fn backfill_again(&self) -> bool {
        let over_ms = now_ms().saturating_sub(OVER_FOR_MS);
        let item = {
            let items = self.workload.items();
            let ran: Vec<&WorkloadItem> =
                items.iter().filter(|item| item.kind == ItemKind::Once && item.due_ms < over_ms).collect();
            ran.get(self.number * 7 % ran.len().max(1)).map(|item| (*item).clone())
        };
        let Some(item) = item else { return false };
        let range = (item.due_ms as i64 - 1_000, item.due_ms as i64 + 1_000);
        self.backfill_as("operator", &format!("backfill-{}", self.number), &item.name, range).await.is_done()
    }

    async fn backfill_as(
        &self,
        client: &str,
        id: &str,
        name: &str,
        (from_ms, until_ms): (i64, i64),
    ) -> CallResult<BackfillScheduleResponse> {
        let operation = Operation::Backfill {
            tenant: TENANT.to_owned(),
            schedule: name.to_owned(),
            from_unix_ms: from_ms,
            until_unix_ms: until_ms,
        };
        let opened =
            |answer: BackfillScheduleResponse| Answer::opened(Some(answer.first_run).filter(|run| !run.is_empty()));
        self.call((client, Some(id)), operation, self.admin.backfill(id, name, (from_ms, until_ms)), opened).await
    }
}

pub(super) fn target(item: &WorkloadItem) -> Target {
    Target::Schedule { tenant: TENANT.to_owned(), schedule: item.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_schedules_are_spread_over_phase() {
        let (first, phase) = (std::time::UNIX_EPOCH + Duration::from_secs(1_000), Duration::from_secs(60));
        let all: Vec<Vec<i64>> = items(first, phase).iter().map(WorkloadItem::instants_ms).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], [1_012_000, 1_013_000, 1_014_000]);
        assert!(all.iter().flatten().all(|at_ms| (1_000_000..1_060_000).contains(at_ms)));
    }
}
