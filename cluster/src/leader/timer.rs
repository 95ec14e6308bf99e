//! The leader's timer: finds what is due and proposes its fires. It never acts itself (P8).
//!
//! Belongs to a leadership and is dropped with it. It holds no timer a schedule: the ledger keeps an index of
//! what is due next, and the timer sleeps until its first entry. Built from the state, so a fail-over is
//! the ordinary road. When nothing is due it looks for instants that another release of the zone database
//! computed (I10): first over all schedules at once, then over some at each wake, for ever.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::calendar::Pattern;
use reveille_ledger::command::{Command, Fire, Quarantine, Quarantined, Replan};
use reveille_ledger::decide::catch_up::plan_fire;
use reveille_ledger::decide::replan::{outdated, replan};
use reveille_ledger::ids::{ScheduleId, Time};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::crash;

use super::fire_metrics;
use super::leadership::Leadership;
use crate::node::context::NodeContext;

/// Schedules whose fires go into one entry, beside as many openings as the ledger's limits allow, explained ranges and their
/// strides: some 200 bytes and some 30 bytes each keep it well below the bound of an entry. Planning them holds the state's read
/// lock for a few milliseconds.
const FIRES_MAX: usize = 1_024;
/// The longest sleep: a bound for what a lost hint can cost.
const NAP_MAX: Duration = Duration::from_secs(1);
/// The shortest sleep after a fire that did not move its plan.
const NAP_AFTER_REFUSAL: Duration = Duration::from_millis(250);
/// Injected bug: how long an answer is waited for before the same is asked again, and how long that goes on.
const INSISTS_AFTER: Duration = Duration::from_secs(5);
const INSISTS_FOR: Duration = Duration::from_secs(60);

/// Fires what is due until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut timer = Timer { context, leadership, panics: BTreeMap::new(), replanned: None, has_replanned_all: false };
    while !timer.leadership.ended() {
        let nap = timer.wake().await;
        timer.leadership.wait_for_wakeup(&timer.leadership.due, nap).await;
    }
}

struct Timer {
    context: Arc<NodeContext>,
    leadership: Arc<Leadership>,
    panics: BTreeMap<ScheduleId, u8>,
    /// The last schedule that was checked for another release of the zone database.
    replanned: Option<ScheduleId>,
    has_replanned_all: bool,
}

/// What one schedule's turn comes to.
enum PlannedTurn {
    Fire(Box<Fire>),
    Broken(ScheduleId, String),
}

impl Timer {
    /// Proposes what is due; answers how long to sleep.
    async fn wake(&mut self) -> Duration {
        if !self.leadership.clocks_agree() {
            return NAP_MAX;
        }
        let now = self.leadership.now();
        let turns = self.turns(now);
        if turns.is_empty() {
            return if self.replan(now).await { Duration::ZERO } else { self.until_next(now) };
        }
        crash::point("timer.before-fire");
        let mut fires = Vec::new();
        let mut is_taken = true;
        for turn in turns {
            match turn {
                PlannedTurn::Fire(fire) => fires.push(*fire),
                PlannedTurn::Broken(id, cause) => is_taken &= self.quarantine(id, cause).await,
            }
        }
        if fires.is_empty() {
            return if is_taken { Duration::ZERO } else { NAP_AFTER_REFUSAL };
        }
        let asked = fires.len();
        let told: Vec<_> = fires.iter().map(fire_metrics::instants).collect();
        crash::point("timer.after-fire-before-propose");
        let answer = if injected_bugs::is(Bug::TimerTrustsLeader) {
            insist(Arc::clone(&self.context), Command::Fire(fires)).await
        } else {
            self.leadership.propose(Command::Fire(fires)).await
        };
        match answer {
            Some(CommandOutcome::Fired(answers)) => {
                let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
                for refusal in &refused {
                    tracing::warn!(%refusal, "a fire was refused");
                }
                let taken = answers.iter().zip(&told).filter(|(answer, _)| answer.is_ok());
                taken.for_each(|(_, instants)| fire_metrics::count(instants));
                let opened: usize = answers.iter().flatten().map(Vec::len).sum();
                metrics::counter!("reveille_runs_opened_total").increment(opened as u64);
                if refused.len() == asked { NAP_AFTER_REFUSAL } else { Duration::ZERO }
            }
            _ => NAP_AFTER_REFUSAL,
        }
    }

