//! Audiences over HTTP: connections break in the middle of a part, parts that are missing are sent again, two clients
//! seal, and a schedule sends to the audience.

use std::fmt::Write;
use std::ops::Range;

use reveille_check::events::{Content, ObjectKind, Operation};
use reveille_harness::CallResult;
use reveille_harness::admin::HttpChange;
use serde_json::{Value, json};

use super::http::{TRIES_MAX, index_at, text_at};
use super::operator::Operator;
use crate::run::workload::{ItemKind, TENANT, WorkloadItem, due_in};

/// Recipients of a part, and of the last part.
const PART: u32 = 65_536;
const LAST_PART: u32 = 6;
/// Time until the schedule is due that sends to the audience.
const AHEAD_MS: u64 = 4_000;

impl Operator {
    /// Uploads an audience and sends to it. Every third audience has two parts and gets no email: the final state of
    /// each recipient is read, and would take too long.
    pub(super) async fn upload(&self) -> bool {
        let recipients = if self.number.is_multiple_of(3) { PART + LAST_PART } else { LAST_PART };
        let mut item = WorkloadItem::without_instant(format!("upload-{}", self.number), recipients, ItemKind::Uploaded);
        let ranges = (0..recipients).step_by(PART as usize).map(|from| from..recipients.min(from + PART));
        let texts: Vec<String> = ranges.map(|range| text(&item, range)).collect();
        let mut parts = Vec::new();
        for text in &texts {
            let Some(part) = self.upload_part(text).await else { return false };
            parts.push(part);
        }
        if !self.seal(&item, &texts, &parts).await {
            return false;
        }
        if recipients > PART {
            return true;
        }
        item.due_ms = due_in(AHEAD_MS);
        self.create_by_json(item).await
    }

    /// Sends a part, first over a connection that breaks, and until it is answered. Returns its hash.
    async fn upload_part(&self, text: &str) -> Option<String> {
        let upload =
            HttpChange { content_type: Some("text/csv"), ..HttpChange::post("/v1/audience-parts", None, text) };
        // A node that cannot be reached is one of the faults.
        if let Ok(admin) = self.admin.another(self.number) {
            let _ = admin.break_off(&upload).await;
        }
        for number in 0..TRIES_MAX {
            match self.ask(number + 1, &upload).await {
                CallResult::Unknown => {}
                result => {
                    let CallResult::Done(answer) = self.expect_no_refusal("a part", result) else { return None };
                    return Some(text_at(&answer, &["part"]));
                }
            }
        }
        None
    }

    /// Sends parts again that nodes lack, and seals by two clients. Returns true if the audience is sealed.
    async fn seal(&self, item: &WorkloadItem, texts: &[String], parts: &[String]) -> bool {
        let (name, id) = (&item.name, format!("seal-{}", item.name));
        let body = json!({ "recipients": item.recipients, "columns": [Content::VARIABLE], "parts": parts }).to_string();
        let [prepare, seal] = ["prepare", "seal"].map(|step| format!("/v1/audiences/{name}/{step}"));
        let (prepare, seal) = (HttpChange::post(&prepare, None, &body), HttpChange::post(&seal, Some(&id), &body));
        let operation = Operation::Write {
            kind: ObjectKind::Audience,
            tenant: TENANT.to_owned(),
            name: name.clone(),
            value: Some(value(item.recipients, parts.len())),
        };
        let index = |answer: &Value| index_at(answer, &["audience", "index"]);
        for number in 0..TRIES_MAX {
            let answer = self.ask(number, &prepare).await;
            let CallResult::Done(answer) = self.expect_no_refusal("the parts of an audience", answer) else { continue };
            let missing = answer.get("missing").and_then(Value::as_array).cloned().unwrap_or_default();
            for (text, _) in texts.iter().zip(parts).filter(|(_, part)| missing.contains(&json!(part))) {
                self.upload_part(text).await;
            }
            let (first, second) = tokio::join!(
                self.insist("first", operation.clone(), &seal, index),
                self.insist("second", operation.clone(), &seal, index)
            );
            if first.is_done() || second.is_done() {
                return true;
            }
        }
        false
    }
}

/// Returns a sealed audience as histories compare it.
pub fn value(recipients: u32, parts: usize) -> String {
    format!("{recipients} in {parts}")
}

/// Returns these recipients as CSV.
fn text(item: &WorkloadItem, range: Range<u32>) -> String {
    let mut text = format!("email,{}\n", Content::VARIABLE);
    for number in range {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{},{}", item.address(number), item.code(number));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_head_and_recipients_with_codes() {
        let item = WorkloadItem::without_instant("upload-1".to_owned(), 9, ItemKind::Uploaded);
        let text = text(&item, 7..9);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "email,code");
        assert_eq!(lines[2], format!("upload-1-8@example.net,{}", item.code(8)));
    }
}
