//! The circuit breaker of one relay, as a value: no runtime, no clock, no random source (P6, P12).
//!
//! The pool calls [`Circuit::admit`] before each email and [`Circuit::note`] after it. The circuit opens at once when a
//! session cannot be opened or MAIL fails; after three losses after the dot without a 250 between, or when a minute's
//! losses pass 0.1 % of its hand-offs; after three losses in a row between MAIL and the dot; and for longer when the
//! day's allowance is used up (the relay is parked).
//!
//! After the back-off a session is opened without an email, so that a silent relay holds none. Then one email probes:
//! success closes the circuit, failure opens it for twice as long. An email that ends before MAIL, or whose MAIL is
//! refused because of itself or its sender, proves only that sessions open. A relay that says "too fast" works.

use std::time::Duration;

/// Losses in a row that open the circuit (P12).
const LOSSES: u32 = 3;

/// A minute's losses after the dot open the circuit above one in this many hand-offs (P12).
const HANDOFFS_PER_LOSS: u64 = 1000;

const MINUTE: Duration = Duration::from_secs(60);

/// How long an open circuit stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure, and between two questions while a probe is under way. Default 1 s.
    pub first: Duration,
    /// Doubled at each failed probe, up to this. Default 5 min.
    pub longest: Duration,
    /// Between two probes while the day's allowance is used up: its window slides. Default 15 min.
    pub parked: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(300), parked: Duration::from_secs(900) }
    }
}

/// What an email, or the opening of a session, told about its relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitEvent {
    /// 250 to the final dot.
    Accepted,
    /// A refusal of the final dot: it answers.
    Answered,
    /// MAIL was answered well, and nothing was handed over.
    Reached,
    /// A session is open; MAIL proves nothing: it was not sent, or refused because of the email or its sender.
    Greeted,
    /// No session.
    NotOpened(String),
    /// MAIL failed.
    MailFailed(String),
    /// Lost between MAIL and the dot.
    LostBefore(String),
    /// Lost after the dot.
    LostAfter(String),
    /// The day's allowance is used up: in the relay's words.
    QuotaUsedUp(String),
    /// Nothing.
    Nothing,
}

/// What keeps emails from passing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenReason {
    /// The relay fails.
    Failing(String),
    /// It works, and takes no more today.
    QuotaUsedUp(String),
}

/// How an email was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// One of many.
    Normally,
    /// The only one: its end decides. It must be noted, or given back by [`Circuit::unprobe`].
    AsProbe,
    /// Not an email: a session is to be opened first, and its end is to be noted, or given back likewise.
    ToGreet,
}

/// What the circuit is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitState {
    /// Emails pass.
    Closed,
    /// None pass; from `until` on, the relay is probed.
    Open {
        /// Since the caller's origin.
        until: Duration,
        /// What opened it.
        reason: OpenReason,
    },
    /// One is under way.
    HalfOpen {
        /// What had opened it.
        reason: OpenReason,
    },
}

/// What proves that the reason no longer holds: each proves what stands before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    Session,
    Mail,
    Dot,
}

/// The breaker.
#[derive(Debug)]
pub struct Circuit {
    backoff: Backoff,
    state: CircuitState,
    needs: Proof,
    /// A session could be opened since: an email may probe.
    greeted: bool,
    /// Openings without a success between: the exponent of the back-off.
    openings: u32,
    losses_after: u32,
    losses_before: u32,
    minute: Minute,
}

#[derive(Debug, Default)]
struct Minute {
    since: Duration,
    handed: u64,
    lost: u64,
}

impl Circuit {
    /// A closed one.
    pub fn new(backoff: Backoff) -> Circuit {
        Circuit {
            backoff,
            state: CircuitState::Closed,
            needs: Proof::Session,
            greeted: false,
            openings: 0,
            losses_after: 0,
            losses_before: 0,
            minute: Minute::default(),
        }
    }

    /// What it is doing.
    pub fn state(&self) -> &CircuitState {
        &self.state
    }

