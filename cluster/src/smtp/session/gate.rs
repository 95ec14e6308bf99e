//! The last check before an email leaves (P5): the claim worker knows whether it may leave, the stream knows when.
//!
//! The claim worker implements [`Gate`]. The stream asks it exactly once an email, immediately before it hands the first
//! byte of the terminator to the transport. Between the answer and that write nothing is awaited.

use thiserror::Error;

/// Asked once an email, in the dialogue's task.
///
/// # Contract
/// - `pass` is synchronous and short: it reads the applied state under a lock and, when it lets the
///   mail pass, has appended `begin` to the journal before it returns. It never blocks on a network.
/// - When it answers `Pass`, the terminator is handed over at once. When it answers `Closed`, no byte of
///   it is written, and the socket is closed.
/// - A panic inside it counts as shut: nothing was written.
pub trait Gate: Send {
    /// May this email leave now?
    fn pass(&mut self) -> GateAnswer;
}

/// What the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateAnswer {
    /// Hand it over.
    Pass,
    /// Do not.
    Closed(GateRefusal),
}

/// Why a gate stayed shut: the questions of P5, in the order in which it asks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GateRefusal {
    /// The recipient is no longer in the claim.
    #[error("no longer in the claim")]
    NotInClaim,
    /// The run is paused.
    #[error("the run is paused")]
    RunPaused,
    /// The run was cancelled, or is over.
    #[error("the run has ended")]
    RunEnded,
    /// The node lease has run out (P9).
    #[error("the node's lease is over")]
    LeaseOver,
    /// The run's deadline has passed, or the row was not begun in time (P12).
    #[error("past the deadline")]
    PastDeadline,
    /// The recipient opted out.
    #[error("opted out")]
    OptedOut,
    /// `begin` could not be journaled (P11).
    #[error("the journal failed")]
    JournalFailed,
    /// The journal has a `begin` of this recipient in this row already: a defect. The first hand-off may be under way,
    /// so nothing is known of the recipient (P5).
    #[error("handed off before")]
    BegunBefore,
    /// The node is going down.
    #[error("stopping")]
    Stopping,
}
