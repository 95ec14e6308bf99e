//! Messages of the API as JSON, for HTTP and the command line: canonical JSON of protobuf, in which fields that have
//! their default are written.
//!
//! The descriptors of the API are the only source, so a new field appears by itself.

use std::sync::LazyLock;

use prost::Name;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use reveille_proto::DESCRIPTORS;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use serde_json::Value;

/// End of the name of each enumeration's first value.
const UNSPECIFIED: &str = "UNSPECIFIED";

/// The descriptors of all packages. They are built in, so decoding them cannot fail; a test reads them.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

/// Returns the descriptor of a message.
pub fn descriptor<M: Name>() -> Option<MessageDescriptor> {
    POOL.get_message_by_name(&M::full_name())
}

/// Returns the JSON of a message. Null for an instant or a duration that protobuf does not allow.
pub fn of<M: Name>(message: &M) -> Value {
    let read = |descriptor| DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()).ok();
    descriptor::<M>().and_then(read).map_or(Value::Null, |message| of_dynamic(&message))
}

/// Returns the JSON of a message that is known by its descriptor. The names are sorted, also those of a map.
pub fn of_dynamic(message: &DynamicMessage) -> Value {
    message.serialize_with_options(serde_json::value::Serializer, &with_defaults()).unwrap_or_default()
}

/// Returns the same as a text, with the names in the order of the descriptor.
pub fn text_of(message: &DynamicMessage) -> Vec<u8> {
    let mut text = Vec::with_capacity(1_024);
    // Writing to memory cannot fail, and an instant that protobuf does not allow is no JSON.
    match message.serialize_with_options(&mut serde_json::Serializer::new(&mut text), &with_defaults()) {
        Ok(()) => text,
        Err(_) => b"null".to_vec(),
    }
}

fn with_defaults() -> SerializeOptions {
    SerializeOptions::new().skip_default_fields(false)
}

/// Returns the names of a message's fields in JSON.
pub fn fields<M: Name>() -> Vec<String> {
    let fields = |message: MessageDescriptor| message.fields().map(|field| field.json_name().to_owned()).collect();
    descriptor::<M>().map(fields).unwrap_or_default()
}

/// Returns the word of an enumeration's value: `word("IN_DOUBT_ASSUME_SENT")` is `assume_sent`, because the first value
/// of that enumeration is `IN_DOUBT_UNSPECIFIED`.
pub fn word(name: &str) -> String {
    let prefix = POOL.all_enums().find_map(|known| {
        known.get_value_by_name(name)?;
        known.default_value().name().strip_suffix(UNSPECIFIED).map(str::to_owned)
    });
    name.strip_prefix(prefix.as_deref().unwrap_or_default()).unwrap_or(name).to_lowercase()
}

/// Serializes a message inside another object.
pub fn serialize<M: Name, S: Serializer>(message: &M, serializer: S) -> Result<S::Ok, S::Error> {
    of(message).serialize(serializer)
}

/// Serializes messages inside another object.
pub fn serialize_all<M: Name, S: Serializer>(messages: &[M], serializer: S) -> Result<S::Ok, S::Error> {
    let mut all = serializer.serialize_seq(Some(messages.len()))?;
    messages.iter().try_for_each(|message| all.serialize_element(&of(message)))?;
    all.end()
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration, Timestamp};
    use reveille_proto::admin::v1::{InDoubt, Policies, Run, RunState};
    use serde_json::json;

    use super::*;

    #[test]
    fn message_has_its_defaults_and_names_of_json() {
        let run = Run {
            state: RunState::Open.into(),
            opened_index: 1 << 60,
            due_time: Some(Timestamp { seconds: 0, nanos: 5_000_000 }),
            ..Run::default()
        };
        let json = of(&run);
        assert_eq!(json["state"], "RUN_STATE_OPEN");
        assert_eq!(json["openedIndex"], "1152921504606846976", "a number that JavaScript cannot hold is a text");
        assert_eq!(json["dueTime"], "1970-01-01T00:00:00.005Z");
        assert_eq!((&json["waitedFor"], &json["resent"]), (&json!(""), &json!(0)));
        assert_eq!(json.get("canary"), None, "a message that is not set has no JSON");
        let policies = Policies { jitter: Some(Duration { seconds: 3, nanos: 500_000_000 }), ..Policies::default() };
        assert_eq!(of(&policies)["jitter"], "3.500s");
        assert_eq!(fields::<Policies>().iter().take(2).collect::<Vec<_>>(), ["dstGap", "dstOverlap"]);
    }

    #[test]
    fn word_is_the_value_without_the_name_of_its_enumeration() {
        assert_eq!(word(InDoubt::AssumeSent.as_str_name()), "assume_sent");
        assert_eq!(word(RunState::Unspecified.as_str_name()), "unspecified");
        assert_eq!(word("NO_ENUMERATION"), "no_enumeration");
    }

    #[test]
    fn every_enumeration_begins_with_an_unspecified_value() {
        let enums: Vec<_> = POOL.all_enums().filter(|one| one.parent_file().package_name() == Run::PACKAGE).collect();
        assert!(enums.len() > 20);
        for one in enums {
            assert!(one.default_value().name().ends_with(UNSPECIFIED), "{}", one.name());
        }
    }
}
