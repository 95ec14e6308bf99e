//! Moves the test clock (P19) from one instant at which something is due to the next, and waits at each until its work
//! is done. A jump moves it at once, as an outage would, and then waits for the resulting work.
//!
//! The admin API calls it on any node: it proposes `Advance` and reads the applied state, so it needs no leadership.
//! Without a jump no instant is skipped: the ledger refuses to move beyond a due instant, and retries, deadlines and
//! the end of a crash back-off (P12) are separate steps here. It has no time-out: it waits for a relay that does not
//! accept an email until the caller gives up, and reports progress all the time.

use std::time::{Duration, Instant};

use reveille_ledger::command::{Advance, Command};
use reveille_ledger::crash_backoff::Allowance;
use reveille_ledger::ids::{NodeId, Time};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Chunk, Ledger, Page, RecipientState, Run, RunState};
use reveille_raft::{ProposeError, ReadError};
use tokio_util::sync::CancellationToken;

use crate::leader::claims::claimable::claimable;
use crate::process::context::NodeContext;
use crate::process::proposal::propose_until_accepted;

/// Maximum time of the first read, and of the wait until this node has applied a step.
const APPLY_WITHIN: Duration = Duration::from_secs(5);
/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Work at the current instant that must be done before the clock moves on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingWork {
    /// Number of schedules with an instant that is neither opened nor explained.
    pub due: u64,
    /// Number of recipients that can be claimed.
    pub pending: u64,
    /// Number of recipients that are claimed.
    pub claimed: u64,
    /// Number of runs past their deadline that still have pending recipients.
    pub late: u64,
}

/// Progress of an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvanceProgress {
    /// Ledger time at the start.
    pub from: Time,
    /// Ledger time now.
    pub now: Time,
    /// Number of times that the clock was moved.
    pub steps: u64,
    /// Number of runs that schedules have opened since the start.
    pub fired: u64,
    /// Work for which it waits.
    pub work: RemainingWork,
}

/// Reason why an advance ended early.
#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    /// The ledger refuses it.
    #[error("{0}")]
    Refused(CommandRefusal),
    /// No leader accepts the proposal.
    #[error("{0}")]
    NotProposed(ProposeError),
    /// A linearizable read failed.
    #[error("{0}")]
    NotRead(ReadError),
}

/// Moves the clock to `to`, which must be later than now. `report` receives the progress from time to time.
///
/// # Errors
/// Fails if the ledger refuses, or if no leader is known at the start. A leader that is lost later is no error: the
/// next one continues from the same state.
pub async fn advance(
    context: &NodeContext,
    to: Time,
    jump: bool,
    mut report: impl FnMut(AdvanceProgress),
) -> Result<AdvanceProgress, AdvanceError> {
    context.replica.linearizable(Instant::now() + APPLY_WITHIN).await.map_err(AdvanceError::NotRead)?;
    let (from, opened_before) = context.replica.read(|ledger| (ledger.head().now, opened(ledger)));
    if to <= from {
        return Err(AdvanceError::Refused(Impossible::ClockGoesForward { now: from }.into()));
    }
    let progress = |steps: u64| {
        let alone = alone(context);
        context.replica.read(|ledger| AdvanceProgress {
            from,
            now: ledger.head().now,
            steps,
            fired: opened(ledger).saturating_sub(opened_before),
            work: work(ledger, alone),
        })
    };
    let (mut steps, mut reported_at) = (0, Instant::now());
    // Finish what is already due before the clock moves. A jump skips this, since an outage would not wait for it.
    if !jump {
        until_done(context, &mut reported_at, || report(progress(0))).await?;
    }
    while context.replica.read(|ledger| ledger.head().now < to) {
        let alone = alone(context);
        let next = context.replica.read(|ledger| next_instant(ledger, alone));
        let next = next.filter(|next| !jump && *next < to);
        advance_once(context, next.unwrap_or(to), jump).await?;
        steps += 1;
        until_done(context, &mut reported_at, || report(progress(steps))).await?;
    }
    Ok(progress(steps))
}

/// Waits until no work is left at the current instant.
async fn until_done(
    context: &NodeContext,
    reported_at: &mut Instant,
    mut report: impl FnMut(),
) -> Result<(), AdvanceError> {
    let (mut applied, alone) = (context.replica.applied(), alone(context));
    loop {
        applied.mark_unchanged();
        if context.replica.read(|ledger| work(ledger, alone)) == RemainingWork::default() {
            return Ok(());
        }
        if reported_at.elapsed() >= REPORT_EVERY {
            *reported_at = Instant::now();
            report();
        }
        if let Ok(Err(_)) = tokio::time::timeout(REPORT_EVERY, applied.changed()).await {
            return Err(AdvanceError::NotProposed(ProposeError::Stopped));
        }
    }
}

