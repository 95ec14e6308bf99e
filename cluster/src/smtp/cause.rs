//! Causes of dialogues that ended without an answer.
//!
//! Used by sessions, pools and the rules for replies. A cause never says if the email was sent: that depends on the
//! stage at which it occurred, and [`crate::smtp::DialogueResult`] keeps the two apart.

use thiserror::Error;

/// Failure of the relay or of the connection, or the reason why this node ended the dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Cause {
    /// The name did not resolve, or no address accepted the connection.
    #[error("no connection: {0}")]
    Dial(String),
    /// The relay closed the connection during a dialogue.
    #[error("the relay closed the connection")]
    Closed,
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Io(String),
    /// The relay did not answer, or did not read, within the time-out of this stage.
    #[error("no answer in time")]
    TimedOut,
    /// An idle session turned out to be closed, or the relay ended it with 421. This is normal and not a failure of the
    /// relay.
    #[error("closed between emails")]
    ClosedBetweenEmails,
    /// The relay sent bytes that were not expected, or an answer that does not fit the command.
    #[error("replies are out of step: {0}")]
    OutOfStep(String),
    /// A reply has more than [`super::session::lines::REPLY_BYTES_MAX`] bytes.
    #[error("a reply without end")]
    ReplyTooLong,
    /// The bytes are not a reply by RFC 5321 4.2.
    #[error("not a reply: {0:?}")]
    Malformed(String),
    /// TLS with this relay is not possible, or its certificate was not trusted.
    #[error("{0}")]
    Tls(SetupProblem),
    /// This node lacks the credentials, or the relay accepts none. The text never contains them.
    #[error("{0}")]
    Credentials(SetupProblem),
    /// The caller's time for passing the gate ended first.
    #[error("not begun in time")]
    NotBegunInTime,
    /// The caller stopped the dialogue while it was before the gate.
    #[error("stopped by this node")]
    Stopped,
    /// Code panicked. The panic was caught at the border of the dialogue.
    #[error("panic: {0}")]
    Panicked(String),
}

/// A problem of the setup: a text for operators, and what to change for programs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SetupProblem {
    /// The problem, with the next step if there is one.
    pub message: String,
    /// The setting that fixes it.
    pub fix: Fix,
}

/// The setting that fixes the connection to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// The name to which the relay's certificate belongs.
    TlsName,
    /// The CA that signed the relay's certificate.
    Ca,
    /// The file with that CA, on this node.
    CaFile,
    /// The relay offers no STARTTLS. Use TLS from the first byte, on another port.
    ImplicitTls,
    /// The relay does not use TLS from the first byte. Use STARTTLS.
    StartTls,
    /// The relay accepts a login only after STARTTLS.
    LoginAfterStartTls,
    /// The relay accepts no login on this port.
    NoLogin,
    /// The file or variable to which the credentials refer, on this node.
    Reference,
    /// Something at the relay.
    Relay,
}

impl Fix {
    /// Returns a problem that this setting fixes.
    pub(crate) fn because(self, message: impl Into<String>) -> SetupProblem {
        SetupProblem { message: message.into(), fix: self }
    }
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Cause {
        Cause::Io(error.to_string())
    }
}

impl Cause {
    /// Returns a cause with the message of a caught panic.
    pub(crate) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Cause {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Cause::Panicked(text.unwrap_or_else(|| "without a message".to_owned()))
    }

    /// Returns true if this node ended the dialogue itself, or if the cause says nothing about the relay.
    pub fn ended_by_this_node(&self) -> bool {
        matches!(self, Cause::ClosedBetweenEmails | Cause::NotBegunInTime | Cause::Stopped | Cause::Panicked(_))
    }
}
