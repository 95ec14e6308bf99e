//! From the answer of a call to an HTTP response.

use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{FRAME_HEAD, HttpCall, HttpMethod};
use crate::api_json::{of_dynamic, text_of};
use crate::csv_rows::{csv, record};
use crate::server::admin::access::BodyPart;
use crate::server::admin::error_texts;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_LINES: HeaderValue = HeaderValue::from_static("application/jsonl");
const CSV: HeaderValue = HeaderValue::from_static("text/csv");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Returns the response to an HTTP request: one message, or for a stream of messages a line each.
pub async fn of_call(call: &HttpCall, answer: Response) -> Response {
    let method = &call.method;
    let (head, body) = answer.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers).filter(|status| status.code() != Code::Ok) {
        return problem(&status, Some(method));
    }
    let mut messages = Messages { body, unread: Vec::new(), kind: method.method.output() };
    if method.method.is_server_streaming() {
        return stream(messages, method, call.is_csv && method.is_export()).await;
    }
    match messages.next().await {
        Ok(Some(message)) => match messages.next().await {
            Ok(_) => one(&message),
            Err(status) => problem(&status, Some(method)),
        },
        Ok(None) => problem(&broken("an answer without a message"), None),
        Err(status) => problem(&status, Some(method)),
    }
}

/// Returns the response to a path that is not served with this verb, but with these.
pub fn not_found(verbs: &[&'static str]) -> Response {
    if verbs.is_empty() {
        let next = format!("this path is not served; GET {} lists all", super::OPENAPI);
        return problem(&error_texts::no_such_call(Code::NotFound, next).into(), None);
    }
    let allowed = verbs.join(", ");
    let message = format!("this path is served with {allowed}");
    let status = error_texts::no_such_call(Code::Unimplemented, message).into();
    let allow = HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static("GET"));
    let mut response = problem_with(StatusCode::METHOD_NOT_ALLOWED, &status, None);
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// Returns the response to a request of a web page.
pub fn of_web_page() -> Response {
    problem(&error_texts::of_web_page().into(), None)
}

fn broken(message: impl Into<String>) -> Status {
    error_texts::broken(message).into()
}

/// The messages of an answer.
struct Messages {
    body: Body,
    unread: Vec<u8>,
    kind: MessageDescriptor,
}

impl Messages {
    /// Returns the next message; `None` at a good end.
    ///
    /// # Errors
    /// The status at the end, or of an answer that breaks off.
    async fn next(&mut self) -> Result<Option<DynamicMessage>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let frame = match Pin::new(&mut self.body).frame().await {
                Some(frame) => frame.map_err(|error| broken(error.to_string()))?,
                None => return Err(broken("the answer has no end")),
            };
            match frame.into_data() {
                Ok(data) => self.unread.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return match Status::from_header_map(&trailers) {
                        Some(status) if status.code() == Code::Ok => Ok(None),
                        // The library's own, such as for an answer that is too large.
                        Some(status) if status.details().is_empty() && status.code() == Code::OutOfRange => {
                            Err(error_texts::not_answered(status.message()).into())
                        }
                        Some(status) => Err(status),
                        None => Err(broken("the answer has no status")),
                    };
                }
            }
        }
    }

    /// Takes a whole message from what was read.
    fn take(&mut self) -> Result<Option<DynamicMessage>, Status> {
        let Some(head) = self.unread.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(message) = self.unread.get(FRAME_HEAD..FRAME_HEAD + length) else { return Ok(None) };
        let message = DynamicMessage::decode(self.kind.clone(), message).map_err(|error| broken(error.to_string()))?;
        self.unread.drain(..FRAME_HEAD + length);
        Ok(Some(message))
    }
}

fn one(message: &DynamicMessage) -> Response {
    let mut response = (StatusCode::OK, text_of(message)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    if let Some(etag) = etag(message) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Returns the etag of an answer that has one resource, or is one.
fn etag(message: &DynamicMessage) -> Option<HeaderValue> {
    let own = |message: &DynamicMessage| {
        let etag = message.get_field_by_name("etag")?;
        let etag = etag.as_str().filter(|etag| !etag.is_empty())?;
        HeaderValue::from_str(&format!("\"{etag}\"")).ok()
    };
    own(message).or_else(|| message.fields().find_map(|(_, value)| own(value.as_message()?)))
}

/// True if the client accepts CSV, and names it before JSON lines.
pub fn prefers_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds =
        accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default().trim());
    kinds.into_iter().find(|kind| CSV == *kind || JSON_LINES == *kind).is_some_and(|kind| CSV == kind)
}

/// Returns a response with a line for each message. An error after the first line is a last line with the problem as
/// its only field `error`; CSV has no line for it, so there the response breaks off.
async fn stream(mut messages: Messages, method: &HttpMethod, is_csv: bool) -> Response {
    let first = match messages.next().await {
        Ok(first) => first,
        Err(status) => return problem(&status, Some(method)),
    };
    let columns: Option<Vec<String>> =
        is_csv.then(|| messages.kind.fields().map(|field| field.json_name().to_owned()).collect());
    let (lines, received) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let mut heading = columns.clone().map(|columns| csv([columns])).unwrap_or_default();
        let mut next: Result<_, Status> = Ok(first);
        loop {
            let line = match (&next, &columns) {
                (Ok(Some(message)), Some(columns)) => Ok(csv([record(&of_dynamic(message), columns)])),
                (Ok(Some(message)), None) => Ok(format!("{}\n", of_dynamic(message))),
                (Ok(None), _) if heading.is_empty() => return,
                (Ok(None), _) => Ok(String::new()),
                (Err(status), Some(_)) => Err(std::io::Error::other(status.message().to_owned())),
                (Err(status), None) => {
                    Ok(format!("{}\n", json!({ "error": problem_fields(http_status(status), status, None) })))
                }
            };
            let is_last = !matches!(next, Ok(Some(_)));
            let line = line.map(|line| Bytes::from(std::mem::take(&mut heading) + &line));
            // Fails when the client has gone.
            if lines.send(line).await.is_err() || is_last {
                return;
            }
            next = messages.next().await;
        }
    });
    let mut response = Body::from_stream(ReceiverStream::new(received)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, if is_csv { CSV } else { JSON_LINES });
    response
}

