//! Triggers and messages, as applications make them: several clients use one request id or key, and the two forms of
//! the API. Both forms are one request, so a repeat in the other form is answered with the first run.

use std::time::Duration;

use anyhow::Result;
use reveille_check::events::{Answer, Content, Operation, Target};
use reveille_harness::CallResult;
use reveille_harness::admin::{HttpChange, timestamp};
use reveille_harness::measure::now_ms;
use reveille_proto::admin::v1::{self as api, KeyRule, ScheduleBody};

use super::http::{opened, text_at, to_json};
use super::operator::{Operator, barrier, sent};
use super::templates::{NAMED, written};
use crate::run::workload::{ItemKind, TENANT, TRIGGERED, WorkloadItem};

/// Name of the template of every second message.
const TEMPLATE: &str = "message";
/// Size of the template's attachment in bytes.
const ATTACHED_BYTES: usize = 20_000;
/// Recipients of a list, and of a message.
const LISTED: u32 = 3;
const SENT_TO: u32 = 2;
/// Time until a message is due that is cancelled.
const AHEAD: Duration = Duration::from_secs(8);

/// Stores the template.
pub async fn put_template(Operator { admin, recorder, .. }: &Operator) -> Result<()> {
    let attachment = api::Attachment {
        name: "terms.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        data: b"0123456789abcde\n".repeat(ATTACHED_BYTES / 16),
        ..Default::default()
    };
    let content = api::Content {
        sender: "Jepsen <jepsen@example.org>".to_owned(),
        subject: "By a template".to_owned(),
        text: Some(Content::template(&format!("{{{{ {NAMED} }}}}"))),
        attachments: vec![attachment],
        ..Default::default()
    };
    let invoked_ns = recorder.now_ns();
    admin.of_tenant(TENANT).put_template(TEMPLATE, content).await?;
    let operation = written(&format!("{TEMPLATE}@1"), Content::VARIABLE);
    recorder.call(("operator".to_owned(), None), invoked_ns, operation, Answer::at(None));
    Ok(())
}

impl Operator {
    /// Triggers by two clients with one request id, by a third with another, and by two with a list of recipients of
    /// its own. This opens three runs, never more.
    pub(super) async fn trigger(&self) -> bool {
        let [same, other] = ["same", "other"].map(|which| format!("trigger-{}-{which}", self.number));
        let (first, second) =
            tokio::join!(self.trigger_as(&same, "first", None), self.trigger_as(&same, "second", None));
        let third = self.trigger_as(&other, "third", None).await;
        let list = WorkloadItem::without_instant(format!("list-{}", self.number), LISTED, ItemKind::List);
        self.workload.add(list.clone());
        let (fourth, fifth) =
            tokio::join!(self.trigger_as(&list.name, "fourth", Some(&list)), self.trigger_by_json(&list));
        [first, second, third, fourth, fifth].iter().any(CallResult::is_done)
    }

    async fn trigger_as(&self, id: &str, client: &str, list: Option<&WorkloadItem>) -> CallResult<String> {
        let audience = list.and_then(|item| self.workload.body(item).audience);
        let call = self.admin.trigger(id, TRIGGERED, audience);
        let result = self.call((client, Some(id)), triggered(list), call, |run| Answer::opened(Some(run))).await;
        self.expect_no_refusal("a trigger", result)
    }

    async fn trigger_by_json(&self, list: &WorkloadItem) -> CallResult<String> {
        let audience = self.workload.body(list).audience;
        let request = api::TriggerScheduleRequest { audience, ..Default::default() };
        let (path, body) = (format!("/v1/schedules/{TRIGGERED}/trigger"), to_json("TriggerScheduleRequest", &request));
        let (trigger, place) = (HttpChange::post(&path, Some(&list.name), &body), ["run", "run"]);
        let result = self.insist("fifth", triggered(Some(list)), &trigger, opened(&place)).await;
        self.expect_no_refusal("a trigger over HTTP", result).map(|answer| text_at(&answer, &place))
    }

    /// Sends one message by two clients, one of them over HTTP, and once more by a third, with another subject. They
    /// have one key, so one run opens, and each answer names it. Every second message is made of a template with an
    /// attachment, and every fourth one has a send time and is cancelled before it.
    pub(super) async fn send_message(&self) -> bool {
        let item = WorkloadItem::without_instant(format!("message-{}", self.number), SENT_TO, ItemKind::Message);
        self.workload.add(item.clone());
        let is_cancelled = self.number % 4 == 2;
        let mut message = self.message(&item);
        message.send_time = is_cancelled.then(|| timestamp((now_ms() + AHEAD.as_millis() as u64) as i64));
        let other = api::SendMessageRequest { key_rule: KeyRule::FirstWins.into(), ..message.clone() };
        let other = with_subject(other, "Another");
        let (first, second) = tokio::join!(self.send_as("first", message.clone()), self.send_by_json(&message));
        let third = self.send_as("third", other).await;
        let results = [first, second, third];
        if is_cancelled && let Some(CallResult::Done(run)) = results.iter().find(|result| result.is_done()) {
            let operation = Operation::Cancel { target: Target::Run(run.clone()) };
            self.call(("operator", None), operation, self.admin.cancel_message(&item.name), barrier).await;
        }
        results.iter().any(CallResult::is_done)
    }

    fn message(&self, item: &WorkloadItem) -> api::SendMessageRequest {
        let ScheduleBody { content, mut audience, policies, pool, .. } = self.workload.body(item);
        let key_rule = KeyRule::Strict.into();
        let message =
            api::SendMessageRequest { key: item.name.clone(), key_rule, policies, pool, ..Default::default() };
        if self.number.is_multiple_of(2) {
            return with_subject(api::SendMessageRequest { content, audience, ..message }, "Hello");
        }
        if let Some(audience) = audience.as_mut() {
            audience.columns.push(NAMED.to_owned());
            audience.recipients.iter_mut().for_each(|recipient| recipient.values.push(item.name.clone()));
        }
        api::SendMessageRequest { template: TEMPLATE.to_owned(), audience, ..message }
    }

    async fn send_as(&self, client: &str, message: api::SendMessageRequest) -> CallResult<String> {
        let key = message.key.clone();
        let call = self.admin.send_message(message);
        let result = self.call((client, Some(&key)), sent(&key), call, |run| Answer::opened(Some(run))).await;
        self.expect_no_refusal("a message", result)
    }

    async fn send_by_json(&self, message: &api::SendMessageRequest) -> CallResult<String> {
        // The header has the key.
        let body = to_json("SendMessageRequest", &api::SendMessageRequest { key: String::new(), ..message.clone() });
        let (key, place) = (&message.key, ["message", "run", "run"]);
        let send = HttpChange::post("/v1/messages", Some(key), &body);
        let result = self.insist("second", sent(key), &send, opened(&place)).await;
        self.expect_no_refusal("a message over HTTP", result).map(|answer| text_at(&answer, &place))
    }
}

fn triggered(list: Option<&WorkloadItem>) -> Operation {
    let audience = list.map_or(TRIGGERED, |item| item.name.as_str()).to_owned();
    Operation::Trigger { tenant: TENANT.to_owned(), schedule: TRIGGERED.to_owned(), audience }
}

fn with_subject(message: api::SendMessageRequest, subject: &str) -> api::SendMessageRequest {
    let content = message.content.map(|content| api::Content { subject: subject.to_owned(), ..content });
    api::SendMessageRequest { content, ..message }
}
