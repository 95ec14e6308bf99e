//! One mail's way through a pool: the permit, the task that owns its dialogue, and the verdict.
//!
//! Made by [`super::Pool::acquire`], used up by the lane. The dialogue runs in a task of its own, so
//! that nothing the caller drops or forgets can cut it off in the middle; the caller holds a
//! [`Delivery`], which ends with exactly one verdict.

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

use super::{
    cause::Cause,
    circuit::Told,
    envelope::Mail,
    gate::{Gate, GateAnswer},
    patience::Patience,
    reply::{Scope, Verdict},
    shared::{Held, Shared, Ticket},
    status::Counted,
    stream::Stage,
};

/// A relay that had this long, and did not get as far as the caller's limit demanded, is slow: that
/// counts against it. With less, the caller simply came late.
const SLOW: Duration = Duration::from_secs(3);

/// The right to send one mail now. Dropped unused, it gives its session back.
pub struct Permit {
    shared: Arc<Shared>,
    held: Option<Held>,
    rest: Option<(OwnedSemaphorePermit, Ticket)>,
}

/// The verdict that is to come. Dropping it cancels nothing.
pub struct Delivery {
    told: oneshot::Receiver<Verdict>,
    /// The gate has let the mail pass.
    passed: Arc<AtomicBool>,
}

impl Permit {
    pub(super) fn new(shared: Arc<Shared>, slot: OwnedSemaphorePermit, held: Option<Held>, ticket: Ticket) -> Permit {
        Permit { shared, held, rest: Some((slot, ticket)) }
    }

    /// Sends `mail` to the relay, in a task of its own: over an idle session if there is one, else
    /// over a new one. `gate` is met at most once. `patience` bounds what happens before the gate.
    pub fn deliver(mut self, mail: Mail, gate: impl Gate + 'static, patience: Patience) -> Delivery {
        let (tell, told) = oneshot::channel();
        let passed = Arc::new(AtomicBool::new(false));
        if let Some((slot, ticket)) = self.rest.take() {
            let (shared, held) = (self.shared.clone(), self.held.take());
            let gate = Watched { gate, shared: shared.clone(), waiting: None, passed: Arc::clone(&passed) };
            self.shared.tasks.spawn(async move {
                let running = shared.begin();
                let (held, verdict) = converse(&shared, held, &mail, gate, &patience).await;
                let told = what_it_told(&verdict, running.lasts(), shared.has_open_session());
                shared.learn(&verdict, ticket, told, running);
                let retired = held.and_then(|held| shared.keep(held));
                // Whoever hears the verdict finds the place free, unless a farewell needs it.
                let slot = retired.is_some().then_some(slot);
                let _ = tell.send(verdict);
                if let Some(held) = retired {
                    held.quit().await;
                }
                drop(slot);
            });
        }
        Delivery { told, passed }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // A session that is not kept closes here, without a word.
            drop(self.shared.keep(held));
        }
    }
}

impl Future for Delivery {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let told = std::task::ready!(Pin::new(&mut self.told).poll(cx));
        // Its task panicked outside the dialogue, or the runtime ends. In doubt only behind the gate (P5).
        let stage = if self.passed.load(Ordering::SeqCst) { Stage::DotHanded } else { Stage::Body };
        Poll::Ready(told.unwrap_or_else(|_| Verdict::lost(stage, Cause::TaskGone)))
    }
}

async fn converse(
    shared: &Shared,
    held: Option<Held>,
    mail: &Mail,
    mut gate: impl Gate,
    patience: &Patience,
) -> (Option<Held>, Verdict) {
    let mut held = match session(shared, held, patience).await {
        Ok(held) => held,
        Err(verdict) => return (None, *verdict),
    };
    let verdict = held.session.deliver(mail, &mut gate, patience).await;
    (held.session.is_open().then_some(held), verdict)
}

/// The given session or the next idle one that still lives, else a new one.
async fn session(shared: &Shared, held: Option<Held>, patience: &Patience) -> Result<Held, Box<Verdict>> {
    let mut candidate = held;
    while let Some(mut held) = candidate {
        if held.session.is_still_idle().await {
            return Ok(held);
        }
        candidate = shared.take_idle();
    }
    shared.open(&patience.to_open()).await
}

/// What a verdict says about the relay as such. A relay that is too busy for one more session, while
/// others are open, works: it is slowed, not shut off.
pub(super) fn what_it_told(verdict: &Verdict, tried_for: Duration, others_open: bool) -> Told {
    match verdict {
        Verdict::Accepted { .. } => Told::Accepted,
        Verdict::GateClosed(_) => Told::Reached,
        Verdict::InDoubt { cause } => Told::LostAfter(cause.to_string()),
        Verdict::Refused { stage, scope, text, code, .. } => match (stage, scope) {
            (_, Scope::Throttle { daily_quota: true }) => Told::QuotaUsedUp(format!("{code} {text}")),
            (Stage::Answered, _) => Told::Answered,
            (stage, Scope::Throttle { .. }) if *stage < Stage::Mail && others_open => Told::Nothing,
            (stage, scope) if *stage < Stage::Mail || (*stage, *scope) == (Stage::Mail, Scope::Relay) => {
                Told::NotOpened(format!("{stage:?}: {code} {text}"))
            }
            (Stage::Mail, _) => Told::Nothing,
            _ => Told::Reached,
        },
        Verdict::Broken { cause: Cause::NotBegunInTime, stage } if tried_for >= SLOW => {
            loss(*stage, &format!("no answer within {} s", tried_for.as_secs()))
        }
        Verdict::Broken { cause, .. } if cause.is_ours() => Told::Nothing,
        Verdict::Broken { cause, stage } => loss(*stage, &cause.to_string()),
    }
}

fn loss(stage: Stage, cause: &str) -> Told {
    let cause = format!("{stage:?}: {cause}");
    if stage <= Stage::Mail { Told::NotOpened(cause) } else { Told::LostBefore(cause) }
}

/// The caller's gate, with the pool's own two counts around it.
struct Watched<G> {
    gate: G,
    shared: Arc<Shared>,
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
