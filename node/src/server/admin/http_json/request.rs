//! From an HTTP request to the message of a call.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, HeaderName, header};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use reveille_ledger::etag::NO_ETAG;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt as _;

use super::decode::{self, field_named};
use super::{FRAME_HEAD, HttpCall, HttpMethod, unique_keys};
use crate::server::admin::access::BodyPart;
use crate::server::admin::limits::request_bytes_max;
use crate::server::admin::{ApiError, ApiResult, error_texts};

/// Maximum bytes of a refused body that are read and dropped.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of commas in a JSON body: each may be a value, which takes some 130 bytes of memory beside three of the
/// body. 10,000 recipients with 30 variables have 320,000.
const VALUES_MAX: usize = 500_000;
/// Time for the next piece of a body.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// Time for a whole body: below that of all calls (`deadline::LONGEST`), whose error says that it may have happened.
const BODY_WITHIN: Duration = Duration::from_secs(100);
/// Name of the header with the request id (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

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
/// If the body is too large or encoded, does not come in time, is not JSON, or does not fit the message.
pub async fn messages(call: &HttpCall, headers: &HeaderMap, body: Body) -> ApiResult<Body> {
    let method = &call.method;
    let descriptor = method.method.input();
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let refused = error_texts::encoded(&String::from_utf8_lossy(encoding.as_bytes()));
        discard(body).await;
        return Err(refused);
    }
    let mut fields = Map::new();
    if let BodyPart::Pieces(field) = method.http.body {
        let head = add_from_head(call, headers, &mut fields);
        let first = head.and_then(|()| frame(&decode::message(&descriptor, fields, None)?));
        return match first {
            Ok(first) => Ok(pieces(descriptor, field, first, body)),
            Err(refused) => {
                discard(body).await;
                Err(refused)
            }
        };
    }
    let most = request_bytes_max(method.method.parent_service().full_name());
    let body = whole(body, most).await?;
    if !body.iter().all(u8::is_ascii_whitespace) {
        match method.http.body {
            BodyPart::None | BodyPart::Pieces(_) => {
                return Err(ApiError::of_field("body", "is given, but this request has none"));
            }
            BodyPart::Whole => match json(&body)? {
                Value::Object(whole) => fields = whole,
                _ => return Err(ApiError::of_field("body", "is not a JSON object")),
            },
            BodyPart::Field(field) => {
                fields.insert(field.to_owned(), json(&body)?);
            }
        }
    }
    add_from_head(call, headers, &mut fields)?;
    let masked = match method.http.body {
        BodyPart::Field(field) => descriptor.get_field_by_name(field).map(|field| field.kind()),
        BodyPart::None | BodyPart::Whole | BodyPart::Pieces(_) => None,
    };
    let masked = masked.as_ref().and_then(Kind::as_message);
    Ok(Body::from(frame(&decode::message(&descriptor, fields, masked)?)?))
}

fn json(body: &[u8]) -> ApiResult<Value> {
    if body.iter().filter(|byte| **byte == b',').count() > VALUES_MAX {
        return Err(error_texts::too_many_values(VALUES_MAX));
    }
    unique_keys::from_slice(body).map_err(|error| {
        let what = if error.is_data() { "" } else { "is not JSON: " };
        ApiError::of_field("body", format!("{what}{error}"))
    })
}

/// Returns the field that the header `Idempotency-Key` gives. The key of a message is its request id; where it is in
/// the path, the header has nothing to say.
pub fn id_field(descriptor: &MessageDescriptor, is_path_empty: bool) -> &'static str {
    if is_path_empty && descriptor.get_field_by_name("key").is_some() { "key" } else { "request_id" }
}

