//! State that all handles of a pool share: the sessions, the circuit, the rate, and the admission of emails.
//!
//! The pool uses it to admit emails; the permit uses it to report their results.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::circuit::{Admitted, Circuit, CircuitEvent, CircuitRefusal, CircuitState, OpenReason};
use super::circuit_event::circuit_event;
use super::latency::DialogueLatency;
use super::rate_limiter::RateLimiter;
use super::session_limit::SessionLimit;
use super::status::{CircuitStatus, Counted, Gauge, RelayCounters, RelayStatus};
use super::{PoolLimits, Unavailable};
use crate::smtp::replies::dialogue_result::{DialogueResult, RefusalScope};
use crate::smtp::session::deadlines::Deadlines;
use crate::smtp::session::dialer::Dial;
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::target::Target;
use crate::smtp::stage::Stage;

/// Shared state of the pool of one relay on one node.
pub(crate) struct PoolCore {
    target: Target,
    dialer: Arc<dyn Dial>,
    limits: PoolLimits,
    origin: Instant,
    slots: Arc<Semaphore>,
    /// Only one caller at a time waits for the rate, in order of arrival.
    rate_queue: tokio::sync::Mutex<()>,
    state: Mutex<PoolState>,
    open_sessions: Gauge,
    /// Sessions that have been opening for longer than the email that wanted them could wait.
    late_openings: Gauge,
    /// Emails past the gate that have no answer yet.
    pub(crate) waiting: Gauge,
    pub(crate) gate_passes: AtomicU64,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

/// Cause that is reported while no email passes because a session is opening late.
const OPENING_LATE: &str = "a session has been opening for as long as an email can wait";

/// Time for which the status of a relay shows its last throttle answer.
const THROTTLE_SHOWN_FOR: Duration = Duration::from_secs(60);

/// A relay's answer "too fast".
struct ThrottleReply {
    /// Time since the pool's origin.
    at: Duration,
    text: String,
}

struct PoolState {
    /// The last answer "too fast". `None`: there was none.
    throttle_reply: Option<ThrottleReply>,
    /// Idle sessions, oldest first. The youngest is used first, so that sessions that are not needed become old.
    idle: Vec<Idle>,
    circuit: Circuit,
    rate_limiter: RateLimiter,
    dialogues: DialogueLatency,
    counters: RelayCounters,
    /// Number of emails that a session may carry.
    session_limit: SessionLimit,
    /// Maximum number of sessions.
    max_sessions: usize,
    jitter: StdRng,
}

impl PoolState {
    /// Reports an event to the circuit. The ticket is used up.
    fn note(&mut self, event: CircuitEvent, ticket: &mut Ticket, now: Duration) {
        let jitter = self.jitter.random();
        self.circuit.note(event, ticket.admitted, now, jitter);
        ticket.admitted = Admitted::Normally;
    }

    /// Returns the relay's last throttle answer while it is recent.
    fn recent_throttle_reply(&self, now: Duration) -> Option<String> {
        let reply = self.throttle_reply.as_ref()?;
        (now.saturating_sub(reply.at) < THROTTLE_SHOWN_FOR).then(|| reply.text.clone())
    }
}

/// Limits a number of sessions to what the semaphore can count, at least one.
fn clamp_sessions(sessions: usize) -> usize {
    sessions.clamp(1, u32::MAX as usize)
}

/// A running dialogue. Dropping it records its end.
pub(crate) struct Running {
    shared: Arc<PoolCore>,
    began: Duration,
    /// True if its duration shows how long an email uses a session.
    used_its_session: bool,
}

impl Running {
    /// Returns how long the dialogue has run.
    pub fn elapsed(&self) -> Duration {
        self.shared.now().saturating_sub(self.began)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.state.lock().dialogues.ended(self.began, now, self.used_its_session);
    }
}

struct Idle {
    open: OpenSession,
    since: Instant,
}

/// An open session. It counts in the number of open sessions while it exists.
pub(crate) struct OpenSession {
    pub session: Session,
    _open: Counted,
}

impl OpenSession {
    /// Sends QUIT. The session counts as open until the answer has arrived or timed out.
    pub async fn quit(self) {
        let OpenSession { session, _open } = self;
        session.quit().await;
    }
}

/// Admission by the circuit, for one email or for an opening without one. Dropping it unused returns the probe.
pub(crate) struct Ticket {
    shared: Arc<PoolCore>,
    admitted: Admitted,
}

impl PoolCore {
    pub fn new(target: Target, dialer: Arc<dyn Dial>, limits: PoolLimits, seed: u64) -> PoolCore {
        PoolCore {
            target,
            dialer,
            origin: Instant::now(),
            slots: Arc::new(Semaphore::new(clamp_sessions(limits.max_sessions))),
            rate_queue: tokio::sync::Mutex::new(()),
            state: Mutex::new(PoolState {
                throttle_reply: None,
                idle: Vec::new(),
                circuit: Circuit::new(limits.backoff),
                rate_limiter: RateLimiter::new(limits.rate_per_second, limits.burst),
                dialogues: DialogueLatency::default(),
                counters: RelayCounters::default(),
                session_limit: SessionLimit::new(limits.emails_per_session),
                max_sessions: clamp_sessions(limits.max_sessions),
                jitter: StdRng::seed_from_u64(seed),
            }),
            open_sessions: Gauge::default(),
            late_openings: Gauge::default(),
            waiting: Gauge::default(),
            gate_passes: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            limits,
        }
    }

