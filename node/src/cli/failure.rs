//! The failure of a command: what failed, where, why, the next command to try, and the exit code for scripts.
//!
//! Reasons are those of `reveille.admin.v1.ErrorReason` without their prefix. Failures that never reached a node have
//! their own: USAGE, FILE, UNREACHABLE, ANSWER_LOST, TIMED_OUT, INTERRUPTED, PARTLY_DONE.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{format, next_step};
pub use crate::recipients::BadRow;
use crate::server::admin::REQUEST_ID;

/// Exit code of a command. The numbers are fixed, because scripts use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done = 0,
    /// A failure without an exit code of its own.
    #[default]
    General = 1,
    /// The command line, a value in it, or a file is invalid.
    Usage = 2,
    /// A named object does not exist.
    NotFound = 3,
    /// The object's state does not allow the request, or the etag is stale.
    Conflict = 4,
    /// No node answers, or there is no leader or no quorum.
    NoQuorum = 5,
    /// Not allowed.
    Denied = 6,
    /// Only a part was done.
    Partly = 7,
    /// No answer in time; the request may have been carried out.
    TimedOut = 8,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// Returns the number that the shell receives.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command did not do what it should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Exit code of the process.
    #[serde(skip)]
    pub exit: Exit,
    /// Reason code for programs, in UPPER_SNAKE.
    pub reason: Box<str>,
    /// Message for the user: what failed and why.
    pub message: String,
    /// Place of the error: a flag, `file:line`, or a field path of the request.
    pub field: Option<String>,
    /// Next step for the user.
    pub next: Option<String>,
    /// Id under which the same request may be repeated.
    pub request_id: Option<Box<str>>,
    /// Unusable rows of a file, if they are the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad_rows: Option<Box<BadRows>>,
}

/// Unusable rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BadRows {
    /// Number of all unusable rows.
    pub count: u64,
    /// The first unusable rows, at most [`BAD_ROWS_SHOWN`].
    pub shown: Vec<BadRow>,
}

/// Limit of unusable rows that an error lists; the rest is only counted.
pub const BAD_ROWS_SHOWN: usize = 20;

/// Why a command ends without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The command failed.
    Failed(Box<Failure>),
    /// The reader of stdout closed the pipe, as `| head` does. This is no error.
    PipeClosed,
    /// The command succeeded, and its answer is no: exit code 1 without a message.
    No,
    /// Ctrl-C ended a watch: exit code 130 without a message.
    Left,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(Box::new(failure))
    }
}

impl Failure {
    /// Failure with a message and a next step.
    pub fn new(exit: Exit, reason: &str, message: impl Into<String>, next: impl Into<String>) -> Failure {
        let (message, next) = (message.into(), Some(next.into()));
        Failure { exit, reason: reason.into(), message, next, ..Failure::default() }
    }

    /// Failure without a reason of its own: exit code 1.
    pub fn general(message: impl Into<String>, next: &str) -> Failure {
        Failure::new(Exit::General, "GENERAL", message, next)
    }

    /// Failure of a command that did only a part: exit code 7.
    pub fn partly(message: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::new(Exit::Partly, "PARTLY_DONE", message, next)
    }

    /// Failure because the time of the command is over: exit code 8.
    pub fn timed_out(message: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::new(Exit::TimedOut, "TIMED_OUT", message, next)
    }

    /// Failure for an invalid value on the command line: exit code 2.
    pub fn usage(field: &str, message: impl Into<String>, next: &str) -> Failure {
        Failure::new(Exit::Usage, "USAGE", message, next).at(field)
    }

    /// Returns the same failure at a place.
    pub fn at(self, field: impl Into<String>) -> Failure {
        Failure { field: Some(field.into()), ..self }
    }

    /// Returns the same failure with another next step.
    pub fn then(self, next: impl Into<String>) -> Failure {
        Failure { next: Some(next.into()), ..self }
    }

    /// Failure for an unusable file, named by path or `path:line`: exit code 2.
    pub fn file(place: impl Into<String>, message: impl Into<String>) -> Failure {
        let next = "correct the file, or name another, and give the command again";
        Failure::new(Exit::Usage, "FILE", message, next).at(place)
    }

    /// Failure because of unusable rows. Nothing was done: `what` is the participle for it, such as `sealed`. `all`
    /// says where all rows are listed, if the failure lists only some.
    pub fn bad_rows(path: &Path, what: &str, bad: BadRows, all: Option<String>) -> Failure {
        let all = all.filter(|_| bad.count > bad.shown.len() as u64).map(|all| format!("; {all}")).unwrap_or_default();
        let rows = format::counted(bad.count, "row");
        let message = format!("{rows} of {} cannot be used, so nothing was {what}{all}", path.display());
        let line = bad.shown.first().map(|bad| bad.line).unwrap_or_default();
        let failure = Failure::file(format!("{}:{line}", path.display()), message);
        let failure = failure.then("correct them, or leave them out with --skip-bad-rows");
        Failure { bad_rows: Some(Box::new(bad)), ..failure }
    }