/// Adds the fields in query, path and headers.
fn add_from_head(call: &HttpCall, headers: &HeaderMap, fields: &mut Map<String, Value>) -> ApiResult<()> {
    let method = &call.method;
    let descriptor = &method.method.input();
    for (name, value) in form_urlencoded::parse(call.query.as_bytes()) {
        add(descriptor, fields, &name, &value, Place::Query)?;
    }
    for (name, value) in &call.in_path {
        add(descriptor, fields, name, value, Place::Path)?;
    }
    let has = |field: &str| descriptor.get_field_by_name(field).is_some();
    if let Some(key) = value_of_header(headers, &IDEMPOTENCY_KEY)? {
        let request_id = id_field(descriptor, call.in_path.is_empty());
        let key = key.trim_matches('"');
        if key.trim().is_empty() {
            let message = "is empty, so a repeat would not be known; give a key, or leave the header out";
            return Err(ApiError::of_field(IDEMPOTENCY_KEY.as_str(), message));
        }
        if has(request_id) {
            add(descriptor, fields, request_id, key, Place::Header)?;
        } else if !method.is_idempotent {
            let message = "is given, but this request keeps no key, and its repeat may do more; leave the key out, and \
                look before you repeat it";
            return Err(ApiError::of_field(IDEMPOTENCY_KEY.as_str(), message));
        }
    }
    if let Some(etag) = etag(method, headers, has("etag"))? {
        add(descriptor, fields, "etag", etag, Place::Header)?;
    }
    if let Some(kind) = value_of_header(headers, &header::CONTENT_TYPE)?.filter(|_| has("content_type")) {
        add(descriptor, fields, "content_type", kind, Place::Header)?;
    }
    Ok(())
}

/// Returns the value of a header that may be there once.
fn value_of_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> ApiResult<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::of_field(name.as_str(), "is given twice; give it once"));
    }
    value.to_str().map(Some).map_err(|_| ApiError::of_field(name.as_str(), "is not an ASCII text"))
}

/// Returns the etag that the conditions of a request name (RFC 9110, section 13). `*` is any etag.
///
/// # Errors
/// If the request cannot check the condition: a condition that is not checked must not pass.
fn etag<'h>(method: &HttpMethod, headers: &'h HeaderMap, has_etag: bool) -> ApiResult<Option<&'h str>> {
    // To a read it would only spare the answer, and a server may always give that.
    let none_match = value_of_header(headers, &header::IF_NONE_MATCH)?.filter(|_| method.http.verb != "GET");
    let (name, wrong) = match (value_of_header(headers, &header::IF_MATCH)?, none_match) {
        (None, None) => return Ok(None),
        (None, Some("*")) if method.http.verb == "PUT" && has_etag => return Ok(Some(NO_ETAG)),
        (None, Some(_)) => {
            (header::IF_NONE_MATCH, "is given, but this request cannot check it: only `*` is checked, by a PUT")
        }
        (Some(_), Some(_)) => (header::IF_NONE_MATCH, "is given together with if-match; give one of them"),
        (Some(etags), None) => {
            let wrong = match etags.trim() {
                _ if !has_etag => "is given, but this request has no etag",
                "" | "\"\"" => "is empty; give the etag of the last answer, or * for any",
                weak if weak.starts_with("W/") => {
                    "names a weak etag, which never matches; give the etag of the last answer"
                }
                list if list.contains(',') => "names several etags; give the one of the last answer, or *",
                one => return Ok(Some(one.trim_matches('"'))),
            };
            (header::IF_MATCH, wrong)
        }
    };
    Err(ApiError::of_field(name.as_str(), wrong))
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
/// they have sent everything. One that announces more is not read.
async fn whole(mut body: Body, most: usize) -> ApiResult<Vec<u8>> {
    if body.size_hint().lower() > 2 * most as u64 {
        return Err(too_large(most));
    }
    let ends = Instant::now() + BODY_WITHIN;
    let (mut whole, mut bytes) = (Vec::new(), 0);
    while bytes <= 2 * most
        && let Some(data) = piece(&mut body, ends).await?
    {
        bytes += data.len();
        match bytes <= most {
            true => whole.extend_from_slice(&data),
            false => whole = Vec::new(),
        }
    }
    if bytes > most { Err(too_large(most)) } else { Ok(whole) }
}

/// Returns the next piece of a body; `None` at its end.
async fn piece(body: &mut Body, ends: Instant) -> ApiResult<Option<Bytes>> {
    let next = timeout_at(ends.min(Instant::now() + PIECE_WITHIN), body.frame());
    match next.await.map_err(|_| error_texts::body_timed_out())? {
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(ApiError::of_field("body", format!("cannot be read: {error}"))),
        None => Ok(None),
    }
}

/// Reads and drops a body, as far as a request may be large and in the time that it may take. Clients such as curl
/// report a broken stream, and no answer, if the answer ends while they still send.
pub async fn discard(mut body: Body) {
    let ends = Instant::now() + BODY_WITHIN;
    let mut bytes = 0;
    while bytes <= DISCARDED_BYTES_MAX
        && let Ok(Some(data)) = piece(&mut body, ends).await
    {
        bytes += data.len();
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
    let field = field_named(descriptor, first);
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
            Some(known) if *known == value || *known == Value::String(String::new()) || known.is_null() => {
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
