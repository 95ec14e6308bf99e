//! The lifecycle of a leadership: starts an epoch whenever Raft makes this node the leader, runs the leader's actors,
//! and ends them with the epoch (P13).
//!
//! The first leader of a cluster runs the same code as every later one: fail-over is no special case.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::agreed_time;
use reveille_ledger::command::Command;
use reveille_ledger::effect::Effect;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{Hint, Role, crash};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::claims::dispatcher;
use super::leadership::{Leadership, PROPOSAL_TIMEOUT, StartedEpoch};
use super::{auditor, backups, clock_steering, fitness, membership, relay_shares, timer};
use crate::process::context::NodeContext;

/// Interval of the `Tick` entries that a leader commits, so that ledger time advances while nothing else happens (P18).
const TICK_EVERY: Duration = Duration::from_secs(10);
/// Pause after an epoch ended or could not be started.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Runs this node's leaderships, one after the other, until the node stops.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let mut role = context.replica.role();
    loop {
        let raft_term = raft_term_of(*role.borrow_and_update());
        match raft_term {
            Some(raft_term) => {
                let over = stop.child_token();
                let changed =
                    async { while role.changed().await.is_ok() && raft_term_of(*role.borrow()) == Some(raft_term) {} };
                tokio::select! {
                    () = lead(&context, raft_term, over.clone()) => {}
                    () = stop.cancelled() => {}
                    () = changed => {}
                }
                over.cancel();
                crash::point("lifecycle.leadership-lost");
                context.clear_leadership();
                tokio::time::sleep(RETRY_AFTER).await;
            }
            None => {
                tokio::select! {
                    // The replica has stopped and the node is about to stop, so there is nothing to lead.
                    changed = role.changed() => if changed.is_err() { stop.cancelled().await },
                    () = stop.cancelled() => {}
                }
            }
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

fn raft_term_of(role: Role) -> Option<u64> {
    match role {
        Role::Leader { term } => Some(term),
        Role::Follower { .. } | Role::Candidate | Role::Stopped => None,
    }
}

/// Runs one epoch from its start to its end. Returns when another epoch is needed.
async fn lead(context: &Arc<NodeContext>, raft_term: u64, ended: CancellationToken) {
    let Some(leadership) = start_epoch(context, raft_term, ended.clone()).await else { return };
    let leadership = Arc::new(leadership);
    tracing::info!(epoch = leadership.epoch().0, clocks_agree = leadership.clocks_agree(), "this node leads");
    context.set_leadership(Arc::clone(&leadership));
    let mut actors = JoinSet::new();
    actors.spawn(timer::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(dispatcher::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(auditor::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(fitness::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(relay_shares::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(membership::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(backups::run(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(tick(Arc::clone(&leadership)));
    actors.spawn(listen(Arc::clone(context), Arc::clone(&leadership)));
    actors.spawn(clock_steering::run(Arc::clone(context), Arc::clone(&leadership)));
    // A failed actor is never restarted, because its state belongs to the leadership. The leadership ends with the
    // first actor that ends.
    if let Some(Err(panic)) = actors.join_next().await {
        tracing::error!(%panic, epoch = leadership.epoch().0, "an actor of the leadership failed: the leadership ends");
    }
    ended.cancel();
    context.clear_leadership();
    while actors.join_next().await.is_some() {}
}

async fn tick(leadership: Arc<Leadership>) {
    while !leadership.ended() {
        leadership.sleep(TICK_EVERY).await;
        if !leadership.ended() {
            leadership.propose(Command::Tick).await;
        }
    }
}

/// Wakes the actors that an entry concerns. Ends the leadership when another epoch was applied.
async fn listen(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut hints = context.replica.hints();
    while let Some(Some(hint)) = leadership.ended.run_until_cancelled(hints.next()).await {
        let current = context.replica.read(|ledger| ledger.head().current_epoch());
        if current != Some(leadership.epoch()) {
            tracing::info!(epoch = leadership.epoch().0, "another epoch began: the leadership ends");
            return;
        }
        match hint {
            Hint::Resync | Hint::Effect { effect: Effect::ClockMoved(_), .. } => {
                leadership.wake_timer.notify_one();
                leadership.wake_dispatcher.notify_one();
                leadership.wake_auditor.notify_one();
            }
            Hint::Effect { effect: Effect::DueChanged { .. }, .. } => leadership.wake_timer.notify_one(),
            Hint::Effect {
                effect: Effect::WorkAppeared(_) | Effect::ClaimEmptied { .. } | Effect::RelaysChanged,
                ..
            } => leadership.wake_dispatcher.notify_one(),
            Hint::Effect { .. } => {}
        }
    }
}

/// Commits the `EpochStart` and builds the leadership from its reply. `None` if the epoch did not start.
async fn start_epoch(context: &Arc<NodeContext>, raft_term: u64, ended: CancellationToken) -> Option<Leadership> {
    let (start, read_at) = clock_steering::epoch_start(context).await;
    let agreed = agreed_time(start.voters, &start.readings);
    let command = Command::EpochStart(start);
    let reply =
        match context.replica.propose_as_leader(raft_term, command, std::time::Instant::now() + PROPOSAL_TIMEOUT).await
        {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(%error, "no epoch yet");
                return None;
            }
        };
    let CommandOutcome::EpochStarted { epoch, base, clocks_agree } = reply.outcome else { return None };
    let applied_at = context.clock.boot();
    // This is the only entry of the epoch so far, so the current offset of the test clock is the one in its base (P19).
    let base = base.plus_ms(-context.offset_ms());
    // An agreed base is the time at which the clocks were read, so the duration of the commit counts too.
    let base_at = if agreed == Some(base) { read_at } else { applied_at };
    let started = StartedEpoch { epoch, clocks_agree, base, base_at, applied_at };
    Some(Leadership::new(context.replica.clone(), Arc::clone(&context.lease_clock), started, ended))
}
