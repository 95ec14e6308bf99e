//! Why a relay gets no email, or fewer: for the status of the relay, and for the API.

use std::time::Duration;

use crate::smtp::cause::Cause;
use crate::smtp::stage::Stage;

/// A failure of a relay, or its answer that slows this node down.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{}{trouble}", stage.map(|stage| format!("{stage:?}: ")).unwrap_or_default())]
pub struct RelayFailure {
    /// Where in a dialogue it happened. `None`: it does not matter, or the failure is not part of a dialogue.
    pub stage: Option<Stage>,
    /// What happened.
    pub trouble: RelayTrouble,
}

/// What happened with a relay.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum RelayTrouble {
    /// It gave this answer.
    #[display("{code} {text}")]
    Answered {
        /// Basic code.
        code: u16,
        /// Text of the answer.
        text: String,
    },
    /// The dialogue ended without an answer.
    Broken(Cause),
    /// It gave no answer, or no session opened, in this time.
    #[display("no answer within {} s", _0.as_secs())]
    Slow(Duration),
    /// A session has been opening for as long as an email can wait.
    #[display("a session has been opening for as long as an email can wait")]
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
