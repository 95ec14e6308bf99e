//! Schedules, runs and recipients over HTTP, as applications write them: two clients put or create the same, schedules
//! are paused before their instants, runs are cancelled, and recipients are erased. Requests are repeated until their
//! results are known.

use std::time::{Duration, Instant};

use reveille_check::events::{Answer, LISTED, ObjectKind, Operation};
use reveille_harness::CallResult;
use reveille_harness::admin::HttpChange;
use reveille_harness::measure::now_ms;
use reveille_proto::admin::v1 as api;
use serde_json::Value;

use super::backfills::{paused, target};
use super::http::{barrier_of, index_at, text_at, to_json};
use super::operator::{Operator, wait_until};
use crate::run::observe::answer_of;
use crate::run::workload::{TENANT, WorkloadItem, due_in};

/// Times until new schedules are due: one that is paused before, and others.
const PAUSED_AHEAD_MS: u64 = 8_000;
const AHEAD_MS: u64 = 4_000;
/// Number of schedules of a batch, and recipients of each schedule.
const BATCH: u32 = 3;
const RECIPIENTS: u32 = 3;
/// Maximum time of an erasure. It waits while the recipient is claimed.
const ERASED_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

impl Operator {
    /// Puts a schedule by two clients, and pauses it. A backfill releases it later.
    pub(super) async fn put_and_pause(&self) -> bool {
        let from_ms = (now_ms() + PAUSED_AHEAD_MS) / 1_000 * 1_000;
        let item = paused(format!("put-{}", self.number), from_ms as i64);
        self.coordination.writes(TENANT, ObjectKind::Schedule, &item.name);
        let (first, second) = tokio::join!(self.put_as("first", &item), self.put_as("second", &item));
        if !first.is_done() && !second.is_done() {
            if [first, second].contains(&CallResult::Unknown) {
                self.workload.keep_unknown(&format!("create-{}", item.name), item);
            }
            return false;
        }
        self.workload.add(item.clone());
        let path = format!("/v1/schedules/{}/pause", item.name);
        let pause = HttpChange::post(&path, None, "{}");
        let operation = Operation::Pause { target: target(&item) };
        let index = |answer: &Value| index_at(answer, &["schedule", "index"]);
        let result = self.insist("operator", operation, &pause, index).await;
        self.coordination.keep_paused(item);
        result.is_done()
    }

    async fn put_as(&self, client: &str, item: &WorkloadItem) -> CallResult<Value> {
        let path = format!("/v1/schedules/{}", item.name);
        let body = to_json("ScheduleBody", &self.workload.body(item));
        let put = HttpChange { verb: "PUT", ..HttpChange::post(&path, None, &body) };
        self.insist(client, written(item), &put, |_| Answer::at(None)).await
    }

    /// Creates a schedule with a request id. Returns true if it exists.
    pub(super) async fn create_by_json(&self, item: WorkloadItem) -> bool {
        let (id, body) = (format!("create-{}", item.name), to_json("ScheduleBody", &self.workload.body(&item)));
        let create = HttpChange::post("/v1/schedules", Some(&id), &body);
        match self.insist("operator", written(&item), &create, |_| Answer::at(None)).await {
            CallResult::Done(_) => self.workload.add(item),
            CallResult::Refused(_) => return false,
            CallResult::Unknown => {
                self.workload.keep_unknown(&id, item);
                return false;
            }
        }
        true
    }

    /// Creates some schedules at once, by two clients.
    pub(super) async fn create_batch(&self) -> bool {
        let due_ms = due_in(AHEAD_MS);
        let item = |place| WorkloadItem::once(format!("batch-{}-{place}", self.number), due_ms, RECIPIENTS);
        let items: Vec<WorkloadItem> = (0..BATCH).map(item).collect();
        let (first, second) = tokio::join!(self.batch_as("first", &items), self.batch_as("second", &items));
        let mut is_done = false;
        for ((item, first), second) in items.into_iter().zip(first).zip(second) {
            if first.is_done() || second.is_done() {
                is_done = true;
                self.workload.add(item);
            } else {
                self.workload.keep_unknown(&format!("create-{}", item.name), item);
            }
        }
        is_done
    }

