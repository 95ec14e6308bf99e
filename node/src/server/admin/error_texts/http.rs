//! Errors that only requests over HTTP have.

use reveille_proto::admin::v1::ErrorReason;
use tonic::Code;

use super::{SMALLER, broken};
use crate::server::admin::error::ApiError;

/// The body of a request has more values than one may have.
pub fn too_many_values(most: usize) -> ApiError {
    let message = format!("the body has more than {most} values; nothing happened; {SMALLER}");
    ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, message)
}

/// The body of an HTTP request did not come in time, so nothing of it was done.
pub fn body_timed_out() -> ApiError {
    let message = "the body of the request did not come in time; nothing happened";
    ApiError::new(Code::Aborted, ErrorReason::BodyTimedOut, message)
}

/// The body of an HTTP request has a `Content-Encoding`.
pub fn encoded(encoding: &str) -> ApiError {
    let message = format!("the body is encoded as '{encoding}'; send it without Content-Encoding");
    ApiError::new(Code::InvalidArgument, ErrorReason::UnsupportedEncoding, message)
}

/// No call has this path over HTTP, or not with this verb.
pub fn no_such_call(code: Code, message: String) -> ApiError {
    ApiError::new(code, ErrorReason::NoSuchCall, message)
}

/// The answer of a call could not be sent.
pub fn not_answered(why: &str) -> ApiError {
    broken(format!("the answer was not sent; if it has pages, ask for a smaller one: {why}"))
}

/// A page in a browser called.
pub fn of_web_page() -> ApiError {
    let message = "web pages cannot call this API: call it from a server";
    ApiError::new(Code::PermissionDenied, ErrorReason::NotPermitted, message)
}
