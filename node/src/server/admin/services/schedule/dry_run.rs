//! Shows what a resume would do: it runs the leader's steps on a temporary ledger with one schedule.
//!
//! The copy starts in the current state of the schedule and fires until nothing is due, with the same code as the timer
//! and `apply`. It does not have the rest of the history, which only matters if the zone's rules changed meanwhile.

use reveille_ledger::calendar::Pattern;
use reveille_ledger::command::{Actor, Command, Entry, EpochStart, ExplainedRange, ScheduleCreate, VoterClock};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, ScheduleId, Time};
use reveille_ledger::labels::Labels;
use reveille_ledger::planning::catch_up::plan_fire;
use reveille_ledger::planning::timing::Zone;
use reveille_ledger::policy::{Overlap, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Ledger, Schedule, ScheduleTiming};

/// Maximum number of fires in a dry run. Each covers about a thousand instants.
const FIRES_MAX: u32 = 256;

/// The result of a dry run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Instants that would open, oldest first.
    pub opens: Vec<Time>,
    /// Number of missed instants that would not open, but be explained.
    pub explained: u32,
}

struct ScratchLedger {
    ledger: Ledger,
    index: u64,
    now: Time,
}

impl ScratchLedger {
    fn apply(&mut self, epoch: Epoch, command: Command) -> CommandOutcome {
        self.index += 1;
        self.ledger.apply(self.index, &Entry { epoch, now: self.now, actor: Actor::System, command }).reply.outcome
    }
}

/// Fires the schedule for all instants up to `now`, and returns what would happen.
pub fn simulate(schedule: &Schedule, pattern: &Pattern, zone: &Zone, now: Time) -> DryRun {
    let mut scratch = ScratchLedger { ledger: Ledger::new(), index: 0, now };
    let mut dry_run = DryRun::default();
    let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
    let readings = vec![VoterClock { node: leader.node, wall: now }];
    let begun = scratch.apply(Epoch(0), Command::EpochStart(EpochStart::new(leader, 1, readings)));
    let CommandOutcome::EpochStarted { epoch, .. } = begun else { return dry_run };
    let created = scratch.apply(epoch, Command::ScheduleCreate(Box::new(stand_in(schedule))));
    let CommandOutcome::Schedule(id) = created else { return dry_run };
    for _ in 0..FIRES_MAX {
        if !dry_run.fire_once(&mut scratch, (epoch, id), pattern, zone) {
            break;
        }
    }
    dry_run
}

impl DryRun {
    /// Runs one fire. Returns false if nothing is due any more.
    fn fire_once(
        &mut self,
        scratch: &mut ScratchLedger,
        (epoch, id): (Epoch, ScheduleId),
        pattern: &Pattern,
        zone: &Zone,
    ) -> bool {
        let Some(fire) = plan_fire(&scratch.ledger, id, pattern, zone, scratch.now) else { return false };
        let opens: Vec<Time> = fire.opened.iter().map(|opening| opening.due).collect();
        let explained: u32 = fire.explained.iter().map(ExplainedRange::count).sum();
        match scratch.apply(epoch, Command::Fire(vec![fire])) {
            CommandOutcome::Fired(answers) if answers.iter().all(Result::is_ok) => {
                self.opens.extend(opens);
                self.explained += explained;
                true
            }
            _ => false,
        }
    }
}

/// With `buffer_one` an instant waits until a run is finished, but in this ledger no run ever finishes.
fn side_by_side(overlap: Overlap) -> Overlap {
    if overlap == Overlap::BufferOne { Overlap::Allow } else { overlap }
}

/// Returns the command that creates a copy of the schedule, with a minimal content and audience.
fn stand_in(schedule: &Schedule) -> ScheduleCreate {
    let recipient =
        Recipient { address: "a@example.org".to_owned(), key: "a@example.org".to_owned(), values: Vec::new() };
    ScheduleCreate {
        request: None,
        tenant: schedule.settings.tenant.to_string(),
        name: schedule.name.to_string(),
        timing: ScheduleTiming {
            max_runs: schedule.timing.max_runs.map(|most| most.saturating_sub(schedule.plan.opened)),
            ..(*schedule.timing).clone()
        },
        policies: Policies {
            overlap: side_by_side(schedule.settings.policies.overlap),
            ..(*schedule.settings.policies).clone()
        },
        pool: schedule.settings.pool.to_string(),
        priority: schedule.settings.priority,
        paused: None,
        content: Content { sender: recipient.address.clone(), ..Content::default() }.into(),
        audience: Audience { columns: Vec::new(), recipients: vec![recipient] }.into(),
        after: schedule.plan.fired_through,
        next: schedule.plan.next.clone(),
        tzdb: schedule.plan.tzdb.to_string(),
        labels: Labels::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use reveille_cluster::process::zones::Zones;
    use reveille_ledger::calendar::When;
    use reveille_ledger::command::NextInstant;
    use reveille_ledger::ids::{Hash, OccurrenceName};
    use reveille_ledger::policy::{CatchUp, DAY_MS, HOUR_MS, Policies};
    use reveille_ledger::{Plan, ScheduleSettings, ScheduleState};

    const HOURS_PAUSED: i64 = 30;

    /// Returns the dry run of an hourly schedule after a pause of thirty hours.
    fn dry_run_of(catch_up: CatchUp, max_runs: Option<u32>) -> DryRun {
        let when = When::Every { period_ms: HOUR_MS as u64, anchor_ms: 0 };
        let paused_at = Time(20_000 * DAY_MS);
        let due = paused_at.plus_ms(HOUR_MS);
        let schedule = Schedule {
            name: "hourly".into(),
            timing: Arc::new(ScheduleTiming {
                when: when.clone(),
                zone: "UTC".to_owned(),
                start: None,
                end: None,
                max_runs,
            }),
            settings: Arc::new(ScheduleSettings {
                tenant: "default".into(),
                policies: Policies { catch_up, ..Policies::default() }.into(),
                pool: "default".into(),
                priority: 0,
                template: None,
            }),
            content: Hash([0; 32]),
            audience: Hash([0; 32]),
            recipients: 1,
            state: ScheduleState::Paused { reason: "".into(), since: paused_at },
            plan: Plan {
                version: 2,
                next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
                fired_through: paused_at,
                forgotten_through: None,
                opened: 7,
                archived: None,
                tzdb: "x".into(),
                refusals: 0,
                blocked_by: None,
                missed_before: None,
            },
            index: 9,
            labels: Labels::default(),
        };
        let zone = Zones::bundled("x").get("UTC").expect("a zone");
        let pattern = Pattern::compile(&when).expect("a pattern");
        simulate(&schedule, &pattern, &zone, paused_at.plus_ms(HOURS_PAUSED * HOUR_MS + HOUR_MS / 2))
    }

    #[test]
    fn policies_decide_what_a_resume_opens() {
        let one = dry_run_of(CatchUp::One, None);
        assert_eq!((one.opens.len(), one.explained), (1, 29));
        assert_eq!(one.opens.first().map(|due| due.0 % DAY_MS), Some(6 * HOUR_MS), "the latest");
        // `start_within` is twelve hours: older instants are too late.
        let all = dry_run_of(CatchUp::All, None);
        assert_eq!((all.opens.len(), all.explained), (12, 18));
        let none = dry_run_of(CatchUp::None, None);
        assert_eq!((none.opens.len(), none.explained), (0, 30));
    }

    #[test]
    fn no_more_opens_than_max_runs_leaves() {
        assert_eq!(dry_run_of(CatchUp::All, Some(10)).opens.len(), 3);
    }
}
