//! Moves the test clock (P19): from one instant at which something falls due to the next, and at each waits
//! until its work is done. A jump leaps at once, as an outage would, and then waits for what comes of it.
//!
//! Called by the admin API, on any node: it proposes `Advance` and looks at what this node has applied, and
//! needs no leadership. It promises that nothing is leapt over in a walk: the ledger refuses to move beyond a
//! due instant, and retries, deadlines and the end of a rest after deaths (P12) are instants of their own here.
//! It has no time-out: what a relay does not take is waited for until its caller gives it up, and where it
//! stands is reported all along.

use std::time::{Duration, Instant};

use reveille_ledger::command::{Advance, Command};
use reveille_ledger::crash_backoff::Allowance;
use reveille_ledger::ids::{NodeId, Time};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Chunk, Ledger, Page, RecipientState, Run, RunState};
use reveille_raft::{ProposeError, ReadError};

use crate::leader::claims::claimable::claimable;
use crate::node::context::NodeContext;

/// How long one proposal is waited for before it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a proposal without an answer is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// How often progress is reported.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// What is left to do at an instant before the clock may go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingWork {
    /// Schedules with an instant that is neither opened nor explained.
    pub due: u64,
    /// Recipients that can be claimed.
    pub pending: u64,
    /// Recipients that are claimed.
    pub claimed: u64,
    /// Runs past their deadline with something left.
    pub late: u64,
}

/// Where a walk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvanceProgress {
    /// Ledger time before it.
    pub from: Time,
    /// Ledger time now.
    pub now: Time,
    /// How often the clock was moved.
    pub steps: u64,
    /// Runs that schedules have opened since it began.
    pub fired: u64,
    /// What it waits for.
    pub work: RemainingWork,
}

/// Why a walk ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    /// The ledger does not do it.
    #[error("{0}")]
    Refused(Refusal),
    /// No leader takes it.
    #[error("{0}")]
    NotProposed(ProposeError),
    /// The state cannot be read afresh.
    #[error("{0}")]
    NotRead(ReadError),
}

/// Moves the clock to `to`, later than now. `tell` hears now and then where it stands.
///
/// # Errors
/// When the ledger refuses it, or no leader takes it at its beginning. A leader that is lost on the way is not one:
/// the next one goes on from the same state.
pub async fn advance(
    context: &NodeContext,
    to: Time,
    jump: bool,
    mut tell: impl FnMut(AdvanceProgress),
) -> Result<AdvanceProgress, AdvanceError> {
    context.replica.linearizable(Instant::now() + PATIENCE).await.map_err(AdvanceError::NotRead)?;
    let (from, opened_before) = context.replica.read(|ledger| (ledger.head().now, opened(ledger)));
    if to <= from {
        return Err(AdvanceError::Refused(Impossible::ClockGoesForward { now: from }.into()));
    }
    let look = |steps: u64| {
        let alone = alone(context);
        context.replica.read(|ledger| AdvanceProgress {
            from,
            now: ledger.head().now,
            steps,
            fired: opened(ledger).saturating_sub(opened_before),
            work: work(ledger, alone),
        })
    };
    let (mut steps, mut told) = (0, Instant::now());
    // What is due already is done before the clock moves; an outage would not have waited for it.
    if !jump {
        until_done(context, &mut told, || tell(look(0))).await?;
    }
    while context.replica.read(|ledger| ledger.head().now < to) {
        let alone = alone(context);
        let next = context.replica.read(|ledger| next_instant(ledger, alone));
        let next = next.filter(|next| !jump && *next < to);
        advance_once(context, next.unwrap_or(to), jump).await?;
        steps += 1;
        until_done(context, &mut told, || tell(look(steps))).await?;
    }
    Ok(look(steps))
}

/// Waits until nothing is left to do at the instant that the clock shows.
async fn until_done(context: &NodeContext, told: &mut Instant, mut tell: impl FnMut()) -> Result<(), AdvanceError> {
    let (mut applied, alone) = (context.replica.applied(), alone(context));
    loop {
        applied.mark_unchanged();
        if context.replica.read(|ledger| work(ledger, alone)) == RemainingWork::default() {
            return Ok(());
        }
        if told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            tell();
        }
        if let Ok(Err(_)) = tokio::time::timeout(TELL_EVERY, applied.changed()).await {
            return Err(AdvanceError::NotProposed(ProposeError::Stopped));
        }
    }
}

