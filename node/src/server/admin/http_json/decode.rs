//! From the fields of a request in JSON to its message.

use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use crate::server::admin::{ApiError, ApiResult};

/// The message of field masks.
const FIELD_MASK: &str = "google.protobuf.FieldMask";

/// Returns the message with these fields. `masked`: the message whose fields a field mask names.
///
/// # Errors
/// Names the field whose value does not fit.
pub fn message(
    descriptor: &MessageDescriptor,
    mut fields: Map<String, Value>,
    masked: Option<&MessageDescriptor>,
) -> ApiResult<DynamicMessage> {
    if let Some(path) = given_twice(descriptor, &fields) {
        return Err(ApiError::of_field(path, "is given twice, by each of its two names; give it once"));
    }
    let mask = masked.and_then(|masked| take_mask(descriptor, &mut fields, masked));
    let fields = Value::Object(fields);
    let mut message = decode(descriptor, &fields).map_err(|error| {
        let (path, why) = fields.as_object().and_then(|fields| misfit(descriptor, fields)).unzip();
        ApiError::of_field(path.unwrap_or_else(|| "body".to_owned()), why.unwrap_or(error))
    })?;
    if let Some((field, mask)) = mask {
        message.set_field(&field, prost_reflect::Value::Message(mask));
    }
    Ok(message)
}

/// Returns a field by its name, or by its name in JSON.
pub fn field_named(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_name(name).or_else(|| descriptor.get_field_by_json_name(name))
}

fn decode(descriptor: &MessageDescriptor, fields: &Value) -> Result<DynamicMessage, String> {
    DynamicMessage::deserialize_with_options(descriptor.clone(), fields, &DeserializeOptions::new())
        .map_err(|error| error.to_string())
}

/// Takes the field mask out of the fields. The rule of protobuf for masks in JSON would also change keys of maps:
/// `labels.costCenter` would be another label.
fn take_mask(
    descriptor: &MessageDescriptor,
    fields: &mut Map<String, Value>,
    masked: &MessageDescriptor,
) -> Option<(FieldDescriptor, DynamicMessage)> {
    let is_mask = |field: &FieldDescriptor| field.kind().as_message().is_some_and(|one| one.full_name() == FIELD_MASK);
    let field = descriptor.fields().find(is_mask)?;
    let Some(Value::String(text)) = fields.remove(field.name()) else { return None };
    let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
    let paths = paths.map(|path| prost_reflect::Value::String(proto_path(masked, path))).collect();
    let mut mask = DynamicMessage::new(field.kind().as_message()?.clone());
    mask.set_field_by_name("paths", prost_reflect::Value::List(paths));
    Some((field, mask))
}

/// Returns a path of fields with the names of protobuf: `content.replyTo` is `content.reply_to`. Keys of maps stay, and
/// so does what names no field.
fn proto_path(message: &MessageDescriptor, path: &str) -> String {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(field) = field_named(message, first) else { return path.to_owned() };
    match (rest, field.kind()) {
        (None, _) => field.name().to_owned(),
        (Some(rest), Kind::Message(inner)) if !field.is_map() => {
            format!("{}.{}", field.name(), proto_path(&inner, rest))
        }
        (Some(rest), _) => format!("{}.{rest}", field.name()),
    }
}

/// Returns the path of the first field that is given by both of its names: only one of its values would count.
fn given_twice(descriptor: &MessageDescriptor, fields: &Map<String, Value>) -> Option<String> {
    let below = |message: &MessageDescriptor, value: &Value, path: &dyn Fn() -> String| {
        let inner = given_twice(message, value.as_object()?)?;
        Some(format!("{}.{inner}", path()))
    };
    fields.iter().find_map(|(name, value)| {
        let field = field_named(descriptor, name)?;
        if name != field.json_name() && fields.contains_key(field.json_name()) {
            return Some(name.clone());
        }
        let kind = field.kind();
        let message = kind.as_message()?;
        match value {
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.find_map(|(place, item)| below(message, item, &|| format!("{name}[{place}]")))
            }
            Value::Object(entries) if field.is_map() => {
                let kind = message.map_entry_value_field().kind();
                let message = kind.as_message()?;
                entries.iter().find_map(|(key, value)| below(message, value, &|| format!("{name}.{key}")))
            }
            value => below(message, value, &|| name.clone()),
        }
    })
}

/// Returns the path of the first value that does not fit, and why: each value is decoded by itself. `None`: each fits,
/// but not together with the others.
fn misfit(descriptor: &MessageDescriptor, fields: &Map<String, Value>) -> Option<(String, String)> {
    fields.iter().find_map(|(name, value)| {
        let Some(field) = field_named(descriptor, name) else {
            return Some((name.clone(), "is not a field of this message".to_owned()));
        };
        let alone = |value: Value| decode(descriptor, &Value::Object(Map::from_iter([(name.clone(), value)]))).err();
        let why = alone(value.clone())?;
        let kind = field.kind();
        let inner = match value {
            Value::Array(items) if field.is_list() => items.iter().enumerate().find_map(|(place, item)| {
                let why = alone(Value::Array(vec![item.clone()]))?;
                Some(within(format!("{name}[{place}]"), kind.as_message(), item, why))
            }),
            Value::Object(entries) if field.is_map() => entries.iter().find_map(|(key, value)| {
                let why = alone(Value::Object(Map::from_iter([(key.clone(), value.clone())])))?;
                let kind = kind.as_message()?.map_entry_value_field().kind();
                Some(within(format!("{name}.{key}"), kind.as_message(), value, why))
            }),
            value => Some(within(name.clone(), kind.as_message(), value, why.clone())),
        };
        Some(inner.unwrap_or_else(|| (name.clone(), why)))
    })
}

/// Returns the path of what does not fit in a value of this message, below the path of the value.
fn within(path: String, message: Option<&MessageDescriptor>, value: &Value, why: String) -> (String, String) {
    match (message, value) {
        (Some(message), Value::Object(fields)) => match misfit(message, fields) {
            Some((inner, why)) => (format!("{path}.{inner}"), why),
            None => (path, why),
        },
        _ => (path, why),
    }
}
