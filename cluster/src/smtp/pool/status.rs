//! What a pool shows of itself: to `cluster status`, to the console, to metrics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::smtp::replies::verdict::{DialogueResult, RefusalScope};

/// One relay on one node, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayStatus {
    /// Connections that are open, idle ones included.
    pub sessions_open: usize,
    /// Open connections that wait for an email.
    pub sessions_idle: usize,
    /// Emails past the gate that have no answer yet.
    pub waiting_dots: usize,
    /// The circuit breaker.
    pub circuit: CircuitStatus,
    /// Emails a second that are allowed now; below the budget after a throttle answer.
    pub rate_per_second: f64,
    /// In its words, why it refused an email within the last minute, where it was "too fast" or about the relay itself.
    pub slowed: Option<String>,
    /// How long a dialogue takes lately; none: not known.
    pub dialogue: Option<Duration>,
    /// Since the pool began.
    pub counters: RelayCounters,
}

/// The circuit breaker as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitStatus {
    /// Emails pass.
    Closed,
    /// None pass.
    Open {
        /// From then on one may probe.
        until: Instant,
        /// What opened it.
        cause: String,
    },
    /// None pass: the day's allowance is used up.
    Parked {
        /// From then on one may probe.
        until: Instant,
        /// The relay's words.
        cause: String,
    },
    /// None pass but at most one: the relay is being probed.
    HalfOpen {
        /// What had opened it.
        cause: String,
    },
}

/// How many of what, since the pool began. Without faults `gate_passes` equals `accepted` (I14).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Sessions opened.
    pub sessions: u64,
    /// Gates that let an email pass.
    pub gate_passes: u64,
    /// By verdict: 250.
    pub accepted: u64,
    /// Refused for the mailbox.
    pub refused_mailbox: u64,
    /// Refused without a cause.
    pub refused_unnamed: u64,
    /// Refused for the relay.
    pub refused_relay: u64,
    /// Refused for the tenant.
    pub refused_tenant: u64,
    /// Refused for the content.
    pub refused_content: u64,
    /// Greylisted.
    pub greylisted: u64,
    /// Throttled, the day's allowance included.
    pub throttled: u64,
    /// Lost before the gate.
    pub broken: u64,
    /// The gate stayed shut.
    pub gate_closed: u64,
    /// Without the SMTPUTF8 that the email needs.
    pub no_smtputf8: u64,
    /// In doubt.
    pub in_doubt: u64,
}

impl RelayCounters {
    pub(crate) fn count(&mut self, verdict: &DialogueResult) {
        let counter = match verdict {
            DialogueResult::Accepted { .. } => &mut self.accepted,
            DialogueResult::Refused { scope, .. } => match scope {
                RefusalScope::Mailbox => &mut self.refused_mailbox,
                RefusalScope::Unnamed => &mut self.refused_unnamed,
                RefusalScope::Relay => &mut self.refused_relay,
                RefusalScope::Tenant => &mut self.refused_tenant,
                RefusalScope::Content => &mut self.refused_content,
                RefusalScope::Greylisted => &mut self.greylisted,
                RefusalScope::Throttle { .. } => &mut self.throttled,
            },
            DialogueResult::Broken { .. } => &mut self.broken,
            DialogueResult::GateClosed(_) => &mut self.gate_closed,
            DialogueResult::NoSmtpUtf8 { .. } => &mut self.no_smtputf8,
            DialogueResult::InDoubt { .. } => &mut self.in_doubt,
        };
        *counter += 1;
    }
}

/// How many of a thing exist now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

/// One of them; it counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Gauge {
    pub fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