    async fn batch_as(&self, client: &str, items: &[WorkloadItem]) -> Vec<CallResult> {
        let schedules = items.iter().map(|item| self.workload.body(item)).collect();
        let body = to_json("BatchCreateSchedulesRequest", &api::BatchCreateSchedulesRequest { schedules });
        let invoked_ns = self.recorder.now_ns();
        let result = self.ask(client.len(), &HttpChange::post("/v1/schedules/batch", None, &body)).await;
        let each = items.iter().enumerate().map(|(place, item)| {
            // A refused schedule may have been created by an earlier try of this call.
            let own = match &result {
                CallResult::Done(answer) if answer["results"][place].get("refusal").is_none() => CallResult::Done(()),
                _ => CallResult::Unknown,
            };
            let caller = (format!("{client}-{}", self.number), None);
            self.recorder.call(caller, invoked_ns, written(item), answer_of(own.clone(), |()| Answer::at(None)));
            own
        });
        each.collect()
    }

    /// Cancels a run.
    pub(super) async fn cancel_by_json(&self, run: &str, operation: Operation) -> bool {
        let path = format!("/v1/runs/{run}/cancel");
        self.insist("operator", operation, &HttpChange::post(&path, None, "{}"), barrier_of).await.is_done()
    }

    /// Erases two recipients of a new schedule: one before its instant, and one while the email may be on its way.
    pub(super) async fn erase(&self) -> bool {
        let due_ms = due_in(AHEAD_MS);
        let item = WorkloadItem::once(format!("erase-{}", self.number), due_ms, RECIPIENTS);
        if !self.create_by_json(item.clone()).await {
            return false;
        }
        let before = self.erase_one(&item.address(0)).await;
        wait_until(due_ms).await;
        let after = self.erase_one(&item.address(1)).await;
        before || after
    }

    /// Erases a recipient. From the barrier in the first answer on it gets no email, and after the last answer no list
    /// has its address.
    async fn erase_one(&self, recipient: &str) -> bool {
        self.workload.erases(recipient);
        self.coordination.writes(TENANT, ObjectKind::OptOut, recipient);
        let person = |value: Option<&str>| Operation::Write {
            kind: ObjectKind::Person,
            tenant: TENANT.to_owned(),
            name: recipient.to_owned(),
            value: value.map(str::to_owned),
        };
        let caller = || (format!("operator-{}", self.number), None);
        // The schedule has it.
        self.recorder.call(caller(), self.recorder.now_ns(), person(Some(LISTED)), Answer::at(None));
        let (invoked_ns, until) = (self.recorder.now_ns(), Instant::now() + ERASED_WITHIN);
        let (mut page, mut node) = (String::new(), 0);
        let is_done = loop {
            let path = format!("/v1/recipients/{recipient}?pageToken={page}");
            let (page_ns, erase) = (self.recorder.now_ns(), HttpChange::post(&path, None, ""));
            let result = self.ask(node, &HttpChange { verb: "DELETE", ..erase }).await;
            if page.is_empty() {
                let operation = Operation::OptOut { tenant: TENANT.to_owned(), recipient: recipient.to_owned() };
                // A refused erasure may have opted the recipient out: the recipient is claimed.
                let opted_out = if result.is_done() { result.clone() } else { CallResult::Unknown };
                self.recorder.call(caller(), page_ns, operation, answer_of(opted_out, |answer| barrier_of(&answer)));
            }
            match result {
                CallResult::Done(answer) => {
                    page = text_at(&answer, &["nextPageToken"]);
                    if page.is_empty() {
                        break true;
                    }
                }
                _ if Instant::now() > until => break false,
                _ => {
                    // A repeat from the beginning does no harm.
                    page.clear();
                    node += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        let answer = if is_done { Answer::at(None) } else { Answer::Unknown };
        self.recorder.call(caller(), invoked_ns, person(None), answer);
        is_done
    }
}

fn written(item: &WorkloadItem) -> Operation {
    let (tenant, name) = (item.tenant().to_owned(), item.name.clone());
    Operation::Write { kind: ObjectKind::Schedule, tenant, name, value: Some(item.value()) }
}
