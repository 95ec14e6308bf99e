//! The leader's timer: finds due schedules and proposes their fires. It never acts itself (P8).
//!
//! Belongs to a leadership and ends with it. There is no timer for each schedule: the ledger keeps an index of due
//! times, and the timer sleeps until its first entry. It is built from the state, so a fail-over needs no special code.
//! When nothing is due it checks for instants that were computed with another release of the zone database (I10): after
//! the start all schedules at once, later some at each wake.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::calendar::{Pattern, PatternError, When};
use reveille_ledger::command::{Command, Fire, Quarantined, Replan};
use reveille_ledger::ids::{ScheduleId, Time};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::planning::catch_up::plan_fire;
use reveille_ledger::planning::replan::{outdated, replan};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Ledger, Schedule};
use reveille_raft::crash;

use super::fire_metrics;
use super::injected_bugs::propose_to_any_leader;
use super::leadership::Leadership;
use super::panic_guard::PanicGuard;
use crate::process::context::NodeContext;

/// Maximum number of schedules in one fire entry, with some 200 bytes each. Openings, explained ranges and their
/// distances have some 30 bytes each, and the ledger's limits bound their number. So the entry stays well below its
/// maximum size. Planning it holds the state's read lock for a few milliseconds.
const FIRES_MAX: usize = 1_024;
/// Longest sleep. It limits the delay after a lost hint.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Sleep after a fire that did not move its plan.
const SLEEP_AFTER_REFUSAL: Duration = Duration::from_millis(250);

/// Fires what is due until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut timer =
        Timer { context, leadership, panic_guard: PanicGuard::new(), replan_cursor: None, has_replanned_all: false };
    while !timer.leadership.ended() {
        let sleep = timer.wake().await;
        timer.leadership.wait_for_wakeup(&timer.leadership.wake_timer, sleep).await;
    }
}

struct Timer {
    context: Arc<NodeContext>,
    leadership: Arc<Leadership>,
    panic_guard: PanicGuard<ScheduleId>,
    /// The last schedule that was checked for another release of the zone database. `None`: the next check begins with
    /// the first schedule.
    replan_cursor: Option<ScheduleId>,
    has_replanned_all: bool,
}

/// Result of planning one schedule: a fire, or the reason why it can have none.
enum Planned {
    Fire(Box<Fire>),
    Unplannable(ScheduleId, String),
}

/// Compiled patterns. Neighbouring schedules often have the same one, and to compile it takes longer than to plan a
/// fire.
type Patterns<'a> = BTreeMap<&'a When, Result<Pattern, PatternError>>;

impl Timer {
    /// Proposes the due fires; returns how long to sleep.
    async fn wake(&mut self) -> Duration {
        let is_held = self.context.replica.read(|ledger| ledger.unaccepted_restore().is_some());
        if is_held || !self.leadership.clocks_agree() {
            return SLEEP_MAX;
        }
        let now = self.leadership.now();
        let plans = self.plans(now);
        if plans.is_empty() {
            return if self.replan(now).await { Duration::ZERO } else { self.until_next(now) };
        }
        crash::point("timer.before-fire");
        let mut fires = Vec::new();
        let mut outcome_known = true;
        for planned in plans {
            match planned {
                Planned::Fire(fire) => fires.push(*fire),
                Planned::Unplannable(id, cause) => outcome_known &= self.quarantine(id, cause).await,
            }
        }
        if fires.is_empty() {
            return if outcome_known { Duration::ZERO } else { SLEEP_AFTER_REFUSAL };
        }
        let asked = fires.len();
        let instants: Vec<_> = fires.iter().map(fire_metrics::instants).collect();
        crash::point("timer.after-fire-before-propose");
        let answer = if injected_bugs::is(Bug::TimerTrustsLeader) {
            propose_to_any_leader(Arc::clone(&self.context), Command::Fire(fires)).await
        } else {
            self.leadership.propose(Command::Fire(fires)).await
        };
        match answer {
            Some(CommandOutcome::Fired(answers)) => {
                let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
                for refusal in &refused {
                    tracing::warn!(%refusal, "a fire was refused");
                }
                let accepted = answers.iter().zip(&instants).filter(|(answer, _)| answer.is_ok());
                accepted.for_each(|(_, instants)| fire_metrics::count(instants));
                let opened: usize = answers.iter().flatten().map(Vec::len).sum();
                metrics::counter!("reveille_runs_opened_total").increment(opened as u64);
                if refused.len() == asked { SLEEP_AFTER_REFUSAL } else { Duration::ZERO }
            }
            _ => SLEEP_AFTER_REFUSAL,
        }
    }