    pub fn set_rate(&self, rate_per_second: f64, burst: f64) {
        let now = self.now();
        self.state.lock().rate_limiter.set_budget(now, rate_per_second, burst);
    }

    /// Reduces or increases the slots. Slots in use are removed when their dialogues end; no other dialogue gets them.
    pub fn set_sessions(&self, sessions: usize) {
        let sessions = clamp_sessions(sessions);
        let before = std::mem::replace(&mut self.state.lock().max_sessions, sessions);
        match sessions.checked_sub(before) {
            Some(more) => self.slots.add_permits(more),
            None => {
                let (slots, fewer) = (Arc::clone(&self.slots), (before - sessions) as u32);
                self.tasks.spawn(async move {
                    // Fails only if the pool was closed: it gives out no slots any more.
                    if let Ok(removed) = slots.acquire_many_owned(fewer).await {
                        removed.forget();
                    }
                });
            }
        }
    }

    pub fn status(&self) -> RelayStatus {
        let now = self.now();
        let state = self.state.lock();
        let circuit = match state.circuit.state().clone() {
            CircuitState::Closed if self.is_opening_late() => {
                CircuitStatus::HalfOpen { cause: OPENING_LATE.to_owned() }
            }
            CircuitState::Closed => CircuitStatus::Closed,
            CircuitState::Open { until, reason: OpenReason::Failing(cause) } => {
                CircuitStatus::Open { until: self.origin + until, cause }
            }
            CircuitState::Open { until, reason: OpenReason::QuotaUsedUp(cause) } => {
                CircuitStatus::Parked { until: self.origin + until, cause }
            }
            CircuitState::HalfOpen { reason: OpenReason::Failing(cause) | OpenReason::QuotaUsedUp(cause) } => {
                CircuitStatus::HalfOpen { cause }
            }
        };
        let gate_passes = self.gate_passes.load(Ordering::Relaxed);
        RelayStatus {
            sessions_open: self.open_sessions.now(),
            sessions_idle: state.idle.len(),
            waiting_dots: self.waiting.now(),
            circuit,
            rate_per_second: state.rate_limiter.rate_per_second(now),
            slowed: state.recent_throttle_reply(now),
            dialogue: state.dialogues.last(now),
            counters: RelayCounters { gate_passes, ..state.counters },
        }
    }

