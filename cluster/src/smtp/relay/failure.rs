//! Why a relay gets no email, or fewer: for the status of the relay, and for the API.

use std::fmt;
use std::time::Duration;

use crate::smtp::cause::Cause;
use crate::smtp::stage::Stage;

/// A failure of a relay, or its answer that slows this node down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayFailure {
    /// Where in a dialogue it happened. `None`: it does not matter, or the failure is not part of a dialogue.
    pub stage: Option<Stage>,
    /// What happened.
    pub trouble: RelayTrouble,
}

/// What happened with a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayTrouble {
    /// It gave this answer.
    Answered {
        /// Basic code.
        code: u16,
        /// Text of the answer.
        text: String,
    },
    /// The dialogue ended without an answer.
    Broken(Cause),
    /// It gave no answer, or no session opened, in this time.
    Slow(Duration),
    /// A session has been opening for as long as an email can wait.
    OpeningLate,
}

impl RelayFailure {
    /// An answer at a stage.
    pub(crate) fn answered(stage: Option<Stage>, code: u16, text: &str) -> RelayFailure {
        RelayFailure { stage, trouble: RelayTrouble::Answered { code, text: text.to_owned() } }
    }

    /// A failure that has no stage.
    pub(crate) fn without_stage(trouble: RelayTrouble) -> RelayFailure {
        RelayFailure { stage: None, trouble }
    }
}

impl fmt::Display for RelayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = self.stage {
            write!(f, "{stage:?}: ")?;
        }
        match &self.trouble {
            RelayTrouble::Answered { code, text } => write!(f, "{code} {text}"),
            RelayTrouble::Broken(cause) => cause.fmt(f),
            RelayTrouble::Slow(within) => write!(f, "no answer within {} s", within.as_secs()),
            RelayTrouble::OpeningLate => f.write_str("a session has been opening for as long as an email can wait"),
        }
    }
}