    fn plans(&mut self, now: Time) -> Vec<Planned> {
        let (context, panic_guard) = (&self.context, &mut self.panic_guard);
        context.replica.read(|ledger| {
            let due = ledger.due().take_while(|(due, _)| *due <= now).take(FIRES_MAX);
            let mut instants = 0;
            let (mut plans, mut patterns) = (Vec::new(), Patterns::new());
            for (_, id) in due {
                match panic_guard.run(id, || plan(context, (ledger, &mut patterns), id, now)).flatten() {
                    Some(Planned::Fire(fire)) => {
                        instants += fire.opened.len();
                        instants +=
                            fire.explained.iter().map(|range| 1 + range.instants.stored_distances()).sum::<usize>();
                        if instants > ledger.limits().entry_openings_max && !plans.is_empty() {
                            break;
                        }
                        plans.push(Planned::Fire(fire));
                    }
                    Some(unplannable) => plans.push(unplannable),
                    None if panic_guard.excludes(id) => {
                        plans.push(Planned::Unplannable(id, "computing its next instant panicked twice".to_owned()));
                    }
                    None => {}
                }
            }
            plans
        })
    }

    /// Computes the next instants of some schedules again with this release of the zone database (I10), in at most one
    /// entry. Returns true if the caller should continue at once. If the proposal fails, the same schedules are found
    /// again.
    async fn replan(&mut self, now: Time) -> bool {
        let context = &self.context;
        let (replans, cursor) = context.replica.read(|ledger| {
            let (found, cursor) = outdated(ledger, self.replan_cursor, context.zones.version(), now);
            let mut patterns = Patterns::new();
            let replans = found.into_iter().filter_map(|id| replan_of(context, (ledger, &mut patterns), id));
            (replans.collect::<Vec<_>>(), cursor)
        });
        let count = replans.len();
        if count > 0 {
            let Some(CommandOutcome::Changed(moved)) = self.leadership.propose(Command::Replan(replans)).await else {
                return false;
            };
            tracing::info!(
                schedules = count,
                moved,
                tzdb = context.zones.version(),
                "next instants were computed again with another zone database"
            );
        }
        self.replan_cursor = cursor;
        self.has_replanned_all |= cursor.is_none();
        cursor.is_some() && (count > 0 || !self.has_replanned_all)
    }

    fn until_next(&self, now: Time) -> Duration {
        let next = self.context.replica.read(|ledger| ledger.due().next().map(|(due, _)| due));
        let wait = next.map_or(SLEEP_MAX, |due| match u64::try_from(due.since_ms(now)) {
            Ok(ms) if ms > 0 => Duration::from_millis(ms),
            // The schedule is due, but has no fire yet.
            _ => SLEEP_AFTER_REFUSAL,
        });
        wait.min(SLEEP_MAX)
    }

    /// Takes a schedule out of service. Returns true if the outcome of the proposal is known.
    async fn quarantine(&self, id: ScheduleId, cause: String) -> bool {
        tracing::error!(schedule = %id, cause, "a schedule is quarantined");
        self.leadership.quarantine(Quarantined::Schedule(id), &cause).await.is_some()
    }
}

/// Returns the pattern of a schedule, which is compiled once.
fn compiled<'p, 'a>(patterns: &'p mut Patterns<'a>, schedule: &'a Schedule) -> Result<&'p Pattern, &'p PatternError> {
    let when = &schedule.timing.when;
    patterns.entry(when).or_insert_with(|| Pattern::compile(when)).as_ref()
}

/// Returns the fire of one schedule, or the reason why it can have none. `None` if nothing is to be fired now.
fn plan<'a>(
    context: &NodeContext,
    (ledger, patterns): (&'a Ledger, &mut Patterns<'a>),
    id: ScheduleId,
    now: Time,
) -> Option<Planned> {
    let schedule = ledger.schedules().get(&id)?;
    let zone = match context.zones.get(&schedule.timing.zone) {
        Ok(zone) => zone,
        Err(unknown) => return Some(Planned::Unplannable(id, unknown.to_string())),
    };
    match compiled(patterns, schedule) {
        Ok(pattern) => plan_fire(ledger, id, pattern, &zone, now).map(|fire| Planned::Fire(Box::new(fire))),
        Err(error) => Some(Planned::Unplannable(id, error.to_string())),
    }
}

/// Returns the plan of a schedule with the current zone database. `None` if it has no plan, and its next fire reports
/// the reason.
fn replan_of<'a>(
    context: &NodeContext,
    (ledger, patterns): (&'a Ledger, &mut Patterns<'a>),
    id: ScheduleId,
) -> Option<Replan> {
    let schedule = ledger.schedules().get(&id)?;
    let zone = context.zones.get(&schedule.timing.zone).ok()?;
    let planned = AssertUnwindSafe(|| replan(id, schedule, compiled(patterns, schedule).ok()?, &zone));
    catch_unwind(planned).ok()?
}