    /// Gives no more permits and ends idle sessions with QUIT. Running dialogues continue.
    pub fn close(&self) {
        self.closing.cancel();
        self.slots.close();
        let idle = std::mem::take(&mut self.state.lock().idle);
        for Idle { open, .. } in idle {
            self.tasks.spawn(open.quit());
        }
        self.tasks.close();
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub async fn slot(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Unavailable> {
        match timeout_at(deadline, self.slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(Unavailable::Closed),
            Err(_) => Err(Unavailable::Busy),
        }
    }

    /// Returns a free slot without waiting. Tokio gives a freed slot to waiting tasks first, so this overtakes none.
    pub fn slot_now(&self) -> Option<OwnedSemaphorePermit> {
        self.slots.clone().try_acquire_owned().ok()
    }

    /// Takes one email from the rate without waiting. Returns false if the rate allows none, or if a caller waits.
    pub fn take_from_rate_now(&self) -> bool {
        self.rate_queue.try_lock().is_ok_and(|_turn| self.state.lock().rate_limiter.take(self.now()).is_ok())
    }

    /// Waits until the rate allows one email.
    pub async fn wait_for_rate(&self, deadline: Instant) -> Result<(), Unavailable> {
        let waiting = async {
            let _turn = self.rate_queue.lock().await;
            loop {
                let wait = match self.state.lock().rate_limiter.take(self.now()) {
                    Ok(()) => return Ok(()),
                    Err(wait) => wait,
                };
                let until = Instant::now() + wait;
                if until > deadline {
                    return Err(Unavailable::Paced { until });
                }
                sleep(wait).await;
            }
        };
        timeout_at(deadline, waiting).await.unwrap_or(Err(Unavailable::Paced { until: deadline }))
    }

    /// Asks the circuit for admission. If the circuit wants a session first, a task opens one, and no email waits for
    /// it.
    fn admit(self: &Arc<PoolCore>) -> Result<Admitted, Unavailable> {
        if self.closing.is_cancelled() {
            return Err(Unavailable::Closed);
        }
        let now = self.now();
        let mut admitted = self.state.lock().circuit.admit(now);
        if matches!(admitted, Ok(Admitted::ToOpenSession)) {
            // Spawned without the lock: a runtime that ends drops the task at once, and dropping the ticket takes the
            // lock.
            self.tasks.spawn(open_without_email(Ticket { shared: self.clone(), admitted: Admitted::ToOpenSession }));
            admitted = self.state.lock().circuit.admit(now);
        } else if matches!(admitted, Ok(Admitted::Normally)) && self.is_opening_late() {
            // The relay is not known to fail. But the next email, or the same one again, would wait as long (P12).
            let until = self.origin + now + self.limits.backoff.first;
            return Err(Unavailable::CircuitOpen { until, cause: OPENING_LATE.to_owned() });
        }
        admitted.map_err(|refusal| self.unavailable(refusal))
    }

    fn unavailable(&self, refusal: CircuitRefusal) -> Unavailable {
        let until = self.origin + refusal.until;
        match refusal.reason {
            OpenReason::Failing(cause) => Unavailable::CircuitOpen { until, cause },
            OpenReason::QuotaUsedUp(cause) => Unavailable::Parked { until, cause },
        }
    }

    pub fn take_idle(&self) -> Option<OpenSession> {
        self.state.lock().idle.pop().map(|idle| idle.open)
    }

    /// Keeps a session for the next email. Returns it if it must be retired.
    pub fn keep(&self, open: OpenSession) -> Option<OpenSession> {
        let mut state = self.state.lock();
        let (emails, learned) = (open.session.emails(), state.session_limit.get());
        if emails >= learned.min(open.session.offers().emails_max.unwrap_or(u32::MAX)) {
            if emails >= learned {
                state.session_limit.reached(self.now());
            }
            return Some(open);
        }
        // Checked under the lock: `close` cancels first and then removes all idle sessions.
        if self.closing.is_cancelled() {
            return Some(open);
        }
        state.idle.push(Idle { open, since: Instant::now() });
        None
    }

    /// Opens a session. The caller's deadlines do not apply, only the relay's time-outs.
    pub async fn open(&self) -> Result<OpenSession, Box<DialogueResult>> {
        let deadlines = Deadlines::default();
        let session = Session::open(&self.target, self.dialer.as_ref(), self.limits.timeouts, &deadlines).await?;
        self.state.lock().counters.sessions += 1;
        Ok(OpenSession { session, _open: self.open_sessions.one_more() })
    }

    /// Counts a session that did not open in time for its email, as long as the result exists.
    pub fn count_late_open(&self) -> Counted {
        self.late_openings.one_more()
    }

    /// True while a session opens late and none is open: the relay may never answer.
    fn is_opening_late(&self) -> bool {
        self.late_openings.now() > 0 && !self.has_open_session()
    }

    /// True while the pool has an open session.
    pub fn has_open_session(&self) -> bool {
        self.open_sessions.now() > 0
    }

    /// Records the start of a dialogue.
    pub fn start_dialogue(self: &Arc<PoolCore>) -> Running {
        let now = self.now();
        self.state.lock().dialogues.started(now);
        Running { shared: self.clone(), began: now, used_its_session: false }
    }

    /// Records that the relay ended a session with 421 after `emails` emails.
    pub fn learn_session_limit(&self, emails: u32) {
        let now = self.now();
        self.state.lock().session_limit.ended_after(emails, now);
    }

    /// Reports the end of an opening without an email to the circuit.
    pub fn note(&self, event: CircuitEvent, ticket: &mut Ticket) {
        let now = self.now();
        self.state.lock().note(event, ticket, now);
    }

    /// Learns from the result of a dialogue: updates the counters, the circuit, the rate and the latency.
    pub fn learn(&self, result: &DialogueResult, mut ticket: Ticket, event: CircuitEvent, mut running: Running) {
        running.used_its_session = used_its_session(result);
        drop(running);
        let now = self.now();
        let mut state = self.state.lock();
        state.counters.count(result);
        state.note(event, &mut ticket, now);
        // The circuit handles a used-up allowance of the day: it does not mean that the rate is too high.
        let throttle = RefusalScope::Throttle { daily_quota: false };
        if let DialogueResult::Refused { scope, code, text, .. } = result
            && *scope == throttle
        {
            state.rate_limiter.halve(now);
            state.throttle_reply = Some(ThrottleReply { at: now, text: format!("{code} {text}") });
        }
    }

    fn take_idle_since(&self, before: Instant) -> Vec<OpenSession> {
        let mut state = self.state.lock();
        let old = state.idle.iter().take_while(|idle| idle.since <= before).count();
        state.idle.drain(..old).map(|idle| idle.open).collect()
    }
}

/// True unless no session was opened or this node ended the dialogue itself.
fn used_its_session(result: &DialogueResult) -> bool {
    match result {
        DialogueResult::Accepted { .. } | DialogueResult::InDoubt { .. } => true,
        DialogueResult::Refused { stage, .. } => *stage >= Stage::Mail,
        DialogueResult::Broken { stage, cause } => *stage >= Stage::Mail && !cause.ended_by_this_node(),
        DialogueResult::GateClosed(_) | DialogueResult::NoSmtpUtf8 { .. } => false,
    }
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Ticket {
    pub fn new(shared: &Arc<PoolCore>) -> Result<Ticket, Unavailable> {
        let admitted = shared.admit()?;
        Ok(Ticket { shared: shared.clone(), admitted })
    }

    /// Returns the ticket of an email that went back before its session was open. The opening keeps the admission.
    pub fn detached(shared: &Arc<PoolCore>) -> Ticket {
        Ticket { shared: shared.clone(), admitted: Admitted::Normally }
    }

    /// Asks the circuit again after a wait, during which it may have opened. A probe stays a probe.
    pub fn renew(&mut self) -> Result<(), Unavailable> {
        if self.admitted == Admitted::Normally {
            self.admitted = self.shared.admit()?;
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.admitted != Admitted::Normally {
            let now = self.shared.now();
            self.shared.state.lock().circuit.release_probe(now);
        }
    }
}

/// Opens a session with a relay that has failed. No email waits for it, so only the relay's time-outs apply. The
/// session is kept for the email that probes.
async fn open_without_email(mut ticket: Ticket) {
    let shared = ticket.shared.clone();
    // Fails only if the pool was closed.
    let Ok(slot) = shared.slots.clone().acquire_owned().await else { return };
    // Makes room for the new session. An idle session that is open does not prove that the relay answers.
    if let Some(idle) = shared.take_idle() {
        idle.quit().await;
    }
    let mut retired = None;
    let event = match shared.closing.run_until_cancelled(shared.open()).await {
        None => CircuitEvent::Nothing,
        Some(Ok(open)) => {
            retired = shared.keep(open);
            CircuitEvent::SessionOpened
        }
        Some(Err(result)) => circuit_event(&result, Duration::ZERO, shared.has_open_session()),
    };
    shared.note(event, &mut ticket);
    if let Some(open) = retired {
        open.quit().await;
    }
    drop(slot);
}

/// Ends sessions that were idle for a while with QUIT. QUIT needs a slot like any dialogue. Without a free slot the
/// session is closed without QUIT.
pub(crate) async fn retire_idle_sessions(shared: Weak<PoolCore>, every: Duration) {
    let Some(closing) = shared.upgrade().map(|shared| shared.closing.clone()) else { return };
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = sleep(every.max(Duration::from_millis(10))) => {}
        }
        let Some(shared) = shared.upgrade() else { return };
        let Some(before) = Instant::now().checked_sub(shared.limits.idle_for) else {
            continue;
        };
        for open in shared.take_idle_since(before) {
            if let Ok(slot) = shared.slots.clone().try_acquire_owned() {
                shared.tasks.spawn(async move {
                    open.quit().await;
                    drop(slot);
                });
            }
        }
    }
}