    /// Returns the message for the user, with one line for each unusable row.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        let Some(BadRows { count, shown }) = self.bad_rows.as_deref() else { return text };
        shown.iter().for_each(|bad| text.push_str(&format!("\n  {bad}")));
        if let Some(more) = count.checked_sub(shown.len() as u64).filter(|more| *more > 0) {
            text.push_str(&format!("\n  and {} more", format::count(more)));
        }
        text
    }

    /// Converts the status that a node answered.
    pub fn of_status(status: &Status) -> Failure {
        let info = status.get_details_error_info();
        let (reason, facts) = match info {
            Some(info) => (info.reason, info.metadata),
            None => (code_name(status.code()), HashMap::new()),
        };
        let reason = reason.into_boxed_str();
        let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
        let mut message = status.message().to_owned();
        for violation in &violations {
            if !message.contains(&violation.description) {
                let separator = if message.is_empty() { "" } else { "\n  " };
                message = format!("{message}{separator}{}: {}", violation.field, violation.description);
            }
        }
        Failure {
            exit: exit_of(status.code()),
            next: next_step::of(&reason, &facts, &violations),
            message: if message.is_empty() { format!("the node answered {reason}") } else { message },
            field: violations.first().map(|violation| violation.field.clone()),
            request_id: facts.get(REQUEST_ID).cloned().map(String::into_boxed_str),
            bad_rows: None,
            reason,
        }
    }

    /// True if the command's other requests would fail in the same way.
    pub fn concerns_all(&self) -> bool {
        matches!(self.exit, Exit::NoQuorum | Exit::TimedOut | Exit::Denied)
    }

    /// Returns the object that `-o json` prints on stderr, in one line.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Shell<'a> {
            error: &'a Failure,
        }
        // Cannot fail: it serializes strings to memory.
        serde_json::to_string(&Shell { error: self }).unwrap_or_default()
    }
}

fn exit_of(code: Code) -> Exit {
    match code {
        Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
        Code::NotFound => Exit::NotFound,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => Exit::Conflict,
        Code::Unavailable => Exit::NoQuorum,
        Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
        Code::DeadlineExceeded => Exit::TimedOut,
        _ => Exit::General,
    }
}

/// Converts a code's name: `NotFound` becomes `NOT_FOUND`.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    #[test]
    fn status_becomes_what_where_why_and_next() {
        let mut details = ErrorDetails::new();
        details.set_error_info("UNKNOWN_ZONE", "reveille", HashMap::new());
        details.add_bad_request_violation("schedule.zone", "no zone 'Europe/Berlim'; did you mean Europe/Berlin?");
        let failure = Failure::of_status(&Status::with_error_details(Code::InvalidArgument, "refused", details));
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(&*failure.reason, "UNKNOWN_ZONE");
        assert_eq!(failure.field.as_deref(), Some("schedule.zone"));
        assert_eq!(failure.message, "refused\n  schedule.zone: no zone 'Europe/Berlim'; did you mean Europe/Berlin?");
    }

    #[test]
    fn instant_that_is_over_is_followed_by_one_to_come() {
        let next = |field: &str| {
            let mut details = ErrorDetails::new();
            details.set_error_info("NEVER_FIRES", "reveille", HashMap::new());
            details.add_bad_request_violation(field, "is in the past");
            Failure::of_status(&Status::with_error_details(Code::InvalidArgument, "refused", details)).next
        };
        assert!(next("schedule.timing.at").is_some_and(|next| next.contains("--at")));
        assert!(next("schedule.timing").is_some_and(|next| next.contains("schedule preview")));
    }

    #[test]
    fn status_without_details_is_named_by_its_code() {
        let failure = Failure::of_status(&Status::failed_precondition(""));
        assert_eq!((&*failure.reason, failure.exit), ("FAILED_PRECONDITION", Exit::Conflict));
        assert_eq!(failure.message, "the node answered FAILED_PRECONDITION");
        assert_eq!(Failure::of_status(&Status::unimplemented("x")).exit, Exit::General);
    }

    #[test]
    fn json_of_an_error_has_all_its_fields() {
        let failure = Failure::usage("--zone", "no such zone".to_owned(), "try another");
        let json: serde_json::Value = serde_json::from_str(&failure.to_json()).expect("JSON");
        assert_eq!(json["error"]["field"], "--zone");
        assert_eq!(json["error"]["requestId"], serde_json::Value::Null);
        assert_eq!(json["error"].as_object().map(serde_json::Map::len), Some(5));
    }

    #[test]
    fn bad_rows_are_fields_for_programs_and_lines_for_people() {
        let row = |line| BadRow { line, problem: "the address is empty".to_owned() };
        let bad = BadRows { count: 1_002, shown: vec![row(3), row(7)] };
        let all = || Some("--report FILE names them all".to_owned());
        let failure = Failure::bad_rows(Path::new("list.csv"), "sealed", bad.clone(), all());
        let message = "1,002 rows of list.csv cannot be used, so nothing was sealed; --report FILE names them all";
        let rows = "\n  line 3: the address is empty\n  line 7: the address is empty\n  and 1,000 more";
        assert_eq!((failure.message.as_str(), failure.text()), (message, format!("{message}{rows}")));
        let json: serde_json::Value = serde_json::from_str(&failure.to_json()).expect("JSON");
        assert_eq!(
            (&json["error"]["field"], &json["error"]["badRows"]["count"]),
            (&"list.csv:3".into(), &1_002.into())
        );
        assert_eq!(json["error"]["badRows"]["shown"][1]["line"], 7);
        let all_shown = Failure::bad_rows(Path::new("list.csv"), "sealed", BadRows { count: 2, ..bad }, all());
        assert!(all_shown.text().ends_with("line 7: the address is empty"), "{}", all_shown.text());
    }
}