    fn turns(&mut self, now: Time) -> Vec<PlannedTurn> {
        let (context, panics) = (&self.context, &mut self.panics);
        context.replica.read(|ledger| {
            let due = ledger.due().take_while(|(due, _)| *due <= now).take(FIRES_MAX);
            let mut instants = 0;
            let mut turns = Vec::new();
            for (_, id) in due {
                match catch_unwind(AssertUnwindSafe(|| plan(context, ledger, id, now))) {
                    Ok(Some(PlannedTurn::Fire(fire))) => {
                        instants += fire.opened.len();
                        instants += fire.explained.iter().map(|range| 1 + range.instants.len()).sum::<usize>();
                        if instants > ledger.limits().openings && !turns.is_empty() {
                            break;
                        }
                        turns.push(PlannedTurn::Fire(fire));
                    }
                    Ok(Some(broken)) => turns.push(broken),
                    Ok(None) => {}
                    Err(_) => {
                        let count = panics.entry(id).or_default();
                        *count += 1;
                        if *count >= 2 {
                            turns.push(PlannedTurn::Broken(id, "computing its next instant panicked twice".to_owned()));
                        }
                    }
                }
            }
            turns
        })
    }

    /// I10: the next instants of some schedules by this release of the zone database; one entry at most. Answers
    /// whether to go on at once. What could not be proposed is found again.
    async fn replan(&mut self, now: Time) -> bool {
        let context = &self.context;
        let (replans, place) = context.replica.read(|ledger| {
            let (found, place) = outdated(ledger, self.replanned, context.zones.version(), now);
            (found.into_iter().filter_map(|id| replan_of(context, ledger, id)).collect::<Vec<_>>(), place)
        });
        let count = replans.len();
        if count > 0 {
            let Some(CommandOutcome::Moved(moved)) = self.leadership.propose(Command::Replan(replans)).await else {
                return false;
            };
            tracing::info!(
                schedules = count,
                moved,
                tzdb = context.zones.version(),
                "planned by another zone database"
            );
        }
        self.replanned = place;
        self.has_replanned_all |= place.is_none();
        place.is_some() && (count > 0 || !self.has_replanned_all)
    }

    fn until_next(&self, now: Time) -> Duration {
        let next = self.context.replica.read(|ledger| ledger.due().next().map(|(due, _)| due));
        let wait = next.map_or(NAP_MAX, |due| match u64::try_from(due.since_ms(now)) {
            Ok(ms) if ms > 0 => Duration::from_millis(ms),
            // It is due, and no fire comes of it yet.
            _ => NAP_AFTER_REFUSAL,
        });
        wait.min(NAP_MAX)
    }

    /// Answers whether that is known to be in the ledger.
    async fn quarantine(&self, id: ScheduleId, cause: String) -> bool {
        tracing::error!(schedule = id.0, cause, "a schedule is taken out of the way");
        let item = Quarantined::Schedule(id);
        self.leadership.propose(Command::Quarantine(Quarantine { item, cause })).await.is_some()
    }
}

/// Injected bug: a timer that believes to lead acts by it. It asks whichever node leads by then, until it hears that it was done,
/// and the end of its leadership stops nothing.
async fn insist(context: Arc<NodeContext>, command: Command) -> Option<CommandOutcome> {
    let over = std::time::Instant::now() + INSISTS_FOR;
    let asked = tokio::spawn(async move {
        while std::time::Instant::now() < over {
            let deadline = std::time::Instant::now() + INSISTS_AFTER;
            if let Ok(reply) = context.replica.propose(&command, deadline).await {
                return Some(reply.outcome);
            }
            tokio::time::sleep(NAP_AFTER_REFUSAL).await;
        }
        None
    });
    asked.await.ok().flatten()
}

/// The fire of one schedule, or why it can have none.
fn plan(context: &NodeContext, ledger: &Ledger, id: ScheduleId, now: Time) -> Option<PlannedTurn> {
    let schedule = ledger.schedules().get(&id)?;
    let zone = match context.zones.get(&schedule.zone) {
        Ok(zone) => zone,
        Err(unknown) => return Some(PlannedTurn::Broken(id, unknown.to_string())),
    };
    match Pattern::compile(&schedule.when) {
        Ok(pattern) => plan_fire(ledger, id, &pattern, &zone, now).map(|fire| PlannedTurn::Fire(Box::new(fire))),
        Err(error) => Some(PlannedTurn::Broken(id, error.to_string())),
    }
}

/// The plan of a schedule by the zone database of today. None where there can be none: its next fire says so.
fn replan_of(context: &NodeContext, ledger: &Ledger, id: ScheduleId) -> Option<Replan> {
    let schedule = ledger.schedules().get(&id)?;
    let zone = context.zones.get(&schedule.zone).ok()?;
    let planned = AssertUnwindSafe(|| replan(id, schedule, &Pattern::compile(&schedule.when).ok()?, &zone));
    catch_unwind(planned).ok()?
}