    /// May an email be tried at `now`?
    ///
    /// # Errors
    /// When to ask again, and what opened the circuit.
    pub fn admit(&mut self, now: Duration) -> Result<Admitted, (Duration, OpenReason)> {
        match &self.state {
            CircuitState::Closed => Ok(Admitted::Normally),
            CircuitState::Open { until, reason } if *until > now => Err((*until, reason.clone())),
            CircuitState::HalfOpen { reason } => Err((now + self.backoff.first, reason.clone())),
            CircuitState::Open { reason, .. } => {
                self.state = CircuitState::HalfOpen { reason: reason.clone() };
                Ok(if self.greeted { Admitted::AsProbe } else { Admitted::ToGreet })
            }
        }
    }

    /// A probe that was not used: the next one may try.
    pub fn unprobe(&mut self, now: Duration) {
        if let CircuitState::HalfOpen { reason } = &self.state {
            self.state = CircuitState::Open { until: now, reason: reason.clone() };
        }
    }

    /// A probe that told nothing: where a day is used up, or no session was opened, the next one waits, so that
    /// none comes right after the other.
    fn probed_in_vain(&mut self, now: Duration) {
        let waits =
            !self.greeted || matches!(&self.state, CircuitState::HalfOpen { reason: OpenReason::QuotaUsedUp(_) });
        self.unprobe(if waits { now + self.backoff.first } else { now });
    }

    /// Learns from an email that ended at `now`. `jitter` from 0 to 1 stretches the back-off by up to
    /// its half, so that the nodes do not probe in step.
    pub fn note(&mut self, told: CircuitEvent, admitted: Admitted, now: Duration, jitter: f64) {
        let minute_is_bad = self.count(&told, now);
        let probe = admitted != Admitted::Normally;
        let decides = probe || self.state == CircuitState::Closed;
        match told {
            CircuitEvent::Greeted if admitted == Admitted::ToGreet => {
                self.greeted = true;
                self.unprobe(now);
            }
            CircuitEvent::Accepted | CircuitEvent::Answered if probe => self.close(),
            CircuitEvent::Reached if probe && self.needs <= Proof::Mail => self.close(),
            CircuitEvent::Greeted if probe && self.needs == Proof::Session => self.close(),
            CircuitEvent::Accepted
            | CircuitEvent::Answered
            | CircuitEvent::Reached
            | CircuitEvent::Greeted
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
            // Emails that were under way when it opened, or losses that do not suffice.
            CircuitEvent::QuotaUsedUp(_)
            | CircuitEvent::NotOpened(_)
            | CircuitEvent::MailFailed(_)
            | CircuitEvent::LostBefore(_)
            | CircuitEvent::LostAfter(_) => {}
        }
    }

    /// Keeps the counts; true when this minute's losses are too many.
    fn count(&mut self, told: &CircuitEvent, now: Duration) -> bool {
        if now.saturating_sub(self.minute.since) >= MINUTE {
            self.minute = Minute { since: now, ..Minute::default() };
        }
        match told {
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
            CircuitEvent::Reached
            | CircuitEvent::Greeted
            | CircuitEvent::QuotaUsedUp(_)
            | CircuitEvent::NotOpened(_)
            | CircuitEvent::MailFailed(_)
            | CircuitEvent::Nothing => {}
        }
        self.minute.lost >= u64::from(LOSSES) && self.minute.lost * HANDOFFS_PER_LOSS > self.minute.handed
    }

    fn close(&mut self) {
        self.state = CircuitState::Closed;
        self.openings = 0;
        self.losses_after = 0;
        self.losses_before = 0;
        self.minute.lost = 0;
    }

    fn park(&mut self, cause: String, now: Duration) {
        self.state = CircuitState::Open { until: now + self.backoff.parked, reason: OpenReason::QuotaUsedUp(cause) };
        // Relays say it at the dot, too.
        self.needs = Proof::Dot;
        self.greeted = true;
    }

    fn open(&mut self, cause: String, needs: Proof, now: Duration, jitter: f64) {
        let doubled = self.backoff.first.saturating_mul(1 << self.openings.min(20));
        let wait = doubled.min(self.backoff.longest);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        let until = now + wait + wait.mul_f64(jitter / 2.0);
        self.state = CircuitState::Open { until, reason: OpenReason::Failing(cause) };
        // A failure after the dot is not over because a greeting fails and then works.
        self.needs = if self.openings > 0 { self.needs.max(needs) } else { needs };
        self.openings = self.openings.saturating_add(1);
        self.greeted = false;
    }
}
