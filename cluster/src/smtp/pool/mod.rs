//! Everything that one node sends to one relay.
//!
//! The registry owns it, the claim workers call it. It promises:
//! - at most `max_sessions` connections at any time, waiting dots and farewells included (P12): a connection belongs to
//!   a permit, of which there are that many, or is idle, and a permit takes an idle one before it opens another;
//! - a permit only at the relay's rate, and with its circuit closed or as its one probe;
//! - exactly one [`crate::smtp::DialogueResult`] for each email that is handed to a permit; nothing here retries (P5);
//! - no reuse of a connection that could be in the middle of anything.
//!
//! It does not choose among relays: [`Unavailable`] says why and until when, and the worker asks another relay or
//! waits.

pub mod circuit;
pub(crate) mod circuit_event;
pub mod latency;
pub mod permit;
pub mod rate_limiter;
pub(crate) mod session_limit;
pub(crate) mod state;
pub mod status;

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::session::deadlines::Timeouts;
use super::session::dialer::Dial;
use super::session::target::Target;
use circuit::Backoff;
pub use permit::{PendingResult, Permit};
use state::{PoolCore, Ticket, retire_idle_sessions};
use status::RelayStatus;

/// What a pool may use. Rates are this node's share of the relay's budget (P25).
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Connections at once. Default 10.
    pub max_sessions: usize,
    /// A session says QUIT after this many emails. Default 1,000.
    pub mails_per_session: u32,
    /// A session says QUIT after being idle for this long, give or take a half. Default 60 s.
    pub idle_for: Duration,
    /// Emails a second. Default 1,000.
    pub rate_per_second: f64,
    /// Emails that may go at once after a pause. Default 50.
    pub burst: f64,
    /// How long a relay that fails, or takes no more today, is left alone.
    pub backoff: Backoff,
    /// What the relay may take for each answer.
    pub timeouts: Timeouts,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits {
            max_sessions: 10,
            mails_per_session: 1000,
            idle_for: Duration::from_secs(60),
            rate_per_second: 1000.0,
            burst: 50.0,
            backoff: Backoff::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// Why there is no permit now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// The relay failed and is left alone, or is being probed.
    #[error("circuit open: {cause}")]
    CircuitOpen {
        /// Ask again then.
        until: Instant,
        /// What opened it.
        cause: String,
    },
    /// The day's allowance is used up.
    #[error("parked, the day's allowance is used up: {cause}")]
    Parked {
        /// Ask again then.
        until: Instant,
        /// The relay's words.
        cause: String,
    },
    /// All sessions were busy until the deadline.
    #[error("all sessions are busy")]
    Busy,
    /// The relay's pace allows the next email only after the deadline.
    #[error("the relay's rate allows no mail before the deadline")]
    Paced {
        /// Ask again then.
        until: Instant,
    },
    /// The pool was closed.
    #[error("the relay pool is closed")]
    Closed,
}

/// A handle; clones share the pool.
#[derive(Clone)]
pub struct Pool(pub(crate) Arc<PoolCore>);

impl Pool {
    /// A pool without connections. `seed` feeds the jitter of the back-off and nothing else. Must be
    /// called inside a tokio runtime, on which its dialogues then run.
    pub fn new(target: Target, dialer: Arc<dyn Dial>, limits: PoolLimits, seed: u64) -> Pool {
        let shared = Arc::new(PoolCore::new(target, dialer, limits, seed));
        tokio::spawn(retire_idle_sessions(Arc::downgrade(&shared), limits.idle_for / 2));
        Pool(shared)
    }

    /// Waits for the right to send one mail: a session's place and the relay's pace, both before
    /// `deadline`. First come, first served. Dropping the future gives everything back except what
    /// the pace had already granted.
    ///
    /// # Errors
    /// At once when the relay is not to be used now; else when the deadline does not suffice.
    pub async fn acquire(&self, deadline: Instant) -> Result<Permit, Unavailable> {
        let mut ticket = Ticket::new(&self.0)?;
        let slot = self.0.slot(deadline).await?;
        ticket.renew()?;
        self.0.wait_for_pace(deadline).await?;
        ticket.renew()?;
        Ok(Permit::new(self.0.clone(), slot, self.0.take_idle(), ticket))
    }

    /// The right to send one email at once; none where anything would have to be waited for. It overtakes no caller that
    /// waits.
    pub fn acquire_now(&self) -> Option<Permit> {
        let ticket = Ticket::new(&self.0).ok()?;
        let slot = self.0.slot_now()?;
        self.0.take_pace_now().then(|| Permit::new(self.0.clone(), slot, self.0.take_idle(), ticket))
    }

    /// Another share of the relay's budget, from now on.
    pub fn set_rate(&self, rate_per_second: f64, burst: f64) {
        self.0.set_rate(rate_per_second, burst);
    }

    /// Another bound of sessions, from now on: dialogues that run count, whichever bound let them in (P12).
    pub fn set_sessions(&self, max_sessions: usize) {
        self.0.set_sessions(max_sessions);
    }

    /// What it is doing.
    pub fn status(&self) -> RelayStatus {
        self.0.status()
    }

    /// Gives no more permits, says QUIT on idle sessions, and waits for the emails under way, but not
    /// longer than `patience`. True when all of them have their verdict. Emails before the gate end
    /// by their own [`crate::smtp::Deadlines`]; those past it are never cut off, only no longer waited for.
    pub async fn close(&self, patience: Duration) -> bool {
        self.0.close();
        timeout(patience, self.0.tasks.wait()).await.is_ok()
    }
}
