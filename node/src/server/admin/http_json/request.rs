//! From an HTTP request to the message of a call.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};
use tokio_stream::StreamExt as _;

use super::{FRAME_HEAD, HttpCall};
use crate::server::admin::access::BodyPart;
use crate::server::admin::limits::request_bytes_max;
use crate::server::admin::{ApiError, ApiResult, error_texts};

/// Maximum bytes of a refused body that are read and dropped.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Name of the header with the request id (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Fields in a path, and their values.
pub type FieldsInPath = Vec<(&'static str, String)>;

/// Returns the field that a part of a template names. `None`: the part stands for itself.
pub fn field_of(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// Returns the fields in a path that fits a template, and their values. `None`: it does not fit.
pub fn fields_in_path(template: &'static str, path: &str) -> Option<FieldsInPath> {
    let (mut fields, mut parts, mut path) = (Vec::new(), template.split('/'), path.split('/'));
    loop {
        match (parts.next(), path.next()) {
            (None, None) => return Some(fields),
            (Some(part), Some(given)) if part == given && field_of(part).is_none() => {}
            (Some(part), Some(given)) if !given.is_empty() => {
                fields.push((field_of(part)?, percent_decode_str(given).decode_utf8().ok()?.into_owned()));
            }
            _ => return None,
        }
    }
}

/// Returns the messages of a call, in frames of gRPC.
///
/// # Errors
/// If the body is too large, is not JSON, or does not fit the message.
pub async fn messages(call: &HttpCall, headers: &HeaderMap, body: Body) -> ApiResult<Body> {
    let method = call.method().ok_or_else(|| error_texts::broken("a call without a method".to_owned()))?;
    let descriptor = method.method.input();
    let mut fields = Map::new();
    if let BodyPart::Pieces(field) = method.http.body {
        add_from_head(call, headers, &descriptor, &mut fields)?;
        let first = frame(&of_fields(&descriptor, fields)?)?;
        return Ok(pieces(descriptor, field, first, body));
    }
    let most = request_bytes_max(method.method.parent_service().full_name());
    let body = whole(body, most).await?;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let given: Value = serde_json::from_slice(&body)
            .map_err(|error| ApiError::of_field("body", format!("is not JSON: {error}")))?;
        match (method.http.body, given) {
            (BodyPart::None | BodyPart::Pieces(_), _) => {
                return Err(ApiError::of_field("body", "is given, but this request has none"));
            }
            (BodyPart::Whole, Value::Object(whole)) => fields = whole,
            (BodyPart::Whole, _) => return Err(ApiError::of_field("body", "is not a JSON object")),
            (BodyPart::Field(field), part) => {
                fields.insert(field.to_owned(), part);
            }
        }
    }
    add_from_head(call, headers, &descriptor, &mut fields)?;
    Ok(Body::from(frame(&of_fields(&descriptor, fields)?)?))
}

/// Returns the field that the header `Idempotency-Key` gives. The key of a message is its request id; where it is in
/// the path, the header has nothing to say.
pub fn id_field(descriptor: &MessageDescriptor, is_path_empty: bool) -> &'static str {
    if is_path_empty && descriptor.get_field_by_name("key").is_some() { "key" } else { "request_id" }
}

/// Adds the fields in query, path and headers.
fn add_from_head(
    call: &HttpCall,
    headers: &HeaderMap,
    descriptor: &MessageDescriptor,
    fields: &mut Map<String, Value>,
) -> ApiResult<()> {
    for (name, value) in form_urlencoded::parse(call.query.as_bytes()) {
        add(descriptor, fields, &name, &value, Place::Query)?;
    }
    for (name, value) in &call.in_path {
        add(descriptor, fields, name, value, Place::Path)?;
    }
    let request_id = id_field(descriptor, call.in_path.is_empty());
    let (kind, condition) = (header::CONTENT_TYPE.as_str(), header::IF_MATCH.as_str());
    for (header, field) in [(IDEMPOTENCY_KEY, request_id), (condition, "etag"), (kind, "content_type")] {
        let Some(value) = headers.get(header) else { continue };
        let value = value.to_str().map_err(|_| ApiError::of_field(header, "is not an ASCII text"))?;
        match descriptor.get_field_by_name(field) {
            Some(_) => add(descriptor, fields, field, value.trim_matches('"'), Place::Header)?,
            // A condition that is not checked must not pass. A key is of no use where repeating changes nothing.
            None if field == "etag" => {
                return Err(ApiError::of_field(header, "is given, but this request has no etag"));
            }
            None => {}
        }
    }
    Ok(())
}

