//! The circuit breaker of one relay, as a value: no runtime, no clock, no random source (P6, P12).
//!
//! `acquire.rs` calls [`Circuit::try_acquire`] before an email, `sessions.rs` [`Circuit::record`] after it. The circuit
//! opens
//! - at once when a session cannot be opened or MAIL fails;
//! - after three losses after the dot without a 250 between, or after at least three within a minute that exceed one in
//!   a thousand of its handoffs;
//! - after three losses in a row between MAIL and the dot;
//! - for longer when the day's allowance is used up (the relay is parked).
//!
//! After the back-off a session is opened without an email, so that a silent relay holds no email. Then one email
//! probes: success closes the circuit, failure opens it for twice as long. An email that ends before MAIL, or whose
//! MAIL is refused because of the email or its sender, proves only that sessions open. A relay that answers "too fast"
//! works.

use std::time::Duration;

use tokio::time::Instant;

use super::Unavailable;
use super::failure::RelayFailure;
use super::status::CircuitStatus;

/// Losses in a row that open the circuit, and the fewest in a minute that do (P12).
const LOSSES: u32 = 3;

/// At least [`LOSSES`] losses after the dot within a minute open the circuit if they exceed one in this many of its
/// handoffs (P12).
const HANDOFFS_PER_LOSS: u64 = 1000;

const MINUTE: Duration = Duration::from_secs(60);

/// Durations for which an open circuit stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure. Also the time between two requests of a caller while a probe runs. Default 1 s.
    pub first: Duration,
    /// Maximum: each failed probe doubles the time up to this. Default 5 min.
    pub longest: Duration,
    /// Time between two probes while the day's allowance is used up. It does not grow: the relay's window slides.
    /// Default 15 min.
    pub parked: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(300), parked: Duration::from_secs(900) }
    }
}

/// Information about a relay from the end of an email or of the opening of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitEvent {
    /// The relay answered 250 to the final dot.
    Accepted,
    /// The relay refused the final dot, so it answers.
    Answered,
    /// The relay accepted MAIL, and nothing was handed over.
    Reached,
    /// A session is open, but MAIL proves nothing: it was not sent, or it was refused because of the email or its
    /// sender.
    SessionOpened,
    /// No session could be opened.
    NotOpened(RelayFailure),
    /// MAIL failed.
    MailFailed(RelayFailure),
    /// The dialogue was lost between MAIL and the dot.
    LostBefore(RelayFailure),
    /// The dialogue was lost after the dot.
    LostAfter(RelayFailure),
    /// The day's allowance is used up. The failure is the relay's reply.
    QuotaUsedUp(RelayFailure),
    /// The end says nothing about the relay.
    Nothing,
}

/// How the circuit permits a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitPermit {
    /// As one of many emails: the circuit is closed.
    Normally,
    /// As the only probe: its result decides. The caller must pass it to `record`, or return the probe with
    /// [`Circuit::release_probe`].
    AsProbe,
    /// Without an email: the caller opens a session first. Its result must be recorded or returned like that of a probe.
    ToOpenSession,
}

/// Proof that a probe must give before the circuit closes. Each proof includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    Session,
    Mail,
    Dot,
}

/// The circuit breaker of one relay.
#[derive(Debug)]
pub struct Circuit {
    backoff: Backoff,
    state: CircuitStatus,
    needs: Proof,
    /// True if the next probe may be an email: a session could be opened since, or the relay is only parked.
    next_probe_is_email: bool,
    /// Number of openings since the last success: the exponent of the back-off.
    openings: u32,
    losses_after: u32,
    losses_before: u32,
    minute: MinuteCounts,
}

#[derive(Debug, Default)]
struct MinuteCounts {
    since: Option<Instant>,
    handed: u64,
    lost: u64,
}

impl Circuit {
    /// Returns a closed circuit.
    pub fn new(backoff: Backoff) -> Circuit {
        Circuit {
            backoff,
            state: CircuitStatus::Closed,
            needs: Proof::Session,
            next_probe_is_email: false,
            openings: 0,
            losses_after: 0,
            losses_before: 0,
            minute: MinuteCounts::default(),
        }
    }

    /// Returns the current state.
    pub fn state(&self) -> &CircuitStatus {
        &self.state
    }

    /// Decides if an email may be tried at `now`.
    ///
    /// # Errors
    /// [`Unavailable::CircuitOpen`] or [`Unavailable::Parked`] if the circuit is open.
    pub fn try_acquire(&mut self, now: Instant) -> Result<CircuitPermit, Unavailable> {
        let (until, cause, parked) = match &self.state {
            CircuitStatus::Closed => return Ok(CircuitPermit::Normally),
            CircuitStatus::Open { until, cause } => (*until, cause.clone(), false),
            CircuitStatus::Parked { until, cause } => (*until, cause.clone(), true),
            CircuitStatus::HalfOpen { cause, parked } => (now + self.backoff.first, cause.clone(), *parked),
        };
        if until <= now && !matches!(self.state, CircuitStatus::HalfOpen { .. }) {
            self.state = CircuitStatus::HalfOpen { cause, parked };
            return Ok(if self.next_probe_is_email { CircuitPermit::AsProbe } else { CircuitPermit::ToOpenSession });
        }
        Err(if parked { Unavailable::Parked { until, cause } } else { Unavailable::CircuitOpen { until, cause } })
    }

