//! An answer that is not what was asked for: what, where, why, and the command to try next.
//!
//! Every service gives one of these; it becomes a gRPC status with the details that `errors.proto`
//! describes. What is certain is in the code and the reason: only `OUTCOME_UNKNOWN` may have happened.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use reveille_proto::admin::v1::ErrorReason;
use reveille_raft::Member;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of all reasons.
const DOMAIN: &str = "reveille";
/// Fields that one answer names at most; the others are counted.
const FIELDS_MAX: usize = 20;
/// Key of [`ApiError::leaderless`].
pub const LEADERLESS: &str = "leaderless_ms";

/// Why there is no other answer.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    reason: ErrorReason,
    message: String,
    /// Key and value, as `errors.proto` lists them.
    metadata: Vec<(&'static str, String)>,
    fields: Vec<FieldViolation>,
}

/// One field of the request that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path into the request.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// What kind of wrong.
    pub reason: ErrorReason,
}

impl ApiError {
    /// A fault without details.
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> ApiError {
        let message = message.into();
        ApiError(Box::new(Inner { code, reason, message, metadata: Vec::new(), fields: Vec::new() }))
    }

    /// Fields that are wrong; the first gives the reason. `None`: no field is.
    pub fn of_fields(mut wrong: Vec<FieldViolation>) -> Option<ApiError> {
        let first = wrong.first()?;
        let more = match wrong.len() - 1 {
            0 => String::new(),
            1 => " (and 1 more field)".to_owned(),
            more => format!(" (and {more} more fields)"),
        };
        let message = format!("{}: {}{more}", first.field, first.message);
        let mut fault = ApiError::new(Code::InvalidArgument, first.reason, message);
        wrong.truncate(FIELDS_MAX);
        fault.0.fields = wrong;
        Some(fault)
    }

    /// One field that is wrong.
    pub fn of_field(field: impl Into<String>, message: impl Into<String>) -> ApiError {
        let violation =
            FieldViolation { field: field.into(), message: message.into(), reason: ErrorReason::InvalidField };
        let message = format!("{}: {}", violation.field, violation.message);
        let mut fault = ApiError::new(Code::InvalidArgument, violation.reason, message);
        fault.0.fields = vec![violation];
        fault
    }

    fn with(mut self, key: &'static str, value: String) -> ApiError {
        if !value.is_empty() {
            self.0.metadata.push((key, value));
        }
        self
    }

    /// The command to try next.
    pub fn next(self, command: impl Into<String>) -> ApiError {
        self.with("next", command.into())
    }

    /// The same, with the names that are nearly the one that was asked for.
    pub fn near(mut self, names: &[String]) -> ApiError {
        if !names.is_empty() {
            self.0.message.push_str(&format!("; did you mean {}?", names.join(", ")));
        }
        self
    }

    /// The id under which the request may be asked again; nothing when it is empty.
    pub fn request(self, id: &str) -> ApiError {
        self.with("request_id", id.to_owned())
    }

    /// The leader; none when it is not known.
    pub fn leader(self, leader: Option<&Member>) -> ApiError {
        let Some(leader) = leader else { return self };
        self.with("leader", leader.name.clone()).with("leader_address", leader.address.clone())
    }

    /// For how long no leader was heard: to wait for one is of no use.
    pub fn leaderless(self, silence: Duration) -> ApiError {
        self.with(LEADERLESS, silence.as_millis().to_string())
    }

    /// The log index of what stands in the way.
    pub fn index(self, index: u64) -> ApiError {
        self.with("index", index.to_string())
    }

    /// The gRPC code.
    #[cfg(test)]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What a key says.
    #[cfg(test)]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.0.metadata.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// The reason.
    pub fn reason(&self) -> ErrorReason {
        self.0.reason
    }
}

/// `NO_QUORUM` for `ERROR_REASON_NO_QUORUM`.
fn word(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.code, word(self.0.reason), self.0.message)
    }
}

impl From<ApiError> for Status {
    fn from(fault: ApiError) -> Status {
        let Inner { code, reason, message, metadata, fields } = *fault.0;
        let metadata: HashMap<String, String> =
            metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut details = ErrorDetails::with_error_info(word(reason), DOMAIN, metadata);
        for FieldViolation { field, message, .. } in fields {
            details.add_bad_request_violation(field, message);
        }
        Status::with_error_details(code, message, details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_its_reason_its_fields_and_what_to_try_next() {
        let wrong = |field: &str| FieldViolation {
            field: field.to_owned(),
            message: "is missing".to_owned(),
            reason: ErrorReason::InvalidField,
        };
        let fault = ApiError::of_fields(vec![wrong("schedule.zone"), wrong("schedule.name")]).expect("two fields");
        let status = Status::from(fault.next("reveille schedule create --help").request("").index(7));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "schedule.zone: is missing (and 1 more field)");
        let details = status.get_error_details();
        let info = details.error_info().expect("a reason");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("INVALID_FIELD", "reveille"));
        assert_eq!(info.metadata.get("next").map(String::as_str), Some("reveille schedule create --help"));
        assert_eq!(info.metadata.get("index").map(String::as_str), Some("7"));
        assert_eq!(info.metadata.get("request_id"), None);
        let fields = &details.bad_request().expect("fields").field_violations;
        let fields: Vec<&str> = fields.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["schedule.zone", "schedule.name"]);
        assert_eq!(ApiError::of_fields(Vec::new()), None);
    }
}
