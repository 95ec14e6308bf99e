//! Why a dialogue ended without an answer.
//!
//! Used by everything in this folder. A cause never says whether the email was sent: that depends on
//! the stage at which it struck, and [`crate::smtp::DialogueResult`] keeps the two apart.

use thiserror::Error;

/// What went wrong between us and the relay, or why we ended it ourselves.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Cause {
    /// The name did not resolve, or no address took the connection.
    #[error("no connection: {0}")]
    Dial(String),
    /// The peer closed in the middle of a dialogue.
    #[error("the relay closed the connection")]
    Closed,
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Io(String),
    /// The relay did not answer, or did not read, within the time of this stage.
    #[error("no answer in time")]
    TimedOut,
    /// A session that had been idle turned out to be closed: polite, and no fault of the relay.
    #[error("closed between emails")]
    ClosedBetweenEmails,
    /// Bytes came unasked, or an answer that does not fit its question.
    #[error("replies are out of step: {0}")]
    OutOfStep(String),
    /// More than [`super::lines::MAX_REPLY_BYTES`] without an end.
    #[error("a reply without end")]
    ReplyTooLong,
    /// Not a reply by RFC 5321 4.2.
    #[error("not a reply: {0:?}")]
    Malformed(String),
    /// No TLS with this relay, or not one that could be believed.
    #[error("{0}")]
    Tls(SetupProblem),
    /// This node lacks the credentials, or the relay has no use for them. Never shows them.
    #[error("{0}")]
    Credentials(SetupProblem),
    /// The caller's own time for passing the gate ended first.
    #[error("not begun in time")]
    NotBegunInTime,
    /// The caller told the dialogue to stop, and it was still before the gate.
    #[error("told to stop")]
    Stopped,
    /// Code panicked; the dialogue was ended at its border.
    #[error("panic: {0}")]
    Panicked(String),
    /// The task that held the dialogue is gone, which only the end of the runtime brings about.
    #[error("the task of the dialogue ended")]
    TaskGone,
}

/// What is wrong, for people, and what would fix it, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SetupProblem {
    /// With the next step, where there is one.
    pub message: String,
    /// Where it is fixed.
    pub fix: Fix,
}

/// Where a way to a relay is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// The name that its certificate is for.
    TlsName,
    /// The CA that signed its certificate.
    Ca,
    /// The file of that CA, on this node.
    CaFile,
    /// It offers no STARTTLS: TLS from the first byte, on another port.
    ImplicitTls,
    /// It does not speak TLS from the first byte: STARTTLS.
    StartTls,
    /// It takes a login after STARTTLS only.
    LoginAfterStartTls,
    /// It takes no login on this port.
    NoLogin,
    /// What the reference to the credentials leads to, on this node.
    Reference,
    /// At the relay.
    Relay,
}

impl Fix {
    /// The problem that this fixes.
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
    /// The message of a caught panic.
    pub(crate) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Cause {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Cause::Panicked(text.unwrap_or_else(|| "without a message".to_owned()))
    }

    /// True for ends that we chose ourselves or that tell nothing about the relay.
    pub fn is_ours(&self) -> bool {
        matches!(
            self,
            Cause::ClosedBetweenEmails | Cause::NotBegunInTime | Cause::Stopped | Cause::Panicked(_) | Cause::TaskGone
        )
    }
}
