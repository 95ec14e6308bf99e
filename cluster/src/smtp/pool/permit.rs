//! One email in a pool: the permit, the task that runs its dialogue, and the result.
//!
//! [`super::Pool::acquire`] creates a permit and the claim worker uses it up. The dialogue runs in a separate task, so
//! that a caller that is dropped cannot interrupt it. The caller holds a [`PendingResult`], which returns exactly one
//! result.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use super::circuit::CircuitEvent;
use super::circuit_event::circuit_event;
use super::state::{OpenSession, PoolCore, Ticket};
use super::status::Counted;
use crate::smtp::replies::verdict::DialogueResult;
use crate::smtp::session::cause::Cause;
use crate::smtp::session::deadlines::{Deadlines, FAR};
use crate::smtp::session::envelope::Email;
use crate::smtp::session::gate::{Gate, GateAnswer};
use crate::smtp::session::stream::Stage;

/// If the email that wanted a session went back, its opening fails after this time. Equals the connect time-out. It is
/// far above the delay of the greeting by which servers detect bad clients (postscreen: 6 s).
const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// Permission to send one email now. Dropping it unused returns its session.
pub struct Permit {
    shared: Arc<PoolCore>,
    held: Option<OpenSession>,
    rest: Option<(OwnedSemaphorePermit, Ticket)>,
}

/// Future result of an email. Dropping it cancels nothing.
pub struct PendingResult {
    told: oneshot::Receiver<DialogueResult>,
    /// True if the gate has let the email pass.
    passed: Arc<AtomicBool>,
}

impl Permit {
    pub(crate) fn new(
        shared: Arc<PoolCore>,
        slot: OwnedSemaphorePermit,
        held: Option<OpenSession>,
        ticket: Ticket,
    ) -> Permit {
        Permit { shared, held, rest: Some((slot, ticket)) }
    }

    /// Sends `mail` to the relay in a separate task, over an idle session or a new one. `gate` is asked at most once.
    /// `patience` limits the time before the gate.
    pub fn deliver(mut self, mail: Email, gate: impl Gate + 'static, patience: Deadlines) -> PendingResult {
        let (tell, told) = oneshot::channel();
        let passed = Arc::new(AtomicBool::new(false));
        if let Some((slot, ticket)) = self.rest.take() {
            let (shared, held) = (self.shared.clone(), self.held.take());
            let begun = Instant::now();
            let mut gate = Watched { gate, shared: shared.clone(), waiting: None, passed: Arc::clone(&passed) };
            self.shared.tasks.spawn(async move {
                let running = shared.begin();
                let mut opening = Box::pin(session(&shared, held, &mail));
                let opened = match patience.to_open().bound(FAR, &mut opening).await {
                    Ok(opened) => opened,
                    Err(cause) => {
                        let verdict = DialogueResult::Broken { stage: Stage::Connect, cause };
                        // Counted before the result is sent, since the email may come back at once.
                        let _late = shared.one_late();
                        shared.learn(&verdict, Ticket::of_no_use(&shared), CircuitEvent::Nothing, running);
                        let _ = tell.send(verdict);
                        return finish_opening(&shared, opening, begun, ticket).await;
                    }
                };
                let (held, verdict) = match opened {
                    Ok(mut held) => {
                        let verdict = held.session.deliver(&mail, &mut gate, &patience).await;
                        if let Some(emails) = held.session.ended_after() {
                            shared.learn_session_limit(emails);
                        }
                        (held.session.is_open().then_some(held), verdict)
                    }
                    Err(verdict) => (None, *verdict),
                };
                let told = circuit_event(&verdict, running.lasts(), shared.has_open_session());
                // Ends the session, so that the next one reads the relay's extensions again.
                let ends = matches!(verdict, DialogueResult::NoSmtpUtf8 { .. });
                shared.learn(&verdict, ticket, told, running);
                let retired = held.and_then(|held| if ends { Some(held) } else { shared.keep(held) });
                // The slot is free before the caller gets the result, unless QUIT still needs it.
                let slot = retired.is_some().then_some(slot);
                let _ = tell.send(verdict);
                if let Some(held) = retired {
                    held.quit().await;
                }
                drop(slot);
            });
        }
        PendingResult { told, passed }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // A session that is not kept closes here, without QUIT.
            drop(self.shared.keep(held));
        }
    }
}

impl Future for PendingResult {
    type Output = DialogueResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DialogueResult> {
        let told = std::task::ready!(Pin::new(&mut self.told).poll(cx));
        // The task panicked outside the dialogue, or the runtime ends. The email is in doubt only if the gate has
        // passed (P5).
        let stage = if self.passed.load(Ordering::SeqCst) { Stage::DotHanded } else { Stage::Body };
        Poll::Ready(told.unwrap_or_else(|_| DialogueResult::lost(stage, Cause::TaskGone)))
    }
}

/// Finishes an opening whose email went back. A session that opens late is kept for the next email, and a failure
/// counts against the relay. Until it ends, no email is admitted unless another session is open.
async fn finish_opening(
    shared: &PoolCore,
    opening: impl Future<Output = Result<OpenSession, Box<DialogueResult>>>,
    begun: Instant,
    mut ticket: Ticket,
) {
    let opened = timeout_at(begun + OPENS_WITHIN, opening);
    let told = match shared.closing.run_until_cancelled(opened).await {
        None => return,
        Some(Ok(Ok(held))) => {
            if let Some(retired) = shared.keep(held) {
                retired.quit().await;
            }
            return;
        }
        Some(Ok(Err(verdict))) => circuit_event(&verdict, Duration::ZERO, shared.has_open_session()),
        Some(Err(_)) => CircuitEvent::NotOpened(format!("no session within {} s", OPENS_WITHIN.as_secs())),
    };
    shared.note(told, &mut ticket);
}

/// Returns `held` or the next idle session that is still open, else a new one. If the email needs SMTPUTF8 and a used
/// session lacks it, a new session replaces it: the relay may support it by now.
async fn session(
    shared: &PoolCore,
    held: Option<OpenSession>,
    mail: &Email,
) -> Result<OpenSession, Box<DialogueResult>> {
    let mut candidate = held;
    while let Some(mut held) = candidate {
        if held.session.is_still_idle().await {
            if held.session.offers().utf8 || held.session.emails() == 0 || !mail.needs_smtputf8() {
                return Ok(held);
            }
            held.quit().await;
            break;
        }
        candidate = shared.take_idle();
    }
    shared.open().await
}

/// Wraps the caller's gate: remembers that it has passed, and counts emails that wait for an answer.
struct Watched<G> {
    gate: G,
    shared: Arc<PoolCore>,
    waiting: Option<Counted>,
    passed: Arc<AtomicBool>,
}

impl<G: Gate> Gate for Watched<G> {
    fn pass(&mut self) -> GateAnswer {
        let answer = self.gate.pass();
        if answer == GateAnswer::Pass {
            self.passed.store(true, Ordering::SeqCst);
            self.shared.gate_passes.fetch_add(1, Ordering::Relaxed);
            self.waiting = Some(self.shared.waiting.one_more());
        }
        answer
    }
}