/// Moves the clock once. That something else has come first is no error: the caller reads the state again.
async fn advance_once(context: &NodeContext, to: Time, jump: bool) -> Result<(), AdvanceError> {
    let command = Command::Advance(Advance { to, jump });
    loop {
        let refusal = match context.replica.propose(&command, Instant::now() + PATIENCE).await {
            Ok(reply) => {
                // If it is not seen in time, the look below is at an older state, and the walk asks again.
                let _ = context.replica.wait_applied(reply.index, Instant::now() + PATIENCE).await;
                match reply.outcome {
                    CommandOutcome::Refused(refusal) => refusal,
                    _ => return Ok(()),
                }
            }
            Err(error @ (ProposeError::Stopped | ProposeError::TooLarge { .. })) => {
                return Err(AdvanceError::NotProposed(error));
            }
            Err(error) => {
                tracing::debug!(%error, "the clock was not moved, or it is not known");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        match refusal {
            Refusal::TimeLeaps { .. } | Refusal::TimeWentBack { .. } | Refusal::WrongEpoch { .. } => {
                tracing::debug!(%refusal, "the clock was not moved: leadership changes");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            _ if context.replica.read(|ledger| is_overtaken(ledger, to)) => return Ok(()),
            _ => return Err(AdvanceError::Refused(refusal)),
        }
    }
}

/// Is it that time already, by a repeat or by itself; or is a schedule due before it that was not known of?
fn is_overtaken(ledger: &Ledger, to: Time) -> bool {
    let due = ledger.due().next().is_some_and(|(due, _)| due < to);
    ledger.head().test_clock.is_some() && (ledger.head().now >= to || due)
}

/// The only node of its cluster. Of several one is always given claims (P12).
fn alone(context: &NodeContext) -> Option<NodeId> {
    let voters = context.voters();
    voters.first().copied().filter(|_| voters.len() == 1)
}

/// P12: until when nothing can be claimed.
fn rest(ledger: &Ledger, alone: Option<NodeId>) -> Option<Time> {
    let (node, limits, now) = (ledger.nodes().get(&alone?)?, ledger.limits(), ledger.head().now);
    node.crashes.backoff_until(limits).filter(|_| node.crashes.allowance(limits, now) == Allowance::NONE)
}

/// What is left to do at the instant that the clock shows.
fn work(ledger: &Ledger, alone: Option<NodeId>) -> RemainingWork {
    let (now, rests) = (ledger.head().now, rest(ledger, alone).is_some());
    let mut work = RemainingWork {
        due: ledger.due().take_while(|(due, _)| *due <= now).count() as u64,
        claimed: ledger.claims().iter().map(|(_, row)| u64::from(row.claimed.len())).sum(),
        ..RemainingWork::default()
    };
    for (id, page) in ledger.open_pages() {
        work.late += page.runs.iter().filter(|run| expires(run) && run.finish_by <= now).count() as u64;
        if rests {
            continue;
        }
        // Where no relay serves its pool it waits for its deadline.
        let parts = claimable(ledger, id, page, now).filter(|part| ledger.serves(part.pool));
        work.pending += parts.map(|part| u64::from(part.slots.len())).sum::<u64>();
    }
    work
}

/// The next instant at which something falls due: a schedule, a wave of retries, a deadline, the end of a rest.
fn next_instant(ledger: &Ledger, alone: Option<NodeId>) -> Option<Time> {
    let now = ledger.head().now;
    let due = ledger.due().map(|(due, _)| due).find(|due| *due > now);
    let deadlines = ledger.open_pages().flat_map(|(_, page)| &page.runs).filter(|run| expires(run));
    let deadlines = deadlines.map(|run| run.finish_by).filter(|finish_by| *finish_by > now);
    let is_open = |page: &Page| page.runs.iter().any(|run| run.state == RunState::Open);
    let waves = ledger.open_pages().filter(|(_, page)| is_open(page)).flat_map(|(id, page)| {
        let chunks = ledger.chunks().range((id, 0)..=(id, u32::MAX)).map(|(_, chunk)| chunk);
        let sends = |chunk: &&Chunk| {
            let mut pools = chunk.pool_overrides.keys().map(String::as_str).chain([page.pool.as_str()]);
            pools.any(|pool| ledger.serves(pool))
        };
        chunks.filter(sends).filter_map(move |chunk| chunk.next_wave(now))
    });
    due.into_iter().chain(deadlines).chain(waves).chain(rest(ledger, alone)).min()
}

/// Does its deadline end anything?
fn expires(run: &Run) -> bool {
    matches!(run.state, RunState::Open | RunState::Paused { .. }) && run.counts.get(RecipientState::Pending) > 0
}

/// Runs that schedules have opened.
fn opened(ledger: &Ledger) -> u64 {
    ledger.schedules().iter().map(|(_, schedule)| u64::from(schedule.plan.opened)).sum()
}
