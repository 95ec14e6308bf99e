//! Status of a relay on one node, for `cluster status`, the console and metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::RelayFailure;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::DialogueResult;

/// Status of one relay on one node at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayStatus {
    /// Number of open connections, including idle ones.
    pub sessions_open: usize,
    /// Number of open connections that wait for an email.
    pub sessions_idle: usize,
    /// Number of emails past the gate that have no answer yet.
    pub waiting_dots: usize,
    /// State of the circuit breaker.
    pub circuit: CircuitStatus,
    /// Current rate in emails per second. Below the budget after a throttle answer.
    pub rate_per_second: f64,
    /// The relay's last answer "too fast" within the last minute. `None`: there was none.
    pub slowed: Option<RelayFailure>,
    /// The relay's last refusal of a series that lasts, for trouble of its own or for a sender. `None`: there is none.
    pub refusing: Option<RelayFailure>,
    /// Recent duration of a dialogue. `None`: not known.
    pub dialogue: Option<Duration>,
    /// Counts since this node has known the relay.
    pub counters: RelayCounters,
}

/// State of the circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitStatus {
    /// Emails pass.
    Closed,
    /// No email passes.
    Open {
        /// Time of the next probe: first a session without an email, then one email.
        until: Instant,
        /// The failure that opened the circuit.
        cause: RelayFailure,
    },
    /// No email passes: the day's allowance is used up.
    Parked {
        /// Time from which one email may probe.
        until: Instant,
        /// The relay's reply.
        cause: RelayFailure,
    },
    /// The relay is being probed: at most one email passes.
    HalfOpen {
        /// The failure that had opened the circuit, or the reply for which the relay was parked.
        cause: RelayFailure,
        /// True if the day's allowance was used up.
        parked: bool,
    },
}

/// Counts since this node has known the relay. Without faults `gate_passes` equals `accepted` (I14).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Opened sessions.
    pub sessions: u64,
    /// Emails that the gate let pass.
    pub gate_passes: u64,
    /// Emails that the relay accepted with 2yz to the final dot.
    pub accepted: u64,
    /// Throttle answers, including a used-up daily allowance.
    pub throttled: u64,
    /// Emails that the gate did not let pass.
    pub gate_closed: u64,
    /// Emails in doubt.
    pub in_doubt: u64,
}

impl RelayCounters {
    pub(crate) fn count(&mut self, result: &DialogueResult) {
        match result {
            DialogueResult::Accepted { .. } => self.accepted += 1,
            DialogueResult::Refused { class: ReplyClass::Throttle | ReplyClass::Quota, .. } => self.throttled += 1,
            DialogueResult::GateClosed => self.gate_closed += 1,
            DialogueResult::InDoubt { .. } => self.in_doubt += 1,
            _ => {}
        }
    }
}

/// Counts the [`Counted`] that exist now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Arc<()>);

/// One of the things that a [`Gauge`] counts, as long as it exists.
pub(crate) type Counted = Arc<()>;

impl Gauge {
    pub fn one_more(&self) -> Counted {
        Arc::clone(&self.0)
    }

    pub fn now(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