fn of_fields(descriptor: &MessageDescriptor, fields: Map<String, Value>) -> ApiResult<DynamicMessage> {
    let options = DeserializeOptions::new();
    DynamicMessage::deserialize_with_options(descriptor.clone(), Value::Object(fields), &options)
        .map_err(|error| ApiError::of_field("body", error.to_string()))
}

fn frame(message: &DynamicMessage) -> ApiResult<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEAD];
    message.encode(&mut frame).map_err(|error| error_texts::broken(error.to_string()))?;
    let length = u32::try_from(frame.len() - FRAME_HEAD).map_err(|error| error_texts::broken(error.to_string()))?;
    frame[1..FRAME_HEAD].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Returns the frames of a client stream: the first one, and one for each piece of the body.
fn pieces(descriptor: MessageDescriptor, field: &'static str, first: Vec<u8>, body: Body) -> Body {
    let pieces = body.into_data_stream().map(move |piece| {
        let mut message = DynamicMessage::new(descriptor.clone());
        message.set_field_by_name(field, prost_reflect::Value::Bytes(piece?));
        frame(&message).map_err(|error| axum::Error::new(error.to_string()))
    });
    Body::from_stream(tokio_stream::once(Ok(first)).chain(pieces))
}

/// Reads a body. One that is too large is read on for as long again: many clients report no answer that comes before
/// they have sent everything.
async fn whole(mut body: Body, most: usize) -> ApiResult<Vec<u8>> {
    let (mut whole, mut bytes) = (Vec::new(), 0);
    while bytes <= 2 * most
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| ApiError::of_field("body", format!("cannot be read: {error}")))?;
        let data = frame.into_data().unwrap_or_default();
        bytes += data.len();
        match bytes <= most {
            true => whole.extend_from_slice(&data),
            false => whole = Vec::new(),
        }
    }
    if bytes > most { Err(too_large(most)) } else { Ok(whole) }
}

/// Reads and drops a body, as far as a request may be large. Clients such as curl report a broken stream, and no
/// answer, if the answer ends while they still send.
pub async fn discard(mut body: Body) {
    let mut bytes = 0;
    while bytes <= DISCARDED_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        bytes += frame.into_data().unwrap_or_default().len();
    }
}

fn too_large(most: usize) -> ApiError {
    error_texts::request_too_large("its body", most)
}

/// Where a value outside of the body was given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Query,
    Header,
}

/// Adds a field that was given outside of the body. Its name may be a path of fields (`filter.reason`).
fn add(
    descriptor: &MessageDescriptor,
    fields: &mut Map<String, Value>,
    name: &str,
    text: &str,
    place: Place,
) -> ApiResult<()> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let field = descriptor.get_field_by_name(first).or_else(|| descriptor.get_field_by_json_name(first));
    let field = field.ok_or_else(|| ApiError::of_field(name, "is not a field of this request"))?;
    // The body may use either name of a field.
    let key = [field.name(), field.json_name()].into_iter().find(|key| fields.contains_key(*key));
    let key = key.unwrap_or(field.name()).to_owned();
    let Some(rest) = rest else {
        let value = value_of(&field, text).ok_or_else(|| ApiError::of_field(name, format!("cannot be '{text}'")))?;
        return match fields.get_mut(&key) {
            Some(Value::Array(values)) if place == Place::Query && field.is_list() => {
                values.push(value);
                Ok(())
            }
            Some(known) if *known == value || *known == Value::String(String::new()) => {
                *known = value;
                Ok(())
            }
            Some(_) => Err(ApiError::of_field(name, "is given twice, with two values")),
            None => {
                fields.insert(key, if field.is_list() { Value::Array(vec![value]) } else { value });
                Ok(())
            }
        };
    };
    let Kind::Message(inner) = field.kind() else {
        return Err(ApiError::of_field(name, "is not a field of this request"));
    };
    match fields.entry(key).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(known) => add(&inner, known, rest, text, place),
        _ => Err(ApiError::of_field(first, "is not a JSON object")),
    }
}

/// Returns a text as the JSON value of a field. `None`: it cannot be one.
fn value_of(field: &FieldDescriptor, text: &str) -> Option<Value> {
    match field.kind() {
        Kind::Bool => match text {
            "true" | "" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        // Numbers may be strings in JSON of protobuf, and times, durations, masks and names of enums are.
        _ => Some(Value::String(text.to_owned())),
    }
}
