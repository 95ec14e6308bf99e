//! Actions of operators during the faults: they opt out, pause, cancel and create, and record each call with its
//! answer. Their decisions are in `decisions.rs`, edits in `edits.rs`, backfills in `backfills.rs`, triggers and
//! messages in `messages.rs`; as applications do over HTTP, they write schedules and erase recipients in `objects.rs`,
//! and put templates and audiences in `templates.rs` and `uploads.rs`.

use std::time::Duration;

use reveille_check::events::{Answer, Crossing, ObjectKind, Operation, Target};
use reveille_harness::measure::now_ms;
use reveille_harness::{AdminClient, CallResult, wait};
use reveille_proto::admin::v1::Barrier;

use super::coordination::Coordination;
use crate::run::faults::OperatorAction;
use crate::run::observe::{Recorder, answer_of};
use crate::run::workload::{CAMPAIGN, TENANT, Workload, WorkloadItem, due_in};

/// Maximum wait for a run.
const OPENS_WITHIN: Duration = Duration::from_secs(6);
/// Time until a new schedule is due.
const AHEAD_MS: u64 = 3_000;
/// Minimum times from an opt-out to the instant of the email: one recipient opts out at the instant, another before.
const OPT_OUTS_AHEAD_MS: [u64; 2] = [0, 10_000];

/// An operator.
#[derive(Clone)]
pub struct Operator {
    pub admin: AdminClient,
    pub recorder: Recorder,
    pub workload: Workload,
    pub coordination: Coordination,
    /// Number that makes the names and request ids of this operator unique.
    pub number: usize,
}

impl Operator {
    /// Performs an action. Returns true if any of its calls was executed. The history has the calls.
    pub async fn perform(self, action: OperatorAction, pause: Duration) -> bool {
        match action {
            OperatorAction::OptOut => self.opt_out().await,
            OperatorAction::PauseAndResume => self.pause_and_resume(pause).await,
            OperatorAction::Cancel => self.cancel().await,
            OperatorAction::Trigger => Box::pin(self.trigger()).await,
            // The future of three requests is large.
            OperatorAction::CreateAgain => Box::pin(self.create_again()).await,
            OperatorAction::Decide => self.decide().await,
            OperatorAction::Requeue => self.requeue().await,
            OperatorAction::Backfill => Box::pin(self.backfill()).await,
            OperatorAction::Update => Box::pin(self.update()).await,
            OperatorAction::Delete => self.delete().await,
            OperatorAction::Message => Box::pin(self.send_message()).await,
            OperatorAction::PutAndPause => Box::pin(self.put_and_pause()).await,
            OperatorAction::CreateBatch => Box::pin(self.create_batch()).await,
            OperatorAction::Erase => Box::pin(self.erase()).await,
            OperatorAction::PutTemplate => Box::pin(self.put_template()).await,
            OperatorAction::Upload => Box::pin(self.upload()).await,
        }
    }

    /// Opts out a recipient whose email becomes due, a recipient whose email is due later, and a recipient of the
    /// campaign.
    async fn opt_out(&self) -> bool {
        let Some(next) = self.workload.next_after(now_ms()) else { return false };
        wait_until(next.due_ms).await;
        let later = OPT_OUTS_AHEAD_MS.map(|ahead| self.workload.next_after(next.due_ms - 1 + ahead));
        let own = later.into_iter().flatten().enumerate();
        let own = own.map(|(more, item)| (item.tenant(), item.address((self.number + more) as u32 % item.recipients)));
        // A recipient that the campaign reaches late.
        let late = self.workload.find(CAMPAIGN).map(|campaign| {
            let number = campaign.recipients - 1 - self.number as u32 % campaign.recipients;
            (campaign.tenant(), campaign.address(number))
        });
        let mut is_done = false;
        for (number, (tenant, recipient)) in own.chain(late).enumerate() {
            let id = format!("opt-out-{}-{number}", self.number);
            self.coordination.writes(tenant, ObjectKind::OptOut, &recipient);
            let operation = Operation::OptOut { tenant: tenant.to_owned(), recipient: recipient.clone() };
            let admin = self.admin.of_tenant(tenant);
            let call = admin.opt_out(&id, &recipient);
            is_done |= self.call(("operator", Some(&id)), operation, call, barrier).await.is_done();
        }
        is_done
    }

    async fn pause_and_resume(&self, pause: Duration) -> bool {
        let Some((tenant, run)) = self.campaign_or_next_run().await else { return false };
        self.coordination.pauses(&run);
        let operation = Operation::Pause { target: Target::Run(run.clone()) };
        let admin = self.admin.of_tenant(tenant);
        let is_done = self.call(("operator", None), operation, admin.pause_run(&run), barrier).await.is_done();
        tokio::time::sleep(pause).await;
        self.resume(tenant, &run).await;
        is_done
    }