/// Returns a problem of RFC 9457. Paths of fields are those of the body of the request.
fn problem(status: &Status, method: Option<&HttpMethod>) -> Response {
    problem_with(http_status(status), status, method)
}

fn problem_with(code: StatusCode, status: &Status, method: Option<&HttpMethod>) -> Response {
    let fields = Value::Object(problem_fields(code, status, method));
    let mut response = (code, fields.to_string()).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM);
    let added: Option<(HeaderName, HeaderValue)> = match code {
        // RFC 9110, section 15.5.16: which encodings it may have.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Some((header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))),
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        _ => None,
    };
    headers.extend(added);
    // RetryInfo of gRPC, in seconds.
    if let Some(delay) = status.get_details_retry_info().and_then(|info| info.retry_delay) {
        headers.insert(header::RETRY_AFTER, delay.as_secs().max(1).into());
    }
    response
}

fn problem_fields(code: StatusCode, status: &Status, method: Option<&HttpMethod>) -> Map<String, Value> {
    let mut problem = Map::new();
    problem.insert("type".to_owned(), "about:blank".into());
    problem.insert("title".to_owned(), code.canonical_reason().unwrap_or_default().into());
    problem.insert("status".to_owned(), code.as_u16().into());
    problem.insert("detail".to_owned(), status.message().into());
    let details = status.get_error_details();
    if let Some(info) = details.error_info() {
        problem.insert("reason".to_owned(), info.reason.as_str().into());
        problem.extend(info.metadata.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    }
    if let Some(request) = details.bad_request() {
        let in_body = |field: &str| match method {
            // It is a header of the request.
            Some(called) if field == "content_type" && matches!(called.http.body, BodyPart::Pieces(_)) => {
                header::CONTENT_TYPE.to_string()
            }
            Some(called) => {
                let path = json_path(&called.method.input(), field);
                match called.http.body {
                    BodyPart::Field(body) if path == body => "body",
                    BodyPart::Field(body) => {
                        path.strip_prefix(body).and_then(|rest| rest.strip_prefix('.')).unwrap_or(&path)
                    }
                    BodyPart::None | BodyPart::Whole | BodyPart::Pieces(_) => &path,
                }
                .to_owned()
            }
            None => field.to_owned(),
        };
        let fields = &request.field_violations;
        if let Some(first) = fields.first()
            && let Some(rest) = status.message().strip_prefix(&format!("{}: ", first.field))
        {
            problem.insert("detail".to_owned(), format!("{}: {rest}", in_body(&first.field)).into());
        }
        let fields = fields.iter();
        let fields = fields.map(|wrong| json!({ "field": in_body(&wrong.field), "detail": wrong.description }));
        problem.insert("fields".to_owned(), fields.collect());
    }
    problem
}

/// Returns the path of a field of a message with the names that JSON has: `max_runs` is `maxRuns`. Keys of maps stay.
fn json_path(message: &MessageDescriptor, path: &str) -> String {
    let mut message = Some(message.clone());
    let parts = path.split('.').map(|part| {
        let (name, index) = part.split_at(part.find('[').unwrap_or(part.len()));
        let Some(field) = message.take().and_then(|message| message.get_field_by_name(name)) else {
            return part.to_owned();
        };
        message = field.kind().as_message().filter(|_| !field.is_map()).cloned();
        format!("{}{index}", field.json_name())
    });
    parts.collect::<Vec<_>>().join(".")
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Returns the status of HTTP. 504 alone says that the outcome is not known.
fn http_status(status: &Status) -> StatusCode {
    match (status.code(), reason(status).as_str()) {
        (_, "ETAG_MISMATCH") => StatusCode::PRECONDITION_FAILED,
        (_, "CURSOR_TOO_OLD") => StatusCode::GONE,
        (_, "BUSY") => StatusCode::TOO_MANY_REQUESTS,
        // The node cannot handle it now, and the client did nothing wrong.
        (_, "NO_ROOM") => StatusCode::SERVICE_UNAVAILABLE,
        (_, "BODY_TIMED_OUT") => StatusCode::REQUEST_TIMEOUT,
        (_, "UNSUPPORTED_ENCODING") => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        (_, "TOO_LARGE") => StatusCode::PAYLOAD_TOO_LARGE,
        (Code::InvalidArgument | Code::OutOfRange, _) => StatusCode::BAD_REQUEST,
        (Code::Unauthenticated, _) => StatusCode::UNAUTHORIZED,
        (Code::PermissionDenied, _) => StatusCode::FORBIDDEN,
        (Code::NotFound, _) => StatusCode::NOT_FOUND,
        (Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition, _) => StatusCode::CONFLICT,
        (Code::ResourceExhausted, _) => StatusCode::TOO_MANY_REQUESTS,
        (Code::Unimplemented, _) => StatusCode::NOT_IMPLEMENTED,
        (Code::Unavailable, _) => StatusCode::SERVICE_UNAVAILABLE,
        (Code::DeadlineExceeded, _) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
