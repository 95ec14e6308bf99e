//! The permit to send one email through a relay: it runs the dialogue and returns its result.
//!
//! Created by [`super::RelaySessions::acquire`] for the feeder, and used up by the delivery of one email, which may get
//! a permit for the next email of the same session. The dialogue runs in the caller's task. If the caller drops the
//! future of [`SendPermit::send`], the connection closes; past the gate the outcome of the email is then unknown.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::acquire::HeldCircuitPermit;
use super::circuit::{CircuitEvent, CircuitPermit};
use super::circuit_event::circuit_event;
use super::failure::{RelayFailure, RelayTrouble};
use super::idle_sessions::OpenSession;
use super::sessions::RelaySessions;
use super::status::Counted;
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, FAR};
use crate::smtp::session::envelope::Email;
use crate::smtp::stage::Stage;

/// Time after which an opening has failed although its email was given back before. It equals the connect timeout. It
/// is far above the delay of the banner by which servers uncover bad clients (postscreen: 6 s).
const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// Permit to send one email now. A permit that is dropped unused returns its session.
pub struct SendPermit {
    held: HeldSession,
    session_permit: OwnedSemaphorePermit,
    circuit_permit: HeldCircuitPermit,
}

/// Permit for the next email of a session ([`SendPermit::try_acquire_next`]).
pub struct NextPermit(HeldCircuitPermit);

/// The next email of a session.
pub struct NextEmail<'a> {
    /// The email.
    pub email: &'a Email,
    /// Permit of the relay's circuit to send it.
    pub permit: NextPermit,
}

/// An open session that belongs to a permit. Unless it is taken, it is idle again when dropped. With an announced email
/// it closes.
struct HeldSession {
    sessions: Arc<RelaySessions>,
    session: Option<OpenSession>,
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A session that is not kept closes here, without QUIT.
            drop(self.sessions.keep(session));
        }
    }
}

impl SendPermit {
    pub(crate) fn new(
        sessions: Arc<RelaySessions>,
        session_permit: OwnedSemaphorePermit,
        session: Option<OpenSession>,
        circuit_permit: HeldCircuitPermit,
    ) -> SendPermit {
        SendPermit { held: HeldSession { sessions, session }, session_permit, circuit_permit }
    }

    /// Returns the name of the relay.
    pub fn relay(&self) -> &str {
        self.held.sessions.relay()
    }

    /// True if the permit belongs to these sessions.
    pub fn is_of(&self, sessions: &Arc<RelaySessions>) -> bool {
        Arc::ptr_eq(&self.held.sessions, sessions)
    }

    /// Permits a next email in the open session of this permit, after the email that the permit is for. `None` if the
    /// relay may not be offered one now. (`&mut`, because a permit is not `Sync`.)
    pub fn try_acquire_next(&mut self) -> Option<NextPermit> {
        self.held.sessions.try_acquire_next(&self.held.session.as_ref()?.session).map(NextPermit)
    }

    /// Sends `email` to the relay, over an idle session if there is one, otherwise over a new one. Calls `gate` at most
    /// once. `deadlines` limit the time before the gate. Also returns the permit for `next`, which may be announced
    /// already. `None`: the session has ended, and nothing of `next` but its commands was written.
    pub async fn send(
        self,
        email: &Email,
        gate: &mut impl Gate,
        deadlines: &Deadlines,
        next: Option<NextEmail<'_>>,
    ) -> (DialogueResult, Option<SendPermit>) {
        let SendPermit { mut held, session_permit, circuit_permit } = self;
        let (next_email, next_permit) = next.map(|next| (next.email, next.permit)).unzip();
        let sessions = Arc::clone(&held.sessions);
        // [`super::RelaySessions::close`] waits for this dialogue.
        let _tracked = sessions.tasks.token();
        let running = sessions.start_dialogue();
        let opened = match idle_session(&sessions, held.session.take(), email.needs_smtputf8()).await {
            FoundSession::Usable(session) => Ok(session),
            FoundSession::None { replaces } => {
                let begun = Instant::now();
                let mut opening = Box::pin(open(Arc::clone(&sessions), replaces));
                match deadlines.to_open().bound(FAR, &mut opening).await {
                    Ok(opened) => opened,
                    Err(cause) => {
                        let result = DialogueResult::Broken { stage: Stage::Connect, cause };
                        // Counted before the caller gets the result, because the email may come again at once.
                        let late = sessions.count_late_open();
                        // The opening keeps the permit of the circuit.
                        sessions.learn(email, &result, CircuitPermit::Normally, CircuitEvent::Nothing, running);
                        sessions.tasks.spawn(finish_opening(
                            Arc::clone(&sessions),
                            opening,
                            begun,
                            circuit_permit,
                            (session_permit, late),
                        ));
                        return (result, None);
                    }
                }
            }
        };
        let (session, result) = match opened {
            Ok(mut open) => {
                let mut gate = CountedGate { gate, sessions: &sessions, waiting: None };
                let result = open.session.run_transaction(email, &mut gate, deadlines, next_email).await;
                if let Some(emails) = open.session.ended_after() {
                    sessions.learn_session_limit(emails);
                }
                (open.session.is_open().then_some(open), result)
            }
            Err(result) => (None, *result),
        };
        let event = circuit_event(&result, running.elapsed(), sessions.has_open_session());
        sessions.learn(email, &result, circuit_permit.take(), event, running);
        // If SMTPUTF8 was missing, this session is closed, so that the next email asks the relay again.
        let retires = matches!(result, DialogueResult::NoSmtpUtf8 { .. });
        let Some(session) = session else { return (result, None) };
        if !retires
            && let Some(NextPermit(mut circuit_permit)) = next_permit
            && circuit_permit.renew().is_ok()
        {
            return (result, Some(SendPermit::new(sessions, session_permit, Some(session), circuit_permit)));
        }
        let retired = if retires { Some(session) } else { sessions.keep(session) };
        if let Some(retired) = retired {
            // QUIT keeps the permit of the session, and the caller does not wait for it.
            sessions.tasks.spawn(async move {
                retired.quit().await;
                drop(session_permit);
            });
        }
        (result, None)
    }
}

