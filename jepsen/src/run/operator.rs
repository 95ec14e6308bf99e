//! Operators, who do not know that anything is broken: they opt out, pause, cancel, trigger and create in the midst
//! of it, and write down what they asked for and what they were told. What they decide about doubts and dead letters is in
//! `rulings.rs`, what they change and delete in `edits.rs`, backfills in `held.rs`.

use std::time::{Duration, SystemTime};

use reveille_check::history::{Answer, Call, Crossing, Event, Noun, Operation, Target};
use reveille_proto::admin::v1::Barrier;

use super::desk::Desk;
use super::plan::Order;
use super::recorder::Recorder;
use super::workload::{BELL, CAMPAIGN, Item, TENANT, Workload};
use crate::admin::Admin;
use crate::measure::unix_us;
use crate::orders::Came;

/// A run is looked for this long.
const OPENS_WITHIN: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(30);
/// What is created in the midst is due so much later.
const AHEAD_MS: u64 = 3_000;
/// One opts out while the mail becomes due, and one whose mail is due so much later at least: long after the answer.
const OPT_OUTS_AHEAD_MS: [u64; 2] = [0, 10_000];

/// Somebody with access to the API.
#[derive(Clone)]
pub struct Operator {
    pub admin: Admin,
    pub recorder: Recorder,
    pub workload: Workload,
    /// What all of them know of each other.
    pub desk: Desk,
    /// Makes names and request ids of this order its own.
    pub number: usize,
}

impl Operator {
    /// Does what it was told; answers in words, and whether the cluster said yes to anything.
    pub async fn obey(self, order: Order, pause: Duration) -> (bool, String) {
        match order {
            Order::OptOut => self.opt_out().await,
            Order::PauseAndResume => self.pause_and_resume(pause).await,
            Order::Cancel => self.cancel().await,
            Order::Trigger => self.trigger().await,
            // Three requests at a time, on the heap.
            Order::CreateAgain => Box::pin(self.create_again()).await,
            Order::Decide => self.decide().await,
            Order::Requeue => self.requeue().await,
            Order::Backfill => Box::pin(self.backfill()).await,
            Order::Update => Box::pin(self.update()).await,
            Order::Delete => self.delete().await,
        }
    }

    /// Somebody whose mail is due next, while it becomes due, somebody who would get one later, and one of the campaign.
    async fn opt_out(&self) -> (bool, String) {
        let Some(next) = self.workload.next_after(now_ms()) else { return nobody() };
        wait_until(next.due_ms).await;
        let later = OPT_OUTS_AHEAD_MS.map(|ahead| self.workload.next_after(next.due_ms - 1 + ahead));
        let (mut said_yes, mut words) = (false, Vec::new());
        let own = later.into_iter().flatten().enumerate();
        let own = own.map(|(more, item)| (item.tenant(), item.address((self.number + more) as u32 % item.recipients)));
        // And one of the campaign whose turn is late.
        let late = self.workload.find(CAMPAIGN).map(|campaign| {
            let number = campaign.recipients - 1 - self.number as u32 % campaign.recipients;
            (campaign.tenant(), campaign.address(number))
        });
        for (number, (tenant, recipient)) in own.chain(late).enumerate() {
            let id = format!("opt-out-{}-{number}", self.number);
            self.desk.writes(tenant, Noun::OptOut, &recipient);
            let admin = self.admin.of_tenant(tenant);
            let (invoked, came) = (self.recorder.now_ns(), admin.opt_out(&id, &recipient).await);
            let operation = Operation::OptOut { tenant: tenant.to_owned(), recipient: recipient.clone() };
            said_yes |= matches!(came, Came::Done(_));
            words.push(format!("{recipient}: {}", word(&came)));
            self.record(Some(id), invoked, operation, barrier(came));
        }
        (said_yes, words.join("; "))
    }

    async fn pause_and_resume(&self, pause: Duration) -> (bool, String) {
        let Some((tenant, run)) = self.campaign_or_next_run().await else { return nobody() };
        self.desk.pauses(&run);
        let (invoked, came) = (self.recorder.now_ns(), self.admin.of_tenant(tenant).pause_run(&run).await);
        let (said_yes, word) = (matches!(came, Came::Done(_)), word(&came));
        self.record(None, invoked, Operation::Pause { target: Target::Run(run.clone()) }, barrier(came));
        tokio::time::sleep(pause).await;
        (said_yes, format!("pause {run}: {word}; {}", self.resume(tenant, &run).await))
    }

    /// Lets a run go on; also what may have been paused.
    pub async fn resume(&self, tenant: &str, run: &str) -> String {
        let (invoked, came) = (self.recorder.now_ns(), self.admin.of_tenant(tenant).resume_run(run).await);
        let word = format!("resume: {}", word(&came));
        let answer = came.answer(|index| Answer::at(Some(index)));
        self.record(None, invoked, Operation::Resume { target: Target::Run(run.to_owned()) }, answer);
        word
    }

