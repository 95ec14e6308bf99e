//! Validates requests and turns them into types that can be proposed.
//!
//! The services call it before anything else. It checks all fields of a request, so that one error reports all invalid
//! ones: the path of the field, what is wrong, and what to write instead.

mod audience;
mod canary;
mod clock;
mod content;
pub mod day;
#[cfg(test)]
mod limits_tests;
mod message;
mod policies;
mod pool;
mod relay;
mod schedule;
#[cfg(test)]
mod tests;
mod token;
mod when;

use std::fmt::Display;

use prost_types::{Duration, Timestamp};
use reveille_ledger::address::Address;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1::ErrorReason;

use super::error::FieldViolation;
use super::{ApiError, ApiResult};
use crate::format::whole_units;

pub use audience::columns;
pub use canary::canary;
pub use clock::target as clock_target;
pub use content::{chosen_content, content, template_name};
pub use message::{
    CheckedMessage, key_rule, list_fits, list_of_trigger, listed, message_fields, message_parts, without_schedule,
};
pub use pool::{pool, tenant_bounds};
pub use relay::relay;
pub use schedule::{CheckContext, CheckedSchedule, no_relay_of, schedule};
pub use token::{join_token_valid_for, token_grant};

/// Maximum length of a schedule's name, in characters.
pub const SCHEDULE_NAME_MAX: usize = 128;
/// Maximum length of any other name, in characters.
pub const NAME_MAX: usize = 64;
/// Maximum length of a request id, in bytes.
const REQUEST_ID_MAX: usize = 128;
/// Maximum length of an etag, in bytes. Those of answers are shorter.
const ETAG_MAX: usize = 128;
/// Maximum length of a reason, in characters. Operators read it.
const REASON_MAX: usize = 500;

/// Collects the invalid fields of a request.
#[derive(Default)]
pub struct Fields {
    wrong: Vec<FieldViolation>,
}

