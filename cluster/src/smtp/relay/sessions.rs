//! State that all handles of one relay's sessions share: the sessions, the circuit, the rate and the counters.
//!
//! `acquire.rs` uses it to permit emails; the permit uses it to report their results.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::circuit::{Circuit, CircuitEvent, CircuitPermit};
use super::failure::{RelayFailure, RelayTrouble};
use super::idle_sessions::{IdleSessions, OpenSession};
use super::lasting_refusals::LastingRefusals;
use super::latency::DialogueLatency;
use super::session_limit::SessionLimit;
use super::status::{CircuitStatus, Counted, Gauge, RelayCounters, RelayStatus};
use super::{RelayLimits, retire_idle_sessions};
use crate::process::rate_limiter::RateLimiter;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::Deadlines;
use crate::smtp::session::dialer::Dial;
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::envelope::Email;
use crate::smtp::session::target::Target;
use crate::smtp::stage::Stage;

/// The sessions of one node with one relay, and their shared state.
pub struct RelaySessions {
    /// Name of the relay.
    relay: String,
    target: Target,
    dialer: Arc<dyn Dial>,
    pub(super) limits: RelayLimits,
    created_at: Instant,
    pub(super) session_permits: Arc<Semaphore>,
    /// Reductions of the number of sessions that wait for slots in use.
    reductions: Gauge,
    /// Only one caller at a time waits for the rate, in order of arrival.
    pub(super) rate_queue: tokio::sync::Mutex<()>,
    pub(super) state: Mutex<RelayState>,
    open_sessions: Gauge,
    /// Sessions that have been opening for longer than the email that wanted them could wait.
    late_openings: Gauge,
    /// Emails past the gate that have no answer yet.
    pub(super) waiting: Gauge,
    pub(super) gate_passes: AtomicU64,
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
}

/// Maximum latency of a dialogue at which an email is taken for a session before the email ahead of it is answered.
const NEXT_LATENCY_MAX: Duration = Duration::from_millis(250);

/// Time for which the status of a relay shows its last throttle answer.
const THROTTLE_SHOWN_FOR: Duration = Duration::from_secs(60);

/// A relay's answer "too fast".
struct ThrottleReply {
    /// Time since the creation of the state.
    at: Duration,
    reply: RelayFailure,
}

pub(super) struct RelayState {
    /// The last answer "too fast". `None`: there was none.
    throttle_reply: Option<ThrottleReply>,
    refusals: LastingRefusals,
    pub(super) idle: IdleSessions,
    pub(super) circuit: Circuit,
    pub(super) rate_limiter: RateLimiter,
    dialogues: DialogueLatency,
    counters: RelayCounters,
    /// Number of emails that a session may carry.
    session_limit: SessionLimit,
    /// Maximum number of sessions.
    max_sessions: usize,
    jitter: StdRng,
}

impl RelayState {
    /// Reports an event of a permitted email or opening to the circuit.
    fn record(&mut self, event: CircuitEvent, permit: CircuitPermit) {
        let jitter = self.jitter.random();
        self.circuit.record(event, permit, Instant::now(), jitter);
    }

    /// Returns the number of emails that a session may carry.
    fn emails_max(&self, session: &Session) -> u32 {
        self.session_limit.get().min(session.extensions().emails_max.unwrap_or(u32::MAX))
    }

    /// Returns the relay's last throttle answer while it is recent.
    fn recent_throttle_reply(&self, now: Duration) -> Option<RelayFailure> {
        let reply = self.throttle_reply.as_ref()?;
        (now.saturating_sub(reply.at) < THROTTLE_SHOWN_FOR).then(|| reply.reply.clone())
    }
}

/// Limits a number of sessions to what the semaphore can count, at least one.
fn clamp_sessions(sessions: usize) -> usize {
    sessions.clamp(1, u32::MAX as usize)
}

/// A running dialogue. Dropping it records its end.
pub(crate) struct Running {
    sessions: Arc<RelaySessions>,
    began: Duration,
    /// True if its duration shows how long an email uses a session.
    used_its_session: bool,
}

