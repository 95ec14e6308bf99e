//! Versions of templates over HTTP. Two clients put each version of a template that no other operator writes. A message
//! that was accepted before the second version keeps the first one, and messages name a version or get the newest.
//!
//! Each version shows another variable as the recipient's code. Only the variable of the right version has it (I16).

use std::time::Duration;

use reveille_check::events::{Answer, Content, ObjectKind, Operation};
use reveille_harness::CallResult;
use reveille_harness::admin::{HttpChange, timestamp};
use reveille_harness::measure::now_ms;
use reveille_proto::admin::v1::{self as api, KeyRule, ScheduleBody};
use serde_json::Value;

use super::http::{opened, text_at, to_json};
use super::operator::{Operator, sent};
use crate::run::workload::{ItemKind, TENANT, WorkloadItem};

/// The variable that names the message.
pub(super) const NAMED: &str = "schedule";
/// Recipients of a message.
const SENT_TO: u32 = 2;
/// Time until the message is due that is accepted before the second version.
const AHEAD: Duration = Duration::from_secs(8);
/// Variables that the versions show.
const VARIABLES: [&str; 2] = ["first", "second"];
/// Value of the variables that other versions show.
const WRONG: &str = "of another version";

impl Operator {
    /// Puts two versions of a template, and sends messages by each.
    pub(super) async fn put_template(&self) -> bool {
        let name = format!("letter-{}", self.number);
        let Some(etag) = self.put_version(&name, 0, "0").await else { return false };
        let at_ms = now_ms() + AHEAD.as_millis() as u64;
        // After an unknown answer the message could still be accepted after the second version.
        if self.send_letter(("kept", &name), 0, Some(timestamp(at_ms as i64))).await
            && self.put_version(&name, 1, &etag).await.is_some()
        {
            self.send_letter(("named", &format!("{name}@1")), 0, None).await;
            self.send_letter(("newest", &name), 1, None).await;
        }
        true
    }

    /// Puts a version by two clients, if the newest version has this etag. Returns the etag of the new version.
    async fn put_version(&self, name: &str, version: usize, etag: &str) -> Option<String> {
        let body = to_json("Content", &content(VARIABLES[version]));
        let path = format!("/v1/templates/{name}?etag={etag}");
        let put = HttpChange { verb: "PUT", ..HttpChange::post(&path, None, &body) };
        let own = format!("{name}@{}", version + 1);
        let operation = written(&own, VARIABLES[version]);
        let done = |_: &Value| Answer::at(None);
        let (first, second) = tokio::join!(
            self.insist("first", operation.clone(), &put, done),
            self.insist("second", operation.clone(), &put, done)
        );
        let mut etag = None;
        for result in [first, second] {
            if let CallResult::Done(answer) = self.expect_no_refusal("a template", result) {
                let answered = text_at(&answer, &["version"]);
                if answered != (version + 1).to_string() {
                    self.coordination.unexpected(format!("{own} was answered as version {answered}"));
                }
                etag = Some(text_at(&answer, &["template", "etag"]));
            }
        }
        etag
    }

    /// Sends a message by a template, whose expected version is known. Returns true if it was accepted.
    async fn send_letter(
        &self,
        (which, template): (&str, &str),
        version: usize,
        send_time: Option<prost_types::Timestamp>,
    ) -> bool {
        let item = WorkloadItem::without_instant(format!("letter-{}-{which}", self.number), SENT_TO, ItemKind::Message);
        self.workload.add(item.clone());
        let ScheduleBody { mut audience, policies, pool, .. } = self.workload.body(&item);
        if let Some(audience) = audience.as_mut() {
            audience.columns = [NAMED].into_iter().chain(VARIABLES).map(str::to_owned).collect();
            for (number, recipient) in (0..).zip(&mut audience.recipients) {
                let mut values = [WRONG; VARIABLES.len()].map(str::to_owned);
                values[version] = item.code(number);
                recipient.values = [item.name.clone()].into_iter().chain(values).collect();
            }
        }
        let is_later = send_time.is_some();
        let (template, key_rule) = (template.to_owned(), KeyRule::Strict.into());
        let message =
            api::SendMessageRequest { key_rule, template, audience, policies, pool, send_time, ..Default::default() };
        let body = to_json("SendMessageRequest", &message);
        let send = HttpChange::post("/v1/messages", Some(&item.name), &body);
        let result = self.insist("operator", sent(&item.name), &send, opened(&["message", "run", "run"])).await;
        // The time of a message that was not accepted may be over.
        let result = if is_later { result } else { self.expect_no_refusal("a message by a template", result) };
        result.is_done()
    }
}

/// Returns the content of a version that shows this variable as the recipient's code.
fn content(variable: &str) -> api::Content {
    let shown = |variable: &str| format!("{{{{ {variable} }}}}");
    let text = Content::template(&shown(NAMED)).replace(&shown(Content::VARIABLE), &shown(variable));
    api::Content {
        sender: "Jepsen <jepsen@example.org>".to_owned(),
        subject: "A letter".to_owned(),
        text: Some(text),
        ..Default::default()
    }
}

/// Returns the write of a version as histories record it.
pub(super) fn written(version: &str, variable: &str) -> Operation {
    let (tenant, name) = (TENANT.to_owned(), version.to_owned());
    Operation::Write { kind: ObjectKind::TemplateVersion, tenant, name, value: Some(variable.to_owned()) }
}

/// Returns a version that was read as histories compare it: the variable that it shows as the recipient's code.
pub fn value_of(content: &api::Content) -> String {
    let code = content.text().lines().find_map(|line| line.strip_prefix("Code: {{ ")?.strip_suffix(" }}"));
    code.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_of_version_is_read_back() {
        assert_eq!(VARIABLES.map(|variable| value_of(&content(variable))), VARIABLES);
        assert_eq!(value_of(&api::Content::default()), "");
    }
}
