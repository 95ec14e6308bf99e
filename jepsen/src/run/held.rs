//! Backfills. Some schedules are paused from the beginning on, so that their three instants fall into a pause. When these are
//! over an operator lets one go on: some of them open, and the others are explained, since a run holds up the next. When
//! nothing of it lies ahead any more, he has the others opened by a backfill, asked for by two clients with one request id
//! and by a third with another. Where none is held, an instant that has run is backfilled: that must open nothing (I10).

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_check::history::{Answer, Operation, Target};
use reveille_proto::admin::v1::{BackfillScheduleResponse, ScheduleState};

use super::desk::Desk;
use super::operator::{Operator, nobody, now_ms, word};
use super::recorder::Recorder;
use super::workload::{Item, Kind, TENANT, Workload};
use crate::admin::Admin;
use crate::measure::unix_us;
use crate::orders::Came;

/// One in so long a part of the fault phase, and at most so many.
const EVERY: Duration = Duration::from_secs(20);
const HELD_MAX: u32 = 6;
/// Instants of each, so far apart, and recipients.
const INSTANTS: i64 = 3;
pub const PERIOD_MS: i64 = 1_000;
const RECIPIENTS: u32 = 2;
/// An instant that ran is so old, at least: it opened, or it will be caught up.
const OVER_FOR_MS: u64 = 5_000;
/// Who was let go has opened or explained all of it within this, if anybody leads.
const OVER_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pauses before anything is broken are asked for so often.
const ASKED_AT_MOST: u32 = 4;
/// And what is left in the end.
const LET_GO_AT_MOST: u32 = 5;

/// Those of a fault phase.
pub fn items(first: SystemTime, phase: Duration) -> Vec<Item> {
    let count = ((phase.as_secs() / EVERY.as_secs()) as u32).clamp(1, HELD_MAX);
    let item = |number: u32| {
        let from_ms = unix_us(first + phase * (number + 1) / (count + 2)) / 1_000_000 * 1_000;
        let instants_ms = (0..INSTANTS).map(|place| from_ms + place * PERIOD_MS).collect();
        Item { name: format!("held-{number}"), due_ms: 0, recipients: RECIPIENTS, kind: Kind::Held(instants_ms) }
    };
    (0..count).map(item).collect()
}

/// Pauses all of them, before anything is broken.
pub async fn hold(workload: &Workload, desk: &Desk, admin: &Admin, recorder: &Recorder) -> Result<()> {
    let held = |item: &&Item| matches!(item.kind, Kind::Held(_));
    let items: Vec<Item> = workload.items().iter().filter(held).cloned().collect();
    let operator = Operator {
        admin: admin.clone(),
        recorder: recorder.clone(),
        workload: workload.clone(),
        desk: desk.clone(),
        number: 0,
    };
    for item in items {
        let mut came = Came::Unknown;
        for _ in 0..ASKED_AT_MOST {
            let invoked = recorder.now_ns();
            came = admin.pause_schedule(&item.name).await;
            operator.record(None, invoked, Operation::Pause { target: target(&item) }, at(came.clone()));
            if came != Came::Unknown {
                break;
            }
        }
        anyhow::ensure!(matches!(came, Came::Done(_)), "{} was not paused: {came:?}", item.name);
        desk.hold(item);
    }
    Ok(())
}

impl Operator {
    /// Lets go what is held, or asks again for what ran.
    pub(super) async fn backfill(&self) -> (bool, String) {
        match self.desk.take_held(now_ms() as i64) {
            Some(item) => self.let_go(item).await,
            None => self.backfill_what_ran().await,
        }
    }

    /// Lets go all that is held still; begins with none after `until`.
    pub async fn let_all_go(&mut self, until: Instant) {
        for _ in 0..LET_GO_AT_MOST {
            while Instant::now() < until
                && let Some(item) = self.desk.take_held(i64::MAX)
            {
                self.number += 1;
                let name = item.name.clone();
                let (done, words) = self.let_go(item).await;
                eprintln!("  {name} is let go: {words}");
                if !done {
                    break;
                }
            }
        }
    }

