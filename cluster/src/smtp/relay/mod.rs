//! The sessions of one node with one relay.
//!
//! The registry owns a [`RelaySessions`] for each relay; the feeders call it. It guarantees:
//! - At most `max_sessions` connections, including those that wait for the answer to the dot or to QUIT (P12). A
//!   connection belongs to one of `max_sessions` permits or is idle, and a permit uses an idle one before it opens
//!   another.
//! - Permits are given only at the relay's rate, and only if the circuit is closed or for its one probe.
//! - Each email that is passed to a permit gets exactly one [`crate::smtp::DialogueResult`]. Nothing is retried (P5).
//! - A connection is reused only between two complete dialogues, or for the email that was announced in it.
//!
//! It does not choose among relays: [`Unavailable`] says why and until when, and the feeder asks another relay or
//! waits.

pub(crate) mod acquire;
pub mod circuit;
pub(crate) mod circuit_event;
pub mod failure;
pub(crate) mod idle_sessions;
pub(crate) mod lasting_refusals;
pub mod latency;
pub mod permit;
pub(crate) mod session_limit;
pub(crate) mod sessions;
pub mod status;

use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

pub use self::sessions::RelaySessions;
use super::session::deadlines::Timeouts;
use acquire::HeldCircuitPermit;
use circuit::Backoff;
use failure::RelayFailure;
pub use permit::{NextEmail, NextPermit, SendPermit};

/// Limits of one node's sessions with a relay. Rates are this node's share of the relay's budget (P25).
#[derive(Debug, Clone, Copy)]
pub struct RelayLimits {
    /// Maximum number of connections. Default 10.
    pub max_sessions: usize,
    /// Number of emails after which a session ends with QUIT. Default 1,000.
    pub emails_per_session: u32,
    /// Idle time after which a session ends with QUIT, at the latest one half later. Default 60 s.
    pub idle_for: Duration,
    /// Emails per second. Default 1,000.
    pub rate_per_second: f64,
    /// Number of emails that may be sent at once after a pause. Default 50.
    pub burst: f64,
    /// Time without emails for a relay that fails or whose daily allowance is used up.
    pub backoff: Backoff,
    /// Time-outs for the relay's answers.
    pub timeouts: Timeouts,
}

impl Default for RelayLimits {
    fn default() -> RelayLimits {
        RelayLimits {
            max_sessions: 10,
            emails_per_session: 1000,
            idle_for: Duration::from_secs(60),
            rate_per_second: 1000.0,
            burst: 50.0,
            backoff: Backoff::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// Reason why no permit is available now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// The relay failed and gets no emails until a probe succeeds.
    #[error("circuit open: {cause}")]
    CircuitOpen {
        /// Time at which to ask again.
        until: Instant,
        /// The failure that opened the circuit.
        cause: RelayFailure,
    },
    /// The day's allowance is used up.
    #[error("parked, the day's allowance is used up: {cause}")]
    Parked {
        /// Time at which to ask again.
        until: Instant,
        /// The relay's reply.
        cause: RelayFailure,
    },
    /// All sessions were busy until the deadline.
    #[error("all sessions are busy")]
    Busy,
    /// The relay's rate allows the next email only after the deadline.
    #[error("the relay's rate allows no email before the deadline")]
    RateLimited {
        /// Time at which to ask again.
        until: Instant,
    },
    /// The sessions were closed: the node stops, or the relay was removed.
    #[error("the sessions with the relay are closed")]
    Closed,
}

impl RelaySessions {
    /// Waits for a permit to send one email: for a free session and for the relay's rate, both before `deadline`.
    /// Callers are served in order of arrival. Dropping the future returns everything except a token that the rate
    /// limiter has granted.
    ///
    /// # Errors
    /// Fails at once if the relay cannot be used now, otherwise when the deadline comes first.
    pub async fn acquire(self: &Arc<RelaySessions>, deadline: Instant) -> Result<SendPermit, Unavailable> {
        let mut circuit_permit = HeldCircuitPermit::new(self)?;
        let session_permit = self.wait_for_session_permit(deadline).await?;
        circuit_permit.renew()?;
        self.wait_for_rate(deadline).await?;
        circuit_permit.renew()?;
        Ok(SendPermit::new(self.clone(), session_permit, self.take_idle(), circuit_permit))
    }

    /// Returns a permit to send one email. `None` if the caller would have to wait. It does not overtake waiting
    /// callers.
    pub fn acquire_now(self: &Arc<RelaySessions>) -> Option<SendPermit> {
        let circuit_permit = HeldCircuitPermit::new(self).ok()?;
        let session_permit = self.try_session_permit()?;
        self.take_from_rate_now()
            .then(|| SendPermit::new(self.clone(), session_permit, self.take_idle(), circuit_permit))
    }

    /// Gives no more permits, ends idle sessions with QUIT, and waits at most `limit` for running emails. Returns
    /// true if all of them have their result. Emails before the gate end by their own [`crate::smtp::Deadlines`].
    /// Emails after the gate are never interrupted; after `limit` the caller just stops waiting for them.
    pub async fn close(&self, limit: Duration) -> bool {
        self.stop_permits();
        timeout(limit, self.tasks.wait()).await.is_ok()
    }
}

/// Ends sessions that were idle for a while with QUIT. QUIT needs a session permit like any dialogue. Without a free one the
/// session is closed without QUIT.
async fn retire_idle_sessions(sessions: Weak<RelaySessions>, every: Duration) {
    let Some(closing) = sessions.upgrade().map(|sessions| sessions.closing.clone()) else { return };
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = sleep(every.max(Duration::from_millis(10))) => {}
        }
        let Some(sessions) = sessions.upgrade() else { return };
        let Some(before) = Instant::now().checked_sub(sessions.limits.idle_for) else {
            continue;
        };
        // The guard must not live for the whole loop.
        let idle = sessions.state.lock().idle.remove_idle_since(before);
        for open in idle {
            if let Some(session_permit) = sessions.try_session_permit() {
                sessions.tasks.spawn(async move {
                    open.quit().await;
                    drop(session_permit);
                });
            }
        }
    }
}
