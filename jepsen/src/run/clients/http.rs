//! Requests of operators over HTTP, and what their answers say.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use reveille_check::events::{Answer, Crossing, Operation};
use reveille_harness::CallResult;
use reveille_harness::admin::HttpChange;
use serde_json::Value;

use super::operator::Operator;

/// Maximum number of calls of one request. Together they take longer than any fault.
pub(super) const TRIES_MAX: usize = 6;

/// The messages of the API. `None`: the descriptors are damaged.
static MESSAGES: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(reveille_proto::DESCRIPTORS).ok());

/// Returns a message of the admin API in JSON. Empty, which every node refuses: the API has no message of this name.
pub(super) fn to_json(name: &str, message: &impl Message) -> String {
    let descriptor = MESSAGES.as_ref().and_then(|all| all.get_message_by_name(&format!("reveille.admin.v1.{name}")));
    let read = |descriptor| DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()).ok();
    descriptor.and_then(read).and_then(|message| serde_json::to_string(&message).ok()).unwrap_or_default()
}

/// Returns the text or number at this place of an answer. Empty: it has none.
pub(super) fn text_at(answer: &Value, place: &[&str]) -> String {
    match place.iter().try_fold(answer, |value, field| value.get(field)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns the answer of a change whose log index is at this place.
pub(super) fn index_at(answer: &Value, place: &[&str]) -> Answer {
    Answer::at(text_at(answer, place).parse().ok())
}

/// Returns a function that makes the answer with the run at this place.
pub(super) fn opened(place: &[&str]) -> impl Fn(&Value) -> Answer {
    move |answer| Answer::opened(Some(text_at(answer, place)))
}

/// Returns the answer of a change that ends with a barrier.
pub(super) fn barrier_of(answer: &Value) -> Answer {
    let barrier = answer.get("barrier").cloned().unwrap_or_default();
    let all = |field: &str| barrier.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let crossing = |crossing: &Value| {
        let [run, number, fence] = ["run", "number", "fence"].map(|field| text_at(crossing, &[field]));
        // The form leaves out a zero.
        Some(Crossing { run, number: number.parse().unwrap_or_default(), fence: fence.parse().ok()? })
    };
    Answer::Ok {
        index: text_at(&barrier, &["index"]).parse().ok(),
        run: None,
        crossed: all("crossed").iter().filter_map(crossing).collect(),
        unconfirmed: all("unconfirmed").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

/// Returns an answer, or the last line of a stream. `None`: the stream broke off.
fn last_line(text: &str) -> Option<Value> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    serde_json::from_str(line).ok().filter(|answer: &Value| answer.get("error").is_none())
}

impl Operator {
    /// Sends a change over HTTP as this client, and repeats it until its result is known. Each call is recorded. `done`
    /// makes the answer of an executed call.
    pub(super) async fn insist(
        &self,
        client: &str,
        operation: Operation,
        change: &HttpChange<'_>,
        done: impl Fn(&Value) -> Answer,
    ) -> CallResult<Value> {
        let mut result = CallResult::Unknown;
        for number in 0..TRIES_MAX {
            let call = self.ask(client.len() + number, change);
            result = self.call((client, change.key), operation.clone(), call, |answer| done(&answer)).await;
            if result != CallResult::Unknown {
                break;
            }
        }
        result
    }

    /// Sends a change over HTTP once, to the node of this number (modulo the number of nodes) first.
    pub(super) async fn ask(&self, node: usize, change: &HttpChange<'_>) -> CallResult<Value> {
        let Ok(admin) = self.admin.another(self.number + node) else { return CallResult::Unknown };
        match admin.change_json(change).await {
            CallResult::Done(text) => last_line(&text).map_or(CallResult::Unknown, CallResult::Done),
            CallResult::Refused(why) => CallResult::Refused(why),
            CallResult::Unknown => CallResult::Unknown,
        }
    }

    /// Reports the refusal of a request that is right, and whose repeats are the same request.
    pub(super) fn expect_no_refusal<T>(&self, what: &str, result: CallResult<T>) -> CallResult<T> {
        if let CallResult::Refused(why) = &result {
            self.coordination.unexpected(format!("{what} was refused: {why}"));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use reveille_proto::admin::v1 as api;
    use serde_json::json;

    use super::*;

    #[test]
    fn message_is_written_as_canonical_json() {
        let recipient = api::Recipient { address: "ann@example.org".to_owned(), values: vec!["Ann".to_owned()] };
        let audience = api::Audience { recipients: vec![recipient], ..Default::default() };
        let written = r#"{"recipients":[{"address":"ann@example.org","values":["Ann"]}]}"#;
        assert_eq!(to_json("Audience", &audience), written);
        assert_eq!(to_json("Unknown", &audience), "");
    }

    #[test]
    fn barrier_is_read() {
        let crossed = json!([{ "run": "r8.0", "fence": "1.9.12.0" }]);
        let answer = json!({ "barrier": { "index": "17", "crossed": crossed, "unconfirmed": ["n2"] } });
        let crossing = Crossing { run: "r8.0".to_owned(), number: 0, fence: "1.9.12.0".parse().unwrap() };
        let (crossed, unconfirmed) = (vec![crossing], vec!["n2".to_owned()]);
        assert_eq!(barrier_of(&answer), Answer::Ok { index: Some(17), run: None, crossed, unconfirmed });
    }

    #[test]
    fn stream_that_broke_off_is_no_answer() {
        assert_eq!(last_line("{\"checked\":1}\n{\"parts\":2}\n"), Some(json!({ "parts": 2 })));
        assert_eq!(last_line("{\"checked\":1}\n{\"error\":{}}\n"), None);
    }
}