    async fn let_go(&self, item: Item) -> (bool, String) {
        let invoked = self.recorder.now_ns();
        let resumed = self.admin.resume_schedule(&item.name).await;
        let mut words = format!("{} goes on: {}", item.name, word(&resumed));
        self.record(None, invoked, Operation::Resume { target: target(&item) }, at(resumed));
        if !self.is_over(&item).await {
            self.desk.hold(item);
            return (false, format!("{words}; not all of it is over"));
        }
        let instants = item.instants_ms();
        let range = |place: Option<&i64>| place.copied().unwrap_or_default() as u64;
        let range = (range(instants.first()), range(instants.last()));
        let [same, other] = ["same", "other"].map(|which| format!("backfill-{}-{which}", self.number));
        let (first, second, third) = tokio::join!(
            self.backfill_as("first", &same, &item.name, range),
            self.backfill_as("second", &same, &item.name, range),
            self.backfill_as("third", &other, &item.name, range)
        );
        let all = [first, second, third];
        let opened = all.iter().any(|came| {
            matches!(came, Came::Done(answer)
                if i64::from(answer.opened) + i64::from(answer.opened_before) == INSTANTS)
        });
        words.push_str(&format!("; backfilled: {}", all.iter().map(counted).collect::<Vec<_>>().join(", ")));
        if !opened {
            // Somebody else will.
            self.desk.hold(item);
        }
        (opened, words)
    }

    /// Waits until no instant of it lies ahead.
    async fn is_over(&self, item: &Item) -> bool {
        let until = Instant::now() + OVER_WITHIN;
        while Instant::now() < until {
            let found = self.admin.schedule(&item.name).await.flatten();
            if found.is_some_and(|schedule| schedule.state() == ScheduleState::Done) {
                return true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    }

    async fn backfill_what_ran(&self) -> (bool, String) {
        let over_ms = now_ms().saturating_sub(OVER_FOR_MS);
        let item = {
            let items = self.workload.items();
            let ran: Vec<&Item> =
                items.iter().filter(|item| item.kind == Kind::Once && item.due_ms < over_ms).collect();
            ran.get(self.number * 7 % ran.len().max(1)).map(|item| (*item).clone())
        };
        let Some(item) = item else { return nobody() };
        let range = (item.due_ms.saturating_sub(1_000), item.due_ms + 1_000);
        let came = self.backfill_as("operator", &format!("backfill-{}", self.number), &item.name, range).await;
        (matches!(came, Came::Done(_)), format!("backfill {}, which ran: {}", item.name, counted(&came)))
    }

    async fn backfill_as(
        &self,
        client: &str,
        id: &str,
        name: &str,
        (from_ms, until_ms): (u64, u64),
    ) -> Came<BackfillScheduleResponse> {
        let invoked = self.recorder.now_ns();
        let came = self.admin.backfill(id, name, (from_ms, until_ms)).await;
        let operation = Operation::Backfill {
            tenant: TENANT.to_owned(),
            schedule: name.to_owned(),
            from_unix_ms: from_ms as i64,
            until_unix_ms: until_ms as i64,
        };
        let answer = came.clone().answer(|opened| Answer::opened(Some(opened.first_run).filter(|run| !run.is_empty())));
        self.record_as(client, Some(id.to_owned()), invoked, operation, answer);
        came
    }
}

fn target(item: &Item) -> Target {
    Target::Schedule { tenant: TENANT.to_owned(), schedule: item.name.clone() }
}

/// With the place in the log.
fn at(came: Came<u64>) -> Answer {
    came.answer(|index| Answer::at(Some(index)))
}

fn counted(came: &Came<BackfillScheduleResponse>) -> String {
    match came {
        Came::Done(answer) => format!("{} opened, {} had", answer.opened, answer.opened_before),
        other => word(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_spread_over_the_phase_and_over_before_its_end() {
        let (first, phase) = (std::time::UNIX_EPOCH + Duration::from_secs(1_000), Duration::from_secs(60));
        let all: Vec<Vec<i64>> = items(first, phase).iter().map(Item::instants_ms).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], [1_012_000, 1_013_000, 1_014_000]);
        assert!(all.iter().flatten().all(|at_ms| (1_000_000..1_060_000).contains(at_ms)));
    }
}
