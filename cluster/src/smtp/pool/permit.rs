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
use tokio::time::{Instant, timeout_at};

use super::circuit::Told;
use super::state::{Held, Shared, Ticket};
use super::status::Counted;
use crate::smtp::replies::verdict::{Scope, Verdict};
use crate::smtp::session::cause::Cause;
use crate::smtp::session::deadlines::{FAR, Patience};
use crate::smtp::session::envelope::Mail;
use crate::smtp::session::gate::{Gate, GateAnswer};
use crate::smtp::session::stream::Stage;

/// A relay that had this long after MAIL, and did not get as far as the caller's limit demanded, is slow: that
/// counts against it. With less, the caller simply came late.
const SLOW: Duration = Duration::from_secs(3);

/// A relay that had this long for opening a session, while the mail that wanted it went back, has failed. As long as
/// the connect time-out; far above what servers delay their greeting by to uncover bad clients (postscreen: 6 s).
const OPENS_WITHIN: Duration = Duration::from_secs(30);

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
    pub(crate) fn new(shared: Arc<Shared>, slot: OwnedSemaphorePermit, held: Option<Held>, ticket: Ticket) -> Permit {
        Permit { shared, held, rest: Some((slot, ticket)) }
    }

    /// Sends `mail` to the relay, in a task of its own: over an idle session if there is one, else
    /// over a new one. `gate` is met at most once. `patience` bounds what happens before the gate.
    pub fn deliver(mut self, mail: Mail, gate: impl Gate + 'static, patience: Patience) -> Delivery {
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
                        let verdict = Verdict::Broken { stage: Stage::Connect, cause };
                        // Before the mail hears of it: it may come again at once.
                        let _late = shared.one_late();
                        shared.learn(&verdict, Ticket::of_no_use(&shared), Told::Nothing, running);
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
                let told = what_it_told(&verdict, running.lasts(), shared.has_open_session());
                // The next session asks the relay again.
                let ends = matches!(verdict, Verdict::NoSmtpUtf8 { .. });
                shared.learn(&verdict, ticket, told, running);
                let retired = held.and_then(|held| if ends { Some(held) } else { shared.keep(held) });
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

/// The mail went back, and the relay keeps its own time: a session that opens late is left to the next mail, and
/// what goes wrong is the relay's. Until it ends, no mail follows unless another session is open.
async fn finish_opening(
    shared: &Shared,
    opening: impl Future<Output = Result<Held, Box<Verdict>>>,
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
        Some(Ok(Err(verdict))) => what_it_told(&verdict, Duration::ZERO, shared.has_open_session()),
        Some(Err(_)) => Told::NotOpened(format!("no session within {} s", OPENS_WITHIN.as_secs())),
    };
    shared.note(told, &mut ticket);
}

/// The given session or the next idle one that still lives, else a new one. A new one replaces a used session that
/// lacks the SMTPUTF8 that the email needs: the relay may have been given it since.
async fn session(shared: &Shared, held: Option<Held>, mail: &Mail) -> Result<Held, Box<Verdict>> {
    let mut candidate = held;
    while let Some(mut held) = candidate {
        if held.session.is_still_idle().await {
            if held.session.offers().utf8 || held.session.mails() == 0 || !mail.needs_smtputf8() {
                return Ok(held);
            }
            held.quit().await;
            break;
        }
        candidate = shared.take_idle();
    }
    shared.open().await
}

/// What a verdict says about the relay as such. A relay that is too busy for one more session, while
/// others are open, works: it is slowed, not shut off.
pub(crate) fn what_it_told(verdict: &Verdict, tried_for: Duration, others_open: bool) -> Told {
    match verdict {
        Verdict::Accepted { .. } => Told::Accepted,
        Verdict::GateClosed(_) => Told::Reached,
        Verdict::NoSmtpUtf8 { .. } => Told::Greeted,
        Verdict::InDoubt { cause } => Told::LostAfter(cause.to_string()),
        Verdict::Refused { stage, scope, text, code, .. } => match (stage, scope) {
            (_, Scope::Throttle { daily_quota: true }) => Told::QuotaUsedUp(format!("{code} {text}")),
            (Stage::Answered, _) => Told::Answered,
            (stage, Scope::Throttle { .. }) if *stage < Stage::Mail && others_open => Told::Nothing,
            (stage, _) if *stage < Stage::Mail => Told::NotOpened(format!("{stage:?}: {code} {text}")),
            (Stage::Mail, Scope::Relay) => Told::MailFailed(format!("{stage:?}: {code} {text}")),
            (Stage::Mail, _) => Told::Greeted,
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
    match stage {
        stage if stage < Stage::Mail => Told::NotOpened(cause),
        Stage::Mail => Told::MailFailed(cause),
        _ => Told::LostBefore(cause),
    }
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
