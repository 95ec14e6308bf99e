//! The last check before an email leaves (P5). The claim worker decides if the email may leave; the stream decides
//! when.
//!
//! The claim worker implements [`Gate`]. The stream asks it exactly once for each email, immediately before it passes
//! the first byte of the final dot to the transport. Nothing is awaited between the gate's answer and that write.

use thiserror::Error;

/// Decides if an email may leave. Asked once for each email, in the dialogue's task.
///
/// # Contract
/// - `pass` is synchronous and short. It reads the applied state under a lock. Before it answers `Pass` it has appended
///   `begin` to the journal. It never blocks on a network.
/// - After `Pass` the final dot is written at once. After `Closed` no byte of it is written, and the socket is closed.
/// - A panic inside it counts as closed: nothing was written.
pub trait Gate: Send {
    /// Returns `Pass` if this email may leave now.
    fn pass(&mut self) -> GateAnswer;
}

/// Answer of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateAnswer {
    /// The email may leave: write the final dot.
    Pass,
    /// The email may not leave: write nothing more.
    Closed(GateRefusal),
}

/// Reason why a gate did not let an email pass: the checks of P5. The gate checks the lease last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GateRefusal {
    /// The recipient is no longer in the claim.
    #[error("no longer in the claim")]
    NotInClaim,
    /// The run is paused.
    #[error("the run is paused")]
    RunPaused,
    /// The run was cancelled or has ended.
    #[error("the run has ended")]
    RunEnded,
    /// The node lease has run out (P9).
    #[error("the node's lease is over")]
    LeaseOver,
    /// The run's deadline has passed.
    #[error("past the deadline")]
    PastDeadline,
    /// The recipient opted out.
    #[error("opted out")]
    OptedOut,
    /// `begin` could not be written to the journal (P11).
    #[error("the journal failed")]
    JournalFailed,
    /// The journal already has a `begin` of this recipient in this claim, which is a bug. The first handoff may be
    /// running, so nothing is known of the recipient (P5).
    #[error("handed off before")]
    BegunBefore,
}
