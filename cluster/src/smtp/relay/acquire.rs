//! How an email gets its permit at one relay: a session permit, the relay's rate, and the circuit.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::Unavailable;
use super::circuit::{CircuitEvent, CircuitPermit};
use super::circuit_event::circuit_event;
use super::failure::{RelayFailure, RelayTrouble};
use super::sessions::RelaySessions;
use crate::smtp::session::dialogue::Session;

/// A permit of the circuit, for one email or for an opening without one. Dropping it unused returns the probe.
pub(crate) struct HeldCircuitPermit {
    sessions: Arc<RelaySessions>,
    permit: CircuitPermit,
}

impl HeldCircuitPermit {
    pub fn new(sessions: &Arc<RelaySessions>) -> Result<HeldCircuitPermit, Unavailable> {
        let permit = sessions.ask_circuit()?;
        Ok(HeldCircuitPermit { sessions: sessions.clone(), permit })
    }

    /// Asks the circuit again after a wait, during which it may have opened. A probe stays a probe.
    pub fn renew(&mut self) -> Result<(), Unavailable> {
        if self.permit == CircuitPermit::Normally {
            self.permit = self.sessions.ask_circuit()?;
        }
        Ok(())
    }

    /// Returns what the circuit permitted, for the report of the result.
    pub fn take(mut self) -> CircuitPermit {
        std::mem::replace(&mut self.permit, CircuitPermit::Normally)
    }
}

impl Drop for HeldCircuitPermit {
    fn drop(&mut self) {
        if self.permit != CircuitPermit::Normally {
            self.sessions.state.lock().circuit.release_probe(Instant::now());
        }
    }
}

impl RelaySessions {
    /// Waits for a free session permit.
    pub(super) async fn wait_for_session_permit(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Unavailable> {
        match timeout_at(deadline, self.session_permits.clone().acquire_owned()).await {
            Ok(Ok(session_permit)) => Ok(session_permit),
            Ok(Err(_)) => Err(Unavailable::Closed),
            Err(_) => Err(Unavailable::Busy),
        }
    }

    /// Returns a free session permit without waiting. Tokio gives a freed one to waiting tasks first, so this overtakes none.
    pub(super) fn try_session_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.session_permits.clone().try_acquire_owned().ok()
    }

    /// Takes one email from the rate without waiting. Returns false if the rate allows none, or if a caller waits.
    pub(super) fn take_from_rate_now(&self) -> bool {
        self.rate_queue.try_lock().is_ok_and(|_turn| self.state.lock().rate_limiter.take(self.now()).is_ok())
    }

    /// Permits the next email of a session in use: overtakes no caller that waits for the rate, and is never a probe.
    pub(super) fn try_acquire_next(self: &Arc<RelaySessions>, session: &Session) -> Option<HeldCircuitPermit> {
        if !self.takes_next(session) {
            return None;
        }
        let circuit_permit = HeldCircuitPermit::new(self)
            .ok()
            .filter(|circuit_permit| circuit_permit.permit == CircuitPermit::Normally)?;
        self.take_from_rate_now().then_some(circuit_permit)
    }

    /// Waits until the rate allows one email.
    pub(super) async fn wait_for_rate(&self, deadline: Instant) -> Result<(), Unavailable> {
        let waiting = async {
            let _turn = self.rate_queue.lock().await;
            loop {
                let wait = match self.state.lock().rate_limiter.take(self.now()) {
                    Ok(()) => return Ok(()),
                    Err(wait) => wait,
                };
                let until = Instant::now() + wait;
                if until > deadline {
                    return Err(Unavailable::RateLimited { until });
                }
                sleep(wait).await;
            }
        };
        timeout_at(deadline, waiting).await.unwrap_or(Err(Unavailable::RateLimited { until: deadline }))
    }

    /// Asks the circuit for a permit. If the circuit wants a session first, a task opens one, and no email waits for
    /// it.
    fn ask_circuit(self: &Arc<RelaySessions>) -> Result<CircuitPermit, Unavailable> {
        if self.closing.is_cancelled() {
            return Err(Unavailable::Closed);
        }
        let now = Instant::now();
        let mut permit = self.state.lock().circuit.try_acquire(now);
        if matches!(permit, Ok(CircuitPermit::ToOpenSession)) {
            // Spawned without the lock: a runtime that ends drops the task at once, and dropping the permit takes
            // the lock.
            self.tasks.spawn(open_without_email(HeldCircuitPermit {
                sessions: self.clone(),
                permit: CircuitPermit::ToOpenSession,
            }));
            permit = self.state.lock().circuit.try_acquire(now);
        } else if matches!(permit, Ok(CircuitPermit::Normally)) && self.is_opening_late() {
            // The relay is not known to fail. But the next email, or the same one again, would wait as long (P12).
            let until = now + self.limits.backoff.first;
            return Err(Unavailable::CircuitOpen {
                until,
                cause: RelayFailure::without_stage(RelayTrouble::OpeningLate),
            });
        }
        permit
    }
}

/// Opens a session with a relay that has failed. No email waits for it, so only the relay's time-outs apply. The
/// session is kept for the email that probes.
async fn open_without_email(circuit_permit: HeldCircuitPermit) {
    let sessions = circuit_permit.sessions.clone();
    // Fails only after `close`.
    let Ok(session_permit) = sessions.session_permits.clone().acquire_owned().await else { return };
    // Makes room for the new session. An idle session that is open does not prove that the relay answers.
    if let Some(idle) = sessions.take_idle() {
        idle.quit().await;
    }
    let mut retired = None;
    let event = match sessions.closing.run_until_cancelled(sessions.open()).await {
        None => CircuitEvent::Nothing,
        Some(Ok(open)) => {
            retired = sessions.keep(open);
            CircuitEvent::SessionOpened
        }
        Some(Err(result)) => circuit_event(&result, Duration::ZERO, sessions.has_open_session()),
    };
    sessions.record(event, circuit_permit.take());
    if let Some(open) = retired {
        open.quit().await;
    }
    drop(session_permit);
}
