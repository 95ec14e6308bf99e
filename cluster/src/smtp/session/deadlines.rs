//! Time limits of a dialogue: the relay's time-outs and the caller's deadlines.
//!
//! [`Timeouts`] limit the time that a relay may take for each answer; only a probe changes their defaults.
//! [`Deadlines`] are the caller's for one email and end a dialogue only before the gate. A dialogue past the gate waits
//! for its answer, whatever the caller's deadlines are.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::smtp::cause::Cause;

/// Replaces a limit that is too long for an instant.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum times for a relay, by stage. The defaults are those of RFC 5321 4.5.3.2 if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving and connecting, over all addresses. Default 30 s; TCP's own limit would be minutes.
    pub connect: Duration,
    /// The answer to STARTTLS, and then the handshake. Default 30 s.
    pub tls: Duration,
    /// The greeting (4.5.3.2.1), and each answer to EHLO and AUTH. Default 5 min.
    pub opening: Duration,
    /// The answers to MAIL and RCPT (4.5.3.2.2, 4.5.3.2.3). Default 5 min.
    pub envelope: Duration,
    /// The answer to DATA (4.5.3.2.4). Default 2 min.
    pub data: Duration,
    /// Writing each 64 KiB of the text (4.5.3.2.5). Default 3 min.
    pub block: Duration,
    /// The answer to the final dot (4.5.3.2.6). Default 10 min: a shorter time-out causes duplicates.
    pub dot: Duration,
    /// The answer to QUIT, and to the lone dot after a refused recipient. Default 5 s.
    pub quit: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Timeouts {
            connect: Duration::from_secs(30),
            tls: Duration::from_secs(30),
            opening: minutes(5),
            envelope: minutes(5),
            data: minutes(2),
            block: minutes(3),
            dot: minutes(10),
            quit: Duration::from_secs(5),
        }
    }
}

/// The caller's limits for the time before the gate. The default waits for ever.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    /// Time by which a session must be open; otherwise the email goes back (P12). A relay may take minutes to greet,
    /// and the email may use other relays.
    pub open_by: Option<Instant>,
    /// Time by which the gate must be asked; otherwise the email goes back.
    pub gate_by: Option<Instant>,
    /// Cancelled to end the dialogue while it is before the gate.
    pub stop: CancellationToken,
}

impl Deadlines {
    /// Returns the deadlines for opening a session.
    pub(crate) fn to_open(&self) -> Deadlines {
        let gate_by = [self.open_by, self.gate_by].into_iter().flatten().min();
        Deadlines { gate_by, ..self.clone() }
    }

    /// Runs `step` for at most `limit`.
    ///
    /// # Errors
    /// `TimedOut` after `limit`, `NotBegunInTime` at the caller's deadline, `Stopped` after a cancellation.
    pub(crate) async fn bound<T>(&self, limit: Duration, step: impl Future<Output = T>) -> Result<T, Cause> {
        let now = Instant::now();
        let end = now.checked_add(limit).unwrap_or(now + FAR);
        let (end, cause) = match (self.gate_by, end) {
            (Some(gate_by), end) if gate_by < end => (gate_by, Cause::NotBegunInTime),
            (_, end) => (end, Cause::TimedOut),
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Cause::Stopped),
            done = step => Ok(done),
            () = sleep_until(end) => Err(cause),
        }
    }
}