    /// Returns an unused probe: the next caller may probe at once.
    pub fn release_probe(&mut self, now: Instant) {
        if let CircuitStatus::HalfOpen { cause, parked } = &self.state {
            let (until, cause) = (now, cause.clone());
            self.state =
                if *parked { CircuitStatus::Parked { until, cause } } else { CircuitStatus::Open { until, cause } };
        }
    }

    /// Ends a probe that proved nothing about the relay. If the day's allowance is used up, or no session was opened,
    /// the next probe waits, so that probes do not follow each other at once.
    fn probed_in_vain(&mut self, now: Instant) {
        let waits = !self.next_probe_is_email || matches!(&self.state, CircuitStatus::HalfOpen { parked: true, .. });
        self.release_probe(if waits { now + self.backoff.first } else { now });
    }

    /// Learns from an email, or from an opening, that ended at `now`. `jitter` from 0 to 1 lengthens the back-off by up
    /// to one half, so that the nodes do not probe at the same time.
    pub fn record(&mut self, event: CircuitEvent, permit: CircuitPermit, now: Instant, jitter: f64) {
        let minute_is_bad = self.count(&event, now);
        let probe = permit != CircuitPermit::Normally;
        let decides = probe || self.state == CircuitStatus::Closed;
        match event {
            CircuitEvent::SessionOpened if permit == CircuitPermit::ToOpenSession => {
                self.next_probe_is_email = true;
                self.release_probe(now);
            }
            CircuitEvent::Accepted | CircuitEvent::Answered if probe => self.close(),
            CircuitEvent::Reached if probe && self.needs <= Proof::Mail => self.close(),
            CircuitEvent::SessionOpened if probe && self.needs == Proof::Session => self.close(),
            CircuitEvent::Accepted
            | CircuitEvent::Answered
            | CircuitEvent::Reached
            | CircuitEvent::SessionOpened
            | CircuitEvent::Nothing => {
                if probe {
                    self.probed_in_vain(now);
                }
            }
            CircuitEvent::QuotaUsedUp(cause) if decides => self.park(cause, now),
            CircuitEvent::NotOpened(cause) if decides => self.open(cause, Proof::Session, now, jitter),
            CircuitEvent::MailFailed(cause) if decides => self.open(cause, Proof::Mail, now, jitter),
            CircuitEvent::LostBefore(cause) if probe || (decides && self.losses_before >= LOSSES) => {
                self.open(cause, Proof::Dot, now, jitter);
            }
            CircuitEvent::LostAfter(cause) if probe || (decides && (self.losses_after >= LOSSES || minute_is_bad)) => {
                self.open(cause, Proof::Dot, now, jitter);
            }
            // Emails that were running when the circuit opened, or losses that are too few to open it.
            CircuitEvent::QuotaUsedUp(_)
            | CircuitEvent::NotOpened(_)
            | CircuitEvent::MailFailed(_)
            | CircuitEvent::LostBefore(_)
            | CircuitEvent::LostAfter(_) => {}
        }
    }

    /// Updates the counts. Returns true if this minute's losses are too many.
    fn count(&mut self, event: &CircuitEvent, now: Instant) -> bool {
        if self.minute.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            self.minute = MinuteCounts { since: Some(now), ..MinuteCounts::default() };
        }
        match event {
            CircuitEvent::Accepted => {
                self.minute.handed += 1;
                self.losses_after = 0;
                self.losses_before = 0;
            }
            CircuitEvent::Answered => {
                self.minute.handed += 1;
                self.losses_before = 0;
            }
            CircuitEvent::LostBefore(_) => self.losses_before += 1,
            CircuitEvent::LostAfter(_) => {
                self.minute.handed += 1;
                self.minute.lost += 1;
                self.losses_after += 1;
            }
            _ => {}
        }
        self.minute.lost >= u64::from(LOSSES) && self.minute.lost * HANDOFFS_PER_LOSS > self.minute.handed
    }

    fn close(&mut self) {
        self.state = CircuitStatus::Closed;
        self.openings = 0;
        self.losses_after = 0;
        self.losses_before = 0;
        self.minute.lost = 0;
    }

    fn park(&mut self, cause: RelayFailure, now: Instant) {
        self.state = CircuitStatus::Parked { until: now + self.backoff.parked, cause };
        // A relay may report a used-up allowance as late as at the dot.
        self.needs = Proof::Dot;
        self.next_probe_is_email = true;
    }

    fn open(&mut self, cause: RelayFailure, needs: Proof, now: Instant, jitter: f64) {
        let doubled = self.backoff.first.saturating_mul(1 << self.openings.min(20));
        let wait = doubled.min(self.backoff.longest);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        let until = now + wait + wait.mul_f64(jitter / 2.0);
        self.state = CircuitStatus::Open { until, cause };
        // A failure after the dot is not disproved by an opening that fails and then works. So the stronger proof
        // stays.
        self.needs = if self.openings > 0 { self.needs.max(needs) } else { needs };
        self.openings = self.openings.saturating_add(1);
        self.next_probe_is_email = false;
    }
}
