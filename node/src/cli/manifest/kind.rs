//! The kinds of documents, and the message of the API that each one's `spec` is.

use clap::ValueEnum;
use prost::Message;
use prost_reflect::{DynamicMessage, Kind as Type, MessageDescriptor, ReflectMessage as _, Value as Field};
use reveille_cluster::file_store::encode_attachment;
use reveille_proto::admin::v1::{
    Attachment, CreateCampaignRequest, PutTemplateRequest, Relay, ScheduleBody, SetPoolRequest, SetTenantRequest,
};
use serde::Serialize as _;
use serde_json::Value;

use super::tree::Node;
use crate::api_json::descriptor;
use crate::cli::attachments::OCTETS;

/// Fields of a request that are of the call. They are no keys of a document.
const OF_THE_CALL: [&str; 3] = ["request_id", "validate_only", "etag"];

/// The kind of object that a document describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A schedule.
    Schedule,
    /// A campaign.
    Campaign,
    /// A relay.
    Relay,
    /// Settings of a pool.
    Pool,
    /// Limits of a tenant.
    Tenant,
    /// A template.
    Template,
}

impl Kind {
    /// Returns the word after `kind`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Schedule => "schedule",
            Kind::Campaign => "campaign",
            Kind::Relay => "relay",
            Kind::Pool => "pool",
            Kind::Tenant => "tenant",
            Kind::Template => "template",
        }
    }

    /// Returns the kind of a word.
    pub fn of(word: &str) -> Option<Kind> {
        Kind::value_variants().iter().copied().find(|kind| kind.word() == word)
    }

    /// Returns the message that the spec is: what the HTTP request that sets such an object has as its body, with the
    /// name from the path.
    pub fn message(self) -> MessageDescriptor {
        let known = match self {
            Kind::Schedule => descriptor::<ScheduleBody>(),
            Kind::Campaign => descriptor::<CreateCampaignRequest>(),
            Kind::Relay => descriptor::<Relay>(),
            Kind::Pool => descriptor::<SetPoolRequest>(),
            Kind::Tenant => descriptor::<SetTenantRequest>(),
            Kind::Template => descriptor::<PutTemplateRequest>(),
        };
        known.expect("the descriptors are built in, and a test reads each of these")
    }

    /// Returns the beginning of the spec's field paths in a refusal.
    pub fn path_in_request(self) -> &'static str {
        match self {
            Kind::Schedule => "schedule.",
            Kind::Relay => "relay.",
            Kind::Campaign | Kind::Pool | Kind::Tenant | Kind::Template => "",
        }
    }

    /// True if the field of the spec is no key of a document: it is of the call, or only in answers.
    pub fn hides(self, field: &str) -> bool {
        match self {
            Kind::Schedule => false,
            Kind::Relay => ["health", "etag"].contains(&field),
            Kind::Tenant => OF_THE_CALL.contains(&field) || field == "all_pools",
            Kind::Campaign | Kind::Pool | Kind::Template => OF_THE_CALL.contains(&field),
        }
    }

    /// Returns a message of this kind as a spec: a tree without fields that have their default. Of an attachment's
    /// bytes it has the hash, as answers have.
    pub fn spec(self, message: &impl Message) -> Node {
        let descriptor = self.message();
        let mut spec = DynamicMessage::new(descriptor.clone());
        // Neither fails: the message is of this type, and all of it can be written as JSON.
        let _ = spec.transcode_from(message);
        descriptor.fields().filter(|field| self.hides(field.name())).for_each(|field| spec.clear_field(&field));
        summarize(&mut spec);
        let value = spec.serialize(serde_json::value::Serializer).unwrap_or_default();
        node(&value, Some(&descriptor))
    }

    /// Returns a whole document.
    pub fn document(self, spec: Node) -> Node {
        Node::map(vec![("kind".to_owned(), Node::text(self.word())), ("spec".to_owned(), spec)])
    }
}

/// Replaces the bytes of each attachment by their hash, and adds the default of its media type. The number of bytes
/// follows from the hash, so it is left out.
fn summarize(message: &mut DynamicMessage) {
    if Some(message.descriptor()) == descriptor::<Attachment>() {
        let mut attachment: Attachment = message.transcode_to().unwrap_or_default();
        let data = std::mem::take(&mut attachment.data);
        if attachment.file_hash.is_empty() || !data.is_empty() {
            attachment.file_hash = encode_attachment(&data).0.to_string();
        }
        if attachment.content_type.is_empty() {
            attachment.content_type = OCTETS.to_owned();
        }
        attachment.size = 0;
        *message = DynamicMessage::new(message.descriptor());
        // Cannot fail: the message is of this type.
        let _ = message.transcode_from(&attachment);
        return;
    }
    for (_, value) in message.fields_mut() {
        match value {
            Field::Message(inner) => summarize(inner),
            Field::List(items) => items.iter_mut().filter_map(Field::as_message_mut).for_each(summarize),
            _ => {}
        }
    }
}

/// Returns a JSON value as a tree. The keys of a message are in the order of its fields.
pub fn node(value: &Value, message: Option<&MessageDescriptor>) -> Node {
    match (value, message) {
        (Value::Null, _) => Node::plain("null"),
        (Value::String(text), _) => Node::text(text.as_str()),
        (Value::Bool(_) | Value::Number(_), _) => Node::plain(value),
        (Value::Array(items), _) => Node::list(items.iter().map(|item| node(item, message)).collect()),
        (Value::Object(pairs), Some(message)) => {
            let fields = message.fields().filter_map(|field| {
                let inner = match field.kind() {
                    Type::Message(inner) if !field.is_map() => Some(inner),
                    _ => None,
                };
                let name = field.json_name();
                Some((name.to_owned(), node(pairs.get(name)?, inner.as_ref())))
            });
            Node::map(fields.collect())
        }
        (Value::Object(pairs), None) => {
            Node::map(pairs.iter().map(|(key, value)| (key.clone(), node(value, None))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_proto::admin::v1::Content;

    #[test]
    fn each_kind_is_a_message_that_has_a_name() {
        for kind in Kind::value_variants() {
            let message = kind.message();
            let named = message.get_field_by_name("name").or_else(|| message.get_field_by_name("schedule"));
            assert!(named.is_some() && Kind::of(kind.word()) == Some(*kind), "{kind:?}");
        }
    }

    #[test]
    fn attachment_of_a_document_equals_that_of_an_answer() {
        let spec = |attachment: Attachment| {
            let content = Content { attachments: vec![attachment], ..Content::default() };
            Kind::Template.spec(&PutTemplateRequest { content: Some(content), ..PutTemplateRequest::default() })
        };
        for data in [Vec::new(), b"terms".to_vec()] {
            let file_hash = encode_attachment(&data).0.to_string();
            let by_hash = Attachment { name: "a".to_owned(), file_hash, ..Attachment::default() };
            let (size, content_type) = (data.len() as u64, OCTETS.to_owned());
            let answer = Attachment { size, content_type, ..by_hash.clone() };
            let with_data = Attachment { name: "a".to_owned(), data, ..Attachment::default() };
            assert_eq!(spec(by_hash), spec(answer.clone()));
            assert_eq!(spec(with_data), spec(answer));
        }
    }
}