    /// Resumes a run that was or may have been paused.
    pub async fn resume(&self, tenant: &str, run: &str) {
        let operation = Operation::Resume { target: Target::Run(run.to_owned()) };
        self.call(("operator", None), operation, self.admin.of_tenant(tenant).resume_run(run), at).await;
    }

    async fn cancel(&self) -> bool {
        let Some(run) = self.next_schedules_run().await else { return false };
        let operation = Operation::Cancel { target: Target::Run(run.clone()) };
        if self.number.is_multiple_of(2) {
            return self.call(("operator", None), operation, self.admin.cancel_run(&run), barrier).await.is_done();
        }
        self.cancel_by_json(&run, operation).await
    }

    /// Creates one schedule, twice with one request id and once with another.
    async fn create_again(&self) -> bool {
        let item = WorkloadItem::once(format!("more-{}", self.number), due_in(AHEAD_MS), 2);
        self.coordination.writes(TENANT, ObjectKind::Schedule, &item.name);
        let [same, other] = ["same", "other"].map(|which| format!("more-{}-{which}", self.number));
        let ask = |client, id| self.workload.ask(&self.admin, client, id, &item);
        let (first, second) = tokio::join!(ask("first", same.as_str()), ask("second", same.as_str()));
        let third = ask("third", other.as_str()).await;
        let results = [&first, &second, &third];
        let is_done = results.into_iter().any(CallResult::is_done);
        if is_done {
            self.workload.add(item.clone());
        } else if results.contains(&&CallResult::Unknown) {
            self.workload.keep_unknown(&same, item.clone());
        }
        is_done
    }

    /// Returns a run and its tenant. Every second time it is the run of the campaign while that is sent. Otherwise it
    /// is the run that opens next.
    async fn campaign_or_next_run(&self) -> Option<(&'static str, String)> {
        if self.number.is_multiple_of(2)
            && let Some(campaign) = self.workload.find(CAMPAIGN).filter(|campaign| campaign.due_ms < now_ms())
            && let Ok(Some(run)) = self.admin.of_tenant(campaign.tenant()).run_of(CAMPAIGN).await
        {
            return Some((campaign.tenant(), run.run));
        }
        Some((TENANT, self.next_schedules_run().await?))
    }

    /// Returns the run that opens next.
    async fn next_schedules_run(&self) -> Option<String> {
        let item = self.workload.next_after(now_ms()).filter(|item| item.tenant() == TENANT)?;
        wait_until(item.due_ms).await;
        let run = || async { Some(self.admin.run_of(&item.name).await.ok()??.run) };
        wait::for_some(OPENS_WITHIN, run).await
    }

    /// Makes a call as this client with this request id, and records it. `done` makes the answer of an executed call.
    pub(super) fn call<T: Clone>(
        &self,
        (client, id): (&str, Option<&str>),
        operation: Operation,
        call: impl Future<Output = CallResult<T>>,
        done: impl FnOnce(T) -> Answer,
    ) -> impl Future<Output = CallResult<T>> {
        let caller = (format!("{client}-{}", self.number), id.map(str::to_owned));
        // The future of a call is large.
        let call = Box::pin(call);
        async move {
            let (invoked_ns, result) = (self.recorder.now_ns(), call.await);
            self.recorder.call(caller, invoked_ns, operation, answer_of(result.clone(), done));
            result
        }
    }
}

/// Returns the sending of a message, which is a trigger without a schedule.
pub(super) fn sent(key: &str) -> Operation {
    Operation::Trigger { tenant: TENANT.to_owned(), schedule: key.to_owned(), audience: key.to_owned() }
}

/// Returns the answer of a change with this log index.
pub(super) fn at(index: u64) -> Answer {
    Answer::at(Some(index))
}

/// Returns the answer of a change that ends with a barrier.
pub(super) fn barrier(barrier: Barrier) -> Answer {
    let crossing = |crossing: reveille_proto::admin::v1::Crossing| {
        let fence = crossing.fence.parse().ok()?;
        Some(Crossing { run: crossing.run, number: crossing.number, fence })
    };
    let crossed = barrier.crossed.into_iter().filter_map(crossing).collect();
    Answer::Ok { index: Some(barrier.index), run: None, crossed, unconfirmed: barrier.unconfirmed }
}

pub(super) async fn wait_until(at_ms: u64) {
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}