/// Waits for a session whose email was given back. A session that opens late serves the next email, and an error counts
/// against the relay. Until it ends, no email follows unless another session is open.
async fn finish_opening(
    sessions: Arc<RelaySessions>,
    opening: impl Future<Output = Result<OpenSession, Box<DialogueResult>>>,
    begun: Instant,
    circuit_permit: HeldCircuitPermit,
    _kept: (OwnedSemaphorePermit, Counted),
) {
    let opened = timeout_at(begun + OPENS_WITHIN, opening);
    let event = match sessions.closing.run_until_cancelled(opened).await {
        None => return,
        Some(Ok(Ok(session))) => {
            if let Some(retired) = sessions.keep(session) {
                retired.quit().await;
            }
            return;
        }
        Some(Ok(Err(result))) => circuit_event(&result, Duration::ZERO, sessions.has_open_session()),
        Some(Err(_)) => CircuitEvent::NotOpened(RelayFailure::without_stage(RelayTrouble::Slow(OPENS_WITHIN))),
    };
    sessions.record(event, circuit_permit.take());
}

/// Result of the search for an idle session.
enum FoundSession {
    Usable(OpenSession),
    /// A new session is needed. `replaces` is a used session without SMTPUTF8, which the email needs; in a new session
    /// the relay may offer it.
    None {
        replaces: Option<OpenSession>,
    },
}

/// Returns the given session or the next idle one, if it is still open.
async fn idle_session(sessions: &RelaySessions, held: Option<OpenSession>, needs_utf8: bool) -> FoundSession {
    let mut candidate = held;
    while let Some(mut open) = candidate {
        if open.session.is_still_usable().await {
            if open.session.extensions().utf8 || open.session.emails() == 0 || !needs_utf8 {
                return FoundSession::Usable(open);
            }
            return FoundSession::None { replaces: Some(open) };
        }
        candidate = sessions.take_idle();
    }
    FoundSession::None { replaces: None }
}

/// Opens a session, after QUIT in the replaced one. A panic in TLS or AUTH is a failure like any other.
async fn open(sessions: Arc<RelaySessions>, replaces: Option<OpenSession>) -> Result<OpenSession, Box<DialogueResult>> {
    if let Some(replaced) = replaces {
        replaced.quit().await;
    }
    let opened = AssertUnwindSafe(sessions.open()).catch_unwind().await;
    opened.unwrap_or_else(|panic| {
        Err(Box::new(DialogueResult::without_answer(Stage::Connect, Cause::of_panic(panic.as_ref()))))
    })
}

/// Wraps the caller's gate. Counts passes and emails that wait for an answer.
struct CountedGate<'a, G> {
    gate: &'a mut G,
    sessions: &'a RelaySessions,
    waiting: Option<Counted>,
}

impl<G: Gate> Gate for CountedGate<'_, G> {
    fn decide(&mut self) -> GateAnswer {
        let answer = self.gate.decide();
        if answer == GateAnswer::Pass {
            self.sessions.gate_passes.fetch_add(1, Ordering::Relaxed);
            self.waiting = Some(self.sessions.waiting.one_more());
        }
        answer
    }
}