/// Moves the clock once. If another change came first, this succeeds too: the caller reads the state again.
async fn advance_once(context: &NodeContext, to: Time, jump: bool) -> Result<(), AdvanceError> {
    // Other refusals are about the stamp: leadership changes.
    let is_final = |refusal: &CommandRefusal| {
        !matches!(
            refusal,
            CommandRefusal::TimeLeaps { .. } | CommandRefusal::TimeWentBack { .. } | CommandRefusal::WrongEpoch { .. }
        )
    };
    let command = Command::Advance(Advance { to, jump });
    let taken = propose_until_accepted(context, &command, is_final, &CancellationToken::new()).await;
    let reply = taken.map_err(|_| AdvanceError::NotProposed(ProposeError::Stopped))?;
    // If the entry is not applied here in time, the caller reads an older state and proposes again.
    let _ = context.replica.wait_applied(reply.index, Instant::now() + APPLY_WITHIN).await;
    match reply.outcome {
        CommandOutcome::Refused(_) if context.replica.read(|ledger| is_overtaken(ledger, to)) => Ok(()),
        CommandOutcome::Refused(refusal) => Err(AdvanceError::Refused(refusal)),
        _ => Ok(()),
    }
}

/// Returns true if the clock has already reached `to`, by a repeated proposal or by itself, or if a schedule or a
/// message is due before it.
fn is_overtaken(ledger: &Ledger, to: Time) -> bool {
    let due = ledger.due().next().map(|(due, _)| due);
    let due = due.into_iter().chain(ledger.next_start(ledger.head().now)).any(|due| due < to);
    ledger.head().test_clock.is_some() && (ledger.head().now >= to || due)
}

/// Returns the only node of a cluster. `None` with several voters, of which one always may claim (P12).
fn alone(context: &NodeContext) -> Option<NodeId> {
    let voters = context.voters();
    voters.first().copied().filter(|_| voters.len() == 1)
}

/// Returns the time until which no recipient can be claimed because of a crash back-off (P12).
fn crash_backoff_until(ledger: &Ledger, alone: Option<NodeId>) -> Option<Time> {
    let (node, limits, now) = (ledger.nodes().get(&alone?)?, ledger.limits(), ledger.head().now);
    node.crashes.backoff_until(limits).filter(|_| node.crashes.allowance(limits, now) == Allowance::NONE)
}

/// Returns the work that is left at the current instant.
fn work(ledger: &Ledger, alone: Option<NodeId>) -> RemainingWork {
    let (now, is_in_backoff) = (ledger.head().now, crash_backoff_until(ledger, alone).is_some());
    let mut work = RemainingWork {
        due: ledger.due().take_while(|(due, _)| *due <= now).count() as u64,
        claimed: ledger.claims().iter().map(|(_, claim)| u64::from(claim.claimed.len())).sum(),
        ..RemainingWork::default()
    };
    for (id, page) in ledger.started_pages(now) {
        work.late += page.runs.iter().filter(|run| expires(run) && run.finish_by <= now).count() as u64;
        if is_in_backoff {
            continue;
        }
        // Recipients whose pool has no relay wait for their deadline.
        let parts = claimable(ledger, id, page, now).filter(|part| ledger.serves(part.pool));
        work.pending += parts.map(|part| u64::from(part.slots.len())).sum::<u64>();
    }
    work
}

/// Returns the next instant at which something is due: a schedule, a message, a wave of retries, a deadline, the end of
/// a crash back-off.
fn next_instant(ledger: &Ledger, alone: Option<NodeId>) -> Option<Time> {
    let now = ledger.head().now;
    let due = ledger.due().map(|(due, _)| due).find(|due| *due > now);
    let deadlines = ledger.open_pages().flat_map(|(_, page)| &page.runs).filter(|run| expires(run));
    let deadlines = deadlines.map(|run| run.finish_by).filter(|finish_by| *finish_by > now);
    let is_open = |page: &Page| page.runs.iter().any(|run| run.state == RunState::Open);
    let waves = ledger.started_pages(now).filter(|(_, page)| is_open(page)).flat_map(|(id, page)| {
        let chunks = ledger.chunks().range(id.chunks()).map(|(_, chunk)| chunk);
        let sends = |chunk: &&Chunk| {
            let mut pools = chunk.pool_overrides.keys().map(String::as_str).chain([&*page.pool]);
            pools.any(|pool| ledger.serves(pool))
        };
        chunks.filter(sends).filter_map(move |chunk| chunk.next_wave(now))
    });
    due.into_iter()
        .chain(ledger.next_start(now))
        .chain(deadlines)
        .chain(waves)
        .chain(crash_backoff_until(ledger, alone))
        .min()
}

/// Returns true if the run's deadline has an effect.
fn expires(run: &Run) -> bool {
    matches!(run.state, RunState::Open | RunState::Paused { .. }) && run.counts.get(RecipientState::Pending) > 0
}

/// Returns the number of runs that schedules have opened.
fn opened(ledger: &Ledger) -> u64 {
    ledger.schedules().iter().map(|(_, schedule)| u64::from(schedule.plan.opened)).sum()
}
