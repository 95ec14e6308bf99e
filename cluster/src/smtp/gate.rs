//! The last check before an email leaves (P5). The task that delivers it decides if it may leave; the stream
//! decides when.
//!
//! `worker/gate_checks.rs` implements [`Gate`]. The stream asks it at most once for each email, immediately before it
//! passes the first byte of the final dot to the transport; not at all if the relay refuses before. Nothing is awaited
//! between the gate's answer and that write.

/// Decides if an email may leave. Asked at most once for each email, in the dialogue's task.
///
/// # Contract
/// - `decide` is synchronous and short. It reads the applied state under a lock. Before it answers `Pass` it has
///   appended `handoff` to the journal. It never blocks on a network.
/// - After `Pass` the final dot is written at once. After `Closed` no byte of it is written, and the socket is closed.
/// - A panic inside it counts as closed: nothing was written.
pub trait Gate: Send {
    /// Returns `Pass` if this email may leave now.
    fn decide(&mut self) -> GateAnswer;
}

/// Answer of a gate. A closed gate keeps its reason for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateAnswer {
    /// The email may leave: write the final dot.
    Pass,
    /// The email may not leave: write nothing more.
    Closed,
}