    async fn cancel(&self) -> (bool, String) {
        let Some(run) = self.next_schedules_run().await else { return nobody() };
        let (invoked, came) = (self.recorder.now_ns(), self.admin.cancel_run(&run).await);
        let (said_yes, word) = (matches!(came, Came::Done(_)), word(&came));
        self.record(None, invoked, Operation::Cancel { target: Target::Run(run.clone()) }, barrier(came));
        (said_yes, format!("cancel {run}: {word}"))
    }

    /// Two clients with one request id, and a third with another: two runs, never three.
    async fn trigger(&self) -> (bool, String) {
        let [same, other] = ["same", "other"].map(|which| format!("trigger-{}-{which}", self.number));
        let (first, second) = tokio::join!(self.trigger_as(&same, "first"), self.trigger_as(&same, "second"));
        let third = self.trigger_as(&other, "third").await;
        let said_yes = [&first, &second, &third].into_iter().any(|came| matches!(came, Came::Done(_)));
        (said_yes, format!("trigger: {}, {}, {}", word(&first), word(&second), word(&third)))
    }

    async fn trigger_as(&self, id: &str, client: &str) -> Came<String> {
        let (invoked, came) = (self.recorder.now_ns(), self.admin.trigger(id, BELL).await);
        let operation =
            Operation::Trigger { tenant: TENANT.to_owned(), schedule: BELL.to_owned(), audience: BELL.to_owned() };
        let answer = came.clone().answer(|run| Answer::opened(Some(run)));
        self.record_as(client, Some(id.to_owned()), invoked, operation, answer);
        came
    }

    /// Creates something new, twice with one request id and once with another.
    async fn create_again(&self) -> (bool, String) {
        let item = Item::once(format!("more-{}", self.number), (now_ms() + AHEAD_MS) / 100 * 100, 2);
        self.desk.writes(TENANT, Noun::Schedule, &item.name);
        let [same, other] = ["same", "other"].map(|which| format!("more-{}-{which}", self.number));
        let ask = |client, id| self.workload.ask(&self.admin, &self.recorder, client, id, &item);
        let (first, second) = tokio::join!(ask("first", same.as_str()), ask("second", same.as_str()));
        let third = ask("third", other.as_str()).await;
        let came = [&first, &second, &third];
        let said_yes = came.iter().any(|came| matches!(came, Came::Done(_)));
        if said_yes {
            self.workload.add(item.clone());
        } else if came.iter().any(|came| matches!(came, Came::Unknown)) {
            self.workload.doubt(&same, item.clone());
        }
        (said_yes, format!("create {}: {}, {}, {}", item.name, word(&first), word(&second), word(&third)))
    }

    /// The campaign's run while it is sent, every other time; or else the one that opens next. With its tenant.
    async fn campaign_or_next_run(&self) -> Option<(&'static str, String)> {
        if self.number.is_multiple_of(2)
            && let Some(campaign) = self.workload.find(CAMPAIGN).filter(|campaign| campaign.due_ms < now_ms())
            && let Ok(Some(run)) = self.admin.of_tenant(campaign.tenant()).run_of(CAMPAIGN).await
        {
            return Some((campaign.tenant(), run.run));
        }
        Some((TENANT, self.next_schedules_run().await?))
    }

    /// The run of a schedule that opens next.
    async fn next_schedules_run(&self) -> Option<String> {
        let item = self.workload.next_after(now_ms()).filter(|item| item.tenant() == TENANT)?;
        wait_until(item.due_ms).await;
        let until = std::time::Instant::now() + OPENS_WITHIN;
        while std::time::Instant::now() < until {
            if let Ok(Some(run)) = self.admin.run_of(&item.name).await {
                return Some(run.run);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        None
    }

    pub(super) fn record(&self, id: Option<String>, invoked_ns: u64, operation: Operation, answer: Answer) {
        self.record_as("operator", id, invoked_ns, operation, answer);
    }

    pub(super) fn record_as(
        &self,
        who: &str,
        id: Option<String>,
        invoked_ns: u64,
        operation: Operation,
        answer: Answer,
    ) {
        let answered_ns = (answer != Answer::Unknown).then(|| self.recorder.now_ns());
        let client = format!("{who}-{}", self.number);
        let call = Call { client, request_id: id, invoked_ns, answered_ns, operation, answer };
        self.recorder.event(&Event::Call(call));
    }
}

fn barrier(came: Came<Barrier>) -> Answer {
    came.answer(|barrier| {
        let crossing = |crossing: reveille_proto::admin::v1::Crossing| {
            let fence = crossing.fence.parse().ok()?;
            Some(Crossing { run: crossing.run, number: crossing.number, fence })
        };
        let crossed = barrier.crossed.into_iter().filter_map(crossing).collect();
        Answer::Ok { index: Some(barrier.index), run: None, crossed, unconfirmed: barrier.unconfirmed }
    })
}

pub(super) fn word<T>(came: &Came<T>) -> String {
    match came {
        Came::Done(_) => "done".to_owned(),
        Came::Refused(reason) => format!("refused ({reason})"),
        Came::Unknown => "unknown".to_owned(),
    }
}

pub(super) fn nobody() -> (bool, String) {
    (false, "there was nothing left to do it to".to_owned())
}

pub(super) fn now_ms() -> u64 {
    unix_us(SystemTime::now()) as u64 / 1_000
}

async fn wait_until(at_ms: u64) {
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}