impl Running {
    /// Returns how long the dialogue has run.
    pub fn elapsed(&self) -> Duration {
        self.sessions.now().saturating_sub(self.began)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.sessions.now();
        self.sessions.state.lock().dialogues.ended(self.began, now, self.used_its_session);
    }
}

impl RelaySessions {
    /// Creates the state without connections. `seed` is used for the jitter of the back-off only. Must be called inside
    /// a tokio runtime, which then runs the dialogues.
    pub fn new(
        relay: &str,
        target: Target,
        dialer: Arc<dyn Dial>,
        limits: RelayLimits,
        seed: u64,
    ) -> Arc<RelaySessions> {
        let sessions = Arc::new(RelaySessions {
            relay: relay.to_owned(),
            target,
            dialer,
            created_at: Instant::now(),
            session_permits: Arc::new(Semaphore::new(clamp_sessions(limits.max_sessions))),
            reductions: Gauge::default(),
            rate_queue: tokio::sync::Mutex::new(()),
            state: Mutex::new(RelayState {
                throttle_reply: None,
                refusals: LastingRefusals::default(),
                idle: IdleSessions::default(),
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
        });
        tokio::spawn(retire_idle_sessions(Arc::downgrade(&sessions), limits.idle_for / 2));
        sessions
    }

    /// Returns the name of the relay.
    pub fn relay(&self) -> &str {
        &self.relay
    }

    /// Sets another share of the relay's budget.
    pub fn set_rate(&self, rate_per_second: f64, burst: f64) {
        let now = self.now();
        self.state.lock().rate_limiter.set_budget(now, rate_per_second, burst);
    }

    /// Sets another maximum number of sessions. All running dialogues count against it (P12). Slots in use are removed
    /// when their dialogues end; no other dialogue gets them.
    pub fn set_sessions(&self, sessions: usize) {
        let sessions = clamp_sessions(sessions);
        let before = std::mem::replace(&mut self.state.lock().max_sessions, sessions);
        match sessions.checked_sub(before) {
            Some(more) => self.session_permits.add_permits(more),
            None => {
                let (slots, fewer) = (Arc::clone(&self.session_permits), (before - sessions) as u32);
                let waiting = self.reductions.one_more();
                self.tasks.spawn(async move {
                    let _waiting = waiting;
                    // Fails only after `stop_permits`, when no slot is given any more.
                    if let Ok(removed) = slots.acquire_many_owned(fewer).await {
                        removed.forget();
                    }
                });
            }
        }
    }

    /// Returns the status of the relay on this node.
    pub fn status(&self) -> RelayStatus {
        let now = self.now();
        let state = self.state.lock();
        let circuit = match state.circuit.state() {
            CircuitStatus::Closed if self.is_opening_late() => {
                let cause = RelayFailure::without_stage(RelayTrouble::OpeningLate);
                CircuitStatus::HalfOpen { cause, parked: false }
            }
            state => state.clone(),
        };
        let gate_passes = self.gate_passes.load(Ordering::Relaxed);
        RelayStatus {
            sessions_open: self.open_sessions.now(),
            sessions_idle: state.idle.len(),
            waiting_dots: self.waiting.now(),
            circuit,
            rate_per_second: state.rate_limiter.rate_per_second(now),
            slowed: state.recent_throttle_reply(now),
            refusing: state.refusals.lasting(now),
            dialogue: state.dialogues.last(now),
            counters: RelayCounters { gate_passes, ..state.counters },
        }
    }

    /// Gives no more permits and ends idle sessions with QUIT. Running dialogues continue.
    pub(super) fn stop_permits(&self) {
        self.closing.cancel();
        self.session_permits.close();
        let idle = std::mem::take(&mut self.state.lock().idle);
        for open in idle.into_open() {
            self.tasks.spawn(open.quit());
        }
        self.tasks.close();
    }

    /// Returns the time since the creation of the state.
    pub(super) fn now(&self) -> Duration {
        self.created_at.elapsed()
    }

    pub(super) fn take_idle(&self) -> Option<OpenSession> {
        self.state.lock().idle.pop()
    }

    /// Keeps a session for the next email. Returns it if it must be retired.
    pub(super) fn keep(&self, open: OpenSession) -> Option<OpenSession> {
        let mut state = self.state.lock();
        if open.session.emails() >= state.emails_max(&open.session) {
            if open.session.emails() >= state.session_limit.get() {
                state.session_limit.reached(self.now());
            }
            return Some(open);
        }
        // Checked under the lock: `stop_permits` cancels first and then removes all idle sessions.
        if self.closing.is_cancelled() || open.session.has_announced() {
            return Some(open);
        }
        state.idle.push(open, Instant::now());
        None
    }

    /// Returns true if this session, which is about to send an email, may take the next one too, as far as session and
    /// relay decide. The next email waits for two answers of the relay, so a slow relay gets none ahead of its turn
    /// (I12). While a reduction of sessions waits for slots, each session gives its slot back.
    pub(super) fn takes_next(&self, session: &Session) -> bool {
        let state = self.state.lock();
        let is_fast = state.dialogues.last(self.now()).is_some_and(|latency| latency <= NEXT_LATENCY_MAX);
        is_fast
            && self.reductions.now() == 0
            && session.extensions().pipelining
            && session.emails().saturating_add(2) <= state.emails_max(session)
    }

    /// Opens a session. The caller's deadlines do not apply, only the relay's time-outs.
    pub(super) async fn open(&self) -> Result<OpenSession, Box<DialogueResult>> {
        let deadlines = Deadlines::default();
        let session = Session::open(&self.target, self.dialer.as_ref(), self.limits.timeouts, &deadlines).await?;
        self.state.lock().counters.sessions += 1;
        Ok(OpenSession::new(session, self.open_sessions.one_more()))
    }

    /// Counts a session that did not open in time for its email, as long as the result exists.
    pub(super) fn count_late_open(&self) -> Counted {
        self.late_openings.one_more()
    }

    /// True while a session opens late and none is open: the relay may never answer.
    pub(super) fn is_opening_late(&self) -> bool {
        self.late_openings.now() > 0 && !self.has_open_session()
    }

    /// True while a session is open.
    pub(super) fn has_open_session(&self) -> bool {
        self.open_sessions.now() > 0
    }

    /// Records the start of a dialogue.
    pub(super) fn start_dialogue(self: &Arc<RelaySessions>) -> Running {
        let now = self.now();
        self.state.lock().dialogues.started(now);
        Running { sessions: self.clone(), began: now, used_its_session: false }
    }

    /// Records that the relay ended a session with 421 after `emails` emails.
    pub(super) fn learn_session_limit(&self, emails: u32) {
        let now = self.now();
        self.state.lock().session_limit.ended_after(emails, now);
    }

    /// Reports an event of a permitted email or opening to the circuit.
    pub(super) fn record(&self, event: CircuitEvent, permit: CircuitPermit) {
        self.state.lock().record(event, permit);
    }

    /// Learns from the result of an email's dialogue: updates the counters, the circuit, the rate, the latency and the
    /// series of refusals.
    pub(super) fn learn(
        &self,
        email: &Email,
        result: &DialogueResult,
        permit: CircuitPermit,
        event: CircuitEvent,
        mut running: Running,
    ) {
        running.used_its_session = used_its_session(result);
        drop(running);
        let now = self.now();
        let mut state = self.state.lock();
        state.counters.count(result);
        state.refusals.record(result, email, now);
        state.record(event, permit);
        // The circuit handles a used-up allowance of the day: it does not mean that the rate is too high.
        if let DialogueResult::Refused { class: ReplyClass::Throttle, code, text, .. } = result {
            state.rate_limiter.halve(now);
            state.throttle_reply = Some(ThrottleReply { at: now, reply: RelayFailure::answered(None, *code, text) });
        }
    }
}

/// True unless no session was opened or this node ended the dialogue itself.
fn used_its_session(result: &DialogueResult) -> bool {
    match result {
        DialogueResult::Accepted { .. } | DialogueResult::InDoubt { .. } => true,
        DialogueResult::Refused { stage, .. } => *stage >= Stage::Mail,
        DialogueResult::Broken { stage, cause } => *stage >= Stage::Mail && !cause.ended_by_this_node(),
        DialogueResult::GateClosed | DialogueResult::NoSmtpUtf8 { .. } => false,
    }
}

impl Drop for RelaySessions {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