impl Fields {
    /// Records an invalid field.
    pub fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.refuse_as(ErrorReason::InvalidField, field, message);
    }

    /// Records an invalid field with a reason code for programs.
    pub fn refuse_as(&mut self, reason: ErrorReason, field: impl Into<String>, message: impl Into<String>) {
        self.wrong.push(FieldViolation { field: field.into(), message: message.into(), reason });
    }

    /// Returns the value, or records the error and returns `None`.
    pub fn take<T, E: Display>(&mut self, field: &str, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    /// Returns the value if no field is invalid, else the error with all invalid fields.
    pub fn done<T>(self, value: Option<T>) -> ApiResult<T> {
        match (ApiError::of_fields(self.wrong), value) {
            (Some(fault), _) => Err(fault),
            (None, Some(value)) => Ok(value),
            // `None` means that a field was refused. This case checks it instead of assuming it.
            (None, None) => Err(ApiError::of_field("request", "is incomplete")),
        }
    }

    /// Checks a name: letters, digits, `-`, `_` and `.`, and not more than `max` characters.
    pub fn name(&mut self, field: &str, text: &str, max: usize) -> String {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if text.is_empty() {
            self.refuse(field, "is missing");
        } else if text.chars().nth(max).is_some() {
            self.refuse(field, format!("has {} characters, more than {max}", text.chars().count()));
        } else if !text.bytes().all(inside) || !text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            let form = "use letters, digits, '-', '_' and '.', beginning with a letter or a digit";
            self.refuse(field, format!("{text:?} is not a name; {form}"));
        }
        text.to_owned()
    }

    /// Checks a name, or returns `default` if the text is empty.
    pub fn name_or(&mut self, field: &str, text: &str, default: &str) -> String {
        if text.is_empty() { default.to_owned() } else { self.name(field, text, NAME_MAX) }
    }

    /// Checks a short text that operators read: one line.
    pub fn reason(&mut self, field: &str, text: &str) -> String {
        if text.chars().count() > REASON_MAX {
            self.refuse(field, format!("has more than {REASON_MAX} characters; shorten it"));
        } else if text.chars().any(char::is_control) {
            self.refuse(field, "holds a control character; write it on one line");
        }
        text.to_owned()
    }

    /// Checks a request id. Returns `None` if it is empty.
    pub fn request_id(&mut self, text: &str) -> Option<String> {
        self.key("request_id", text);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Checks the etag of a condition. Returns `None` if it is empty.
    pub fn etag(&mut self, text: &str) -> Option<String> {
        if text.len() > ETAG_MAX {
            self.refuse("etag", "is too long; give the etag of the last answer");
        }
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Checks a request id or the key of a message.
    pub fn key(&mut self, field: &str, text: &str) {
        if !is_key(text) {
            self.refuse(field, "is too long or holds blanks; use a UUID");
        }
    }

    /// Checks an instant, and returns it in whole milliseconds.
    pub fn instant(&mut self, field: &str, timestamp: Timestamp) -> Option<Time> {
        let read = instant(timestamp).ok_or("is not an instant between the years -9999 and 9999");
        self.take(field, read)
    }

    /// Checks a duration, and returns it in milliseconds. An absent or zero duration means the default.
    pub fn length(&mut self, field: &str, length: Option<Duration>, bounds: DurationBounds) -> i64 {
        let requested = match length {
            None | Some(Duration { seconds: 0, nanos: 0 }) => return bounds.default_ms,
            Some(length) => milliseconds(length),
        };
        if let Some(ms) = requested.filter(|ms| (bounds.least_ms..=bounds.most_ms).contains(ms)) {
            return ms;
        }
        let given = requested.map_or_else(|| "not a length of time".to_owned(), whole_units);
        let (least, most) = (whole_units(bounds.least_ms), whole_units(bounds.most_ms));
        self.refuse(field, format!("is {given}; give from {least} to {most}"));
        bounds.default_ms
    }
}

/// Bounds and default of a duration, in milliseconds.
#[derive(Clone, Copy)]
pub struct DurationBounds {
    /// Least duration.
    pub least_ms: i64,
    /// Greatest duration.
    pub most_ms: i64,
    /// Used if the request has none.
    pub default_ms: i64,
}

/// Reads the states that a list selects, as values of the API's enumeration `S`.
pub fn states<S: TryFrom<i32>>(requested: &[i32]) -> ApiResult<Vec<S>> {
    // 0 is UNSPECIFIED, in which no object is.
    let known = |state: &i32| Some(*state).filter(|state| *state != 0).and_then(|state| S::try_from(state).ok());
    let states: Option<_> = requested.iter().map(known).collect();
    states.ok_or_else(|| ApiError::of_field("states", "holds a state that this node does not know"))
}

/// Returns whole milliseconds. Returns `None` if the duration is negative or too large.
pub fn milliseconds(length: Duration) -> Option<i64> {
    let fits = length.seconds >= 0 && (0..1_000_000_000).contains(&length.nanos);
    let ms = length.seconds.checked_mul(1_000)?.checked_add(i64::from(length.nanos) / 1_000_000)?;
    fits.then_some(ms)
}

/// Returns true for a text that may be a request id or the key of a message.
pub fn is_key(text: &str) -> bool {
    text.len() <= REQUEST_ID_MAX && !text.chars().any(|one| one.is_control() || one.is_whitespace())
}

/// Checks the field `reason`.
pub fn reason(text: &str) -> ApiResult<String> {
    let mut fields = Fields::default();
    let reason = fields.reason("reason", text);
    fields.done(Some(reason))
}

/// Parses an address, and returns its key.
pub fn address_key(field: &str, text: &str) -> ApiResult<String> {
    Address::parse(text).map(|address| address.key()).map_err(|error| ApiError::of_field(field, error.to_string()))
}

/// Returns an instant in whole milliseconds. `None`: it is not one between the years -9999 and 9999.
pub fn instant(Timestamp { seconds, nanos }: Timestamp) -> Option<Time> {
    let whole = (0..1_000_000_000).contains(&nanos).then(|| jiff::Timestamp::new(seconds, nanos).ok());
    whole.flatten().map(Time::from)
}

/// Checks the field `etag`.
pub fn etag(text: &str) -> ApiResult<Option<String>> {
    let mut fields = Fields::default();
    let etag = fields.etag(text);
    fields.done(Some(etag))
}

/// Checks the fields `since_time` and `until_time` of a list.
pub fn time_range(
    since: Option<prost_types::Timestamp>,
    until: Option<prost_types::Timestamp>,
) -> ApiResult<(Option<Time>, Option<Time>)> {
    let mut fields = Fields::default();
    let since = since.and_then(|since| fields.instant("since_time", since));
    let until = until.and_then(|until| fields.instant("until_time", until));
    fields.done(Some((since, until)))
}

/// Checks the tenant's name. An empty name means the default tenant.
pub fn tenant(text: &str) -> ApiResult<String> {
    let mut fields = Fields::default();
    let tenant = fields.name_or("tenant", text, reveille_ledger::DEFAULT_TENANT);
    fields.done(Some(tenant))
}
