//! What the handles of a pool share: the sessions, the circuit, the pace, and the rules of the door.
//!
//! Used by the pool, which lets emails in, and by the permit, which brings back what they taught.

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
    sync::{Mutex as Turnstile, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::circuit::{Admitted, Circuit, CircuitEvent, CircuitState, OpenReason};
use super::circuit_event::circuit_event;
use super::latency::DialogueLatency;
use super::rate_limiter::RateLimiter;
use super::session_limit::SessionLimit;
use super::status::{CircuitStatus, Counted, Gauge, RelayCounters, RelayStatus};
use super::{PoolLimits, Unavailable};
use crate::smtp::replies::verdict::{DialogueResult, RefusalScope};
use crate::smtp::session::deadlines::Deadlines;
use crate::smtp::session::dialer::Dial;
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::stream::Stage;
use crate::smtp::session::target::Target;

/// One relay on one node.
pub(crate) struct PoolCore {
    target: Target,
    dialer: Arc<dyn Dial>,
    limits: PoolLimits,
    origin: Instant,
    slots: Arc<Semaphore>,
    /// One at a time waits for the pace, in the order of asking.
    turnstile: Turnstile<()>,
    state: Mutex<PoolState>,
    open: Gauge,
    /// Sessions that open for longer than the email that wanted them could wait.
    late: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) gate_passes: AtomicU64,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

/// Why no mail passes while the relay owes its first greeting.
const LATE: &str = "a session has been opening for as long as an email can wait";

/// How long after a throttle answer the status of a relay says so.
const SLOWED_FOR: Duration = Duration::from_secs(60);

struct PoolState {
    /// When it last answered that email comes too fast, and in what words.
    slowed: Option<(Duration, String)>,
    /// Oldest first; the youngest is used first, so that what is not needed grows old.
    idle: Vec<Idle>,
    circuit: Circuit,
    pace: RateLimiter,
    dialogues: DialogueLatency,
    counters: RelayCounters,
    /// Emails that a session may carry.
    session_limit: SessionLimit,
    /// Sessions that there may be.
    places: usize,
    jitter: StdRng,
}

impl PoolState {
    /// Tells the circuit; the ticket is used up.
    fn note(&mut self, told: CircuitEvent, ticket: &mut Ticket, now: Duration) {
        let jitter = self.jitter.random();
        self.circuit.note(told, ticket.admitted, now, jitter);
        ticket.admitted = Admitted::Normally;
    }

    /// Why it is slowed, for as long as that is worth telling.
    fn slowed(&self, now: Duration) -> Option<&str> {
        let (at, words) = self.slowed.as_ref()?;
        (now.saturating_sub(*at) < SLOWED_FOR).then_some(words)
    }
}

/// As many as can be counted.
fn places(sessions: usize) -> usize {
    sessions.clamp(1, u32::MAX as usize)
}

/// A dialogue that runs; over when it is dropped.
pub(crate) struct Running {
    shared: Arc<PoolCore>,
    began: Duration,
    /// The time that it took says how long an email keeps a session.
    used_its_session: bool,
}

impl Running {
    /// For how long it has run.
    pub fn lasts(&self) -> Duration {
        self.shared.now().saturating_sub(self.began)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.state.lock().dialogues.end(self.began, now, self.used_its_session);
    }
}

struct Idle {
    held: OpenSession,
    since: Instant,
}

/// An open session, counted while it exists.
pub(crate) struct OpenSession {
    pub session: Session,
    _open: Counted,
}

impl OpenSession {
    /// Says QUIT; the session counts as open until the farewell is over.
    pub async fn quit(self) {
        let OpenSession { session, _open } = self;
        session.quit().await;
    }
}

/// The circuit's leave for one email, or for opening a session without one. Dropped unused, it gives a probe back.
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
            slots: Arc::new(Semaphore::new(places(limits.max_sessions))),
            turnstile: Turnstile::new(()),
            state: Mutex::new(PoolState {
                slowed: None,
                idle: Vec::new(),
                circuit: Circuit::new(limits.backoff),
                pace: RateLimiter::new(limits.rate_per_second, limits.burst),
                dialogues: DialogueLatency::default(),
                counters: RelayCounters::default(),
                session_limit: SessionLimit::new(limits.mails_per_session),
                places: places(limits.max_sessions),
                jitter: StdRng::seed_from_u64(seed),
            }),
            open: Gauge::default(),
            late: Gauge::default(),
            waiting: Gauge::default(),
            gate_passes: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            limits,
        }
    }

    pub fn set_rate(&self, rate_per_second: f64, burst: f64) {
        let now = self.now();
        self.state.lock().pace.set_budget(now, rate_per_second, burst);
    }

    /// Places that are taken go as soon as their dialogues are over; until then no other dialogue gets one.
    pub fn set_sessions(&self, sessions: usize) {
        let sessions = places(sessions);
        let before = std::mem::replace(&mut self.state.lock().places, sessions);
        match sessions.checked_sub(before) {
            Some(more) => self.slots.add_permits(more),
            None => {
                let (slots, fewer) = (Arc::clone(&self.slots), (before - sessions) as u32);
                self.tasks.spawn(async move {
                    // A pool that is closed gives out no places any more.
                    if let Ok(places) = slots.acquire_many_owned(fewer).await {
                        places.forget();
                    }
                });
            }
        }
    }

    pub fn status(&self) -> RelayStatus {
        let now = self.now();
        let state = self.state.lock();
        let circuit = match state.circuit.state().clone() {
            CircuitState::Closed if self.owes_a_greeting() => CircuitStatus::HalfOpen { cause: LATE.to_owned() },
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
            sessions_open: self.open.now(),
            sessions_idle: state.idle.len(),
            waiting_dots: self.waiting.now(),
            circuit,
            rate_per_second: state.pace.rate_per_second(now),
            slowed: state.slowed(now).map(str::to_owned),
            dialogue: state.dialogues.last(now),
            counters: RelayCounters { gate_passes, ..state.counters },
        }
    }

    /// No more permits, and farewells for what is idle; what is under way goes on.
    pub fn close(&self) {
        self.closing.cancel();
        self.slots.close();
        let idle = std::mem::take(&mut self.state.lock().idle);
        for Idle { held, .. } in idle {
            self.tasks.spawn(held.quit());
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

    /// Tokio gives a slot that comes free to a waiting task; only what is left is found here.
    pub fn slot_now(&self) -> Option<OwnedSemaphorePermit> {
        self.slots.clone().try_acquire_owned().ok()
    }

    pub fn take_pace_now(&self) -> bool {
        self.turnstile.try_lock().is_ok_and(|_turn| self.state.lock().pace.take(self.now()).is_ok())
    }

    pub async fn wait_for_pace(&self, deadline: Instant) -> Result<(), Unavailable> {
        let waiting = async {
            let _turn = self.turnstile.lock().await;
            loop {
                let wait = match self.state.lock().pace.take(self.now()) {
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

    /// Asks the circuit. Where it wants a session first, a task opens one, and no email waits for that.
    fn admit(self: &Arc<PoolCore>) -> Result<Admitted, Unavailable> {
        if self.closing.is_cancelled() {
            return Err(Unavailable::Closed);
        }
        let now = self.now();
        let admit = || self.state.lock().circuit.admit(now);
        let admitted = match admit() {
            Ok(Admitted::ToGreet) => {
                // Not under the lock: a runtime that ends drops the task at once, and the ticket asks for it.
                self.tasks.spawn(greet(Ticket { shared: self.clone(), admitted: Admitted::ToGreet }));
                admit()
            }
            // Nothing is known against it yet. But the next email would wait as long, or the same one again (P12).
            Ok(Admitted::Normally) if self.owes_a_greeting() => {
                Err((now + self.limits.backoff.first, OpenReason::Failing(LATE.to_owned())))
            }
            admitted => admitted,
        };
        admitted.map_err(|(until, reason)| {
            let until = self.origin + until;
            match reason {
                OpenReason::Failing(cause) => Unavailable::CircuitOpen { until, cause },
                OpenReason::QuotaUsedUp(cause) => Unavailable::Parked { until, cause },
            }
        })
    }

    pub fn take_idle(&self) -> Option<OpenSession> {
        self.state.lock().idle.pop().map(|idle| idle.held)
    }

    /// Keeps a session for the next email, or returns it when it is to be retired.
    pub fn keep(&self, held: OpenSession) -> Option<OpenSession> {
        let mut state = self.state.lock();
        let learned = state.session_limit.get();
        if held.session.emails() >= learned.min(held.session.offers().mails_max.unwrap_or(u32::MAX)) {
            if held.session.emails() >= learned {
                state.session_limit.reached(self.now());
            }
            return Some(held);
        }
        // Under the lock: `close` empties the desk after it cancels.
        if self.closing.is_cancelled() {
            return Some(held);
        }
        state.idle.push(Idle { held, since: Instant::now() });
        None
    }

    /// Opens a session, with the relay's own time for each answer.
    pub async fn open(&self) -> Result<OpenSession, Box<DialogueResult>> {
        let patience = Deadlines::default();
        let session = Session::open(&self.target, self.dialer.as_ref(), self.limits.timeouts, &patience).await?;
        self.state.lock().counters.sessions += 1;
        Ok(OpenSession { session, _open: self.open.one_more() })
    }

    /// An email went back because its session did not open in time; the session counts as late while this exists.
    pub fn one_late(&self) -> Counted {
        self.late.one_more()
    }

    /// True while a session is late and none is open: none of them may ever open.
    fn owes_a_greeting(&self) -> bool {
        self.late.now() > 0 && !self.has_open_session()
    }

    /// True while another connection of this pool is open.
    pub fn has_open_session(&self) -> bool {
        self.open.now() > 0
    }

    /// A dialogue begins.
    pub fn begin(self: &Arc<PoolCore>) -> Running {
        let now = self.now();
        self.state.lock().dialogues.begin(now);
        Running { shared: self.clone(), began: now, used_its_session: false }
    }

    /// The relay ended a session with 421 after so many emails.
    pub fn learn_session_limit(&self, emails: u32) {
        let now = self.now();
        self.state.lock().session_limit.ended_after(emails, now);
    }

    /// Tells the circuit of an opening without an email.
    pub fn note(&self, told: CircuitEvent, ticket: &mut Ticket) {
        let now = self.now();
        self.state.lock().note(told, ticket, now);
    }

    /// Learns from the verdict of a dialogue: what it says about the relay changes circuit, pace and measures.
    pub fn learn(&self, verdict: &DialogueResult, mut ticket: Ticket, told: CircuitEvent, mut running: Running) {
        running.used_its_session = used_its_session(verdict);
        drop(running);
        let now = self.now();
        let mut state = self.state.lock();
        state.counters.count(verdict);
        state.note(told, &mut ticket, now);
        if let DialogueResult::Refused { scope, code, text, .. } = verdict {
            match scope {
                RefusalScope::Throttle { daily_quota: false } => {
                    state.pace.halve(now);
                    state.slowed = Some((now, format!("{code} {text}")));
                }
                // A used-up day is the circuit's: a relay that takes no more is not too fast.
                RefusalScope::Throttle { daily_quota: true } => {}
                // One recipient, or one message, slows no other.
                RefusalScope::Relay
                | RefusalScope::Mailbox
                | RefusalScope::Unnamed
                | RefusalScope::Tenant
                | RefusalScope::Content
                | RefusalScope::Greylisted => {}
            }
        }
    }

    fn take_idle_since(&self, before: Instant) -> Vec<OpenSession> {
        let mut state = self.state.lock();
        let old = state.idle.iter().take_while(|idle| idle.since <= before).count();
        state.idle.drain(..old).map(|idle| idle.held).collect()
    }
}

/// Not where no session was opened, and not where we gave up ourselves.
fn used_its_session(verdict: &DialogueResult) -> bool {
    match verdict {
        DialogueResult::Accepted { .. } | DialogueResult::InDoubt { .. } => true,
        DialogueResult::Refused { stage, .. } => *stage >= Stage::Mail,
        DialogueResult::Broken { stage, cause } => *stage >= Stage::Mail && !cause.is_ours(),
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

    /// That of an email that went back before there was a session: the opening keeps the one that the circuit gave.
    pub fn of_no_use(shared: &Arc<PoolCore>) -> Ticket {
        Ticket { shared: shared.clone(), admitted: Admitted::Normally }
    }

    /// Asks again after a wait, in which the circuit may have opened. A probe stays one.
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
            self.shared.state.lock().circuit.unprobe(now);
        }
    }
}

/// Opens a session at a relay that has failed, with the relay's own time for each answer and no mail in hand, and
/// leaves it to the email that probes.
async fn greet(mut ticket: Ticket) {
    let shared = ticket.shared.clone();
    // A pool that is closed gives out no places any more.
    let Ok(slot) = shared.slots.clone().acquire_owned().await else { return };
    // It makes room for the new one; that it was idle and is open does not prove that the relay answers.
    if let Some(idle) = shared.take_idle() {
        idle.quit().await;
    }
    let (told, retired) = match shared.closing.run_until_cancelled(shared.open()).await {
        None => (CircuitEvent::Nothing, None),
        Some(Ok(held)) => (CircuitEvent::Greeted, shared.keep(held)),
        Some(Err(verdict)) => (circuit_event(&verdict, Duration::ZERO, shared.has_open_session()), None),
    };
    shared.note(told, &mut ticket);
    if let Some(held) = retired {
        held.quit().await;
    }
    drop(slot);
}

/// Says QUIT on sessions that were idle for a while. A farewell holds a slot like any dialogue;
/// when there is none, the session is needed no more than its place, and closes without a word.
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
        for held in shared.take_idle_since(before) {
            if let Ok(slot) = shared.slots.clone().try_acquire_owned() {
                shared.tasks.spawn(async move {
                    held.quit().await;
                    drop(slot);
                });
            }
        }
    }
}
