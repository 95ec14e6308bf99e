//! Limits that a seed gives its workload, so that they are asked for under faults (I18, I19). All schedules have
//! `max_attempts`. One seed of four has a relay with a rate; each of the others one more schedule, which is under a limit
//! of its own: a tenant's rate, a pool that is warmed up, or a `min_gap`.
//!
//! Rate and warm-up are lifted when the faults end, since operators trigger these schedules too, and all has to drain.
//! Decided by the number of the seed alone, so that it moves no draw.

use reveille_check::calendar::{Gap, Rule, Twice};
use reveille_check::history::{Bound, Limit};
use reveille_ledger::access::Access;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, Relay, RelayPut};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap};
use reveille_ledger::pool::{Day, PoolSet};
use reveille_ledger::tenant::TenantSet;

use crate::options::SESSIONS;
use crate::schedule::{CalendarScenario, LAST_MS, PlannedSchedule, TENANTS};

/// Emails a second that the relay takes from all nodes. A third of it drains what is left after the faults: two nodes of
/// three may get no claims then (P12).
const RELAY_PER_SECOND: u32 = 75;
/// The tenant that has a rate: one email a second.
const PACED: &str = "paced";
const TENANT_RATE_MILLI: u64 = 1_000;
/// What of it is due at once. Without the rate all of them are sent within a second, of which 28 are allowed.
const PACED_RECIPIENTS: u32 = 45;
/// The pool that is warmed up, its sessions, emails on each of its days, and recipients that are due at once.
const WARMING: &str = "warming";
const WARMING_SESSIONS: u32 = 2;
const CAP: u32 = 15;
const WARMING_RECIPIENTS: u32 = 40;
/// The schedule with a `min_gap`: its period and its gap, in milliseconds, and its recipients.
const GAPPED_PERIOD_MS: i64 = 30_000;
const GAP_MS: i64 = 70_000;
const GAPPED_RECIPIENTS: u32 = 4;
/// The schedule that is under the limit.
const LIMITED: &str = "limited";

/// What is limited beside attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// What the relay takes.
    Relay,
    /// What a tenant sends.
    Tenant,
    /// What goes by a pool on its first days.
    WarmUp,
    /// How near to each other two emails of a schedule are.
    Gap,
}

impl Limited {
    /// By the seed.
    pub fn of(seed: u64) -> Limited {
        match seed % 4 {
            1 => Limited::Relay,
            2 => Limited::Tenant,
            3 => Limited::WarmUp,
            _ => Limited::Gap,
        }
    }

    /// Sessions to the relay on each node.
    pub fn sessions(self) -> u32 {
        SESSIONS + if self == Limited::WarmUp { WARMING_SESSIONS } else { 0 }
    }

    /// Is there a budget?
    pub fn has_budget(self) -> bool {
        self != Limited::Gap
    }

    /// The schedule that is under the limit, if it is of one schedule.
    pub fn planned(
        self,
        scenario: CalendarScenario,
        begins: Time,
        minutes: i64,
        in_doubt: InDoubt,
    ) -> Option<PlannedSchedule> {
        let once_ms = begins.0 + minutes * 60_000 / 3;
        let once = || (When::At { instant_ms: once_ms }, Rule::Once { at_unix_ms: once_ms });
        let ((when, rule), recipients) = match self {
            Limited::Relay => return None,
            Limited::Tenant => (once(), PACED_RECIPIENTS),
            Limited::WarmUp => (once(), WARMING_RECIPIENTS),
            Limited::Gap => {
                let (period_ms, anchor_ms) = (GAPPED_PERIOD_MS, begins.0);
                let when = When::Every { period_ms: period_ms as u64, anchor_ms };
                ((when, Rule::Every { milliseconds: period_ms, anchor_unix_ms: anchor_ms }), GAPPED_RECIPIENTS)
            }
        };
        Some(PlannedSchedule {
            tenant: if self == Limited::Tenant { PACED } else { TENANTS[0] },
            name: LIMITED.to_owned(),
            is_sealed: false,
            launch: None,
            // Not before the largest one, or rushes would be for this one.
            at_ms: 60_000,
            when,
            rule,
            zone: scenario.zone,
            changes: (Gap::After, Twice::First),
            end: begins.plus_ms(minutes * 60_000 - LAST_MS),
            recipients: (0..recipients).map(|person| format!("p{person}@{LIMITED}.example")).collect(),
            in_doubt,
            catch_up: CatchUp::All,
            overlap: Overlap::Allow,
            pool: if self == Limited::WarmUp { WARMING } else { "default" },
            min_gap_ms: if self == Limited::Gap { GAP_MS } else { 0 },
            max_attempts: 1,
        })
    }

    /// What an operator asks for, before anything is due.
    pub fn set(self, begins: Time) -> Vec<Command> {
        let rate = if self == Limited::Relay { RELAY_PER_SECOND } else { 0 };
        let mut commands = vec![relay("relay", "default", rate, SESSIONS)];
        match self {
            Limited::Tenant => commands.push(Command::TenantSet(TenantSet {
                request: Some("tenant".into()),
                name: PACED.into(),
                rate_milli: Some(TENANT_RATE_MILLI),
                concurrency: None,
                share: None,
            })),
            Limited::WarmUp => {
                commands.push(relay(WARMING, WARMING, 0, WARMING_SESSIONS));
                commands.push(Command::PoolSet(PoolSet {
                    request: Some("pool".into()),
                    pool: WARMING.into(),
                    caps: vec![CAP; 2],
                    first: Some(Day::of(begins)),
                    reveille_headers: None,
                }));
            }
            Limited::Relay | Limited::Gap => {}
        }
        commands
    }

    /// What an operator asks for when the faults have ended, so that everything drains.
    pub fn lift(self) -> Option<Command> {
        match self {
            Limited::Tenant => Some(Command::TenantRemove(PACED.into())),
            Limited::WarmUp => Some(Command::PoolReset(WARMING.into())),
            Limited::Relay | Limited::Gap => None,
        }
    }

    /// As the judge reads it; to this instant.
    pub fn limit(self, begins: Time, until_ns: Option<u64>) -> Limit {
        let limited = |tenant: &str| (vec![tenant.to_owned()], vec![LIMITED.to_owned()]);
        let ((tenants, schedules), bound) = match self {
            Limited::Relay => {
                let per_second_milli = u64::from(RELAY_PER_SECOND) * 1_000;
                let of_all = (TENANTS.map(str::to_owned).to_vec(), Vec::new());
                (of_all, Bound::RelayRate { per_second_milli, sessions: SESSIONS })
            }
            Limited::Tenant => {
                (limited(PACED), Bound::TenantRate { per_second_milli: TENANT_RATE_MILLI, sessions: SESSIONS })
            }
            Limited::WarmUp => {
                (limited(TENANTS[0]), Bound::WarmUp { first_day: Day::of(begins).0, caps: vec![CAP; 2] })
            }
            Limited::Gap => (limited(TENANTS[0]), Bound::MinGap { gap_ms: GAP_MS as u64 }),
        };
        Limit { tenants, schedules, from_ns: 0, until_ns, bound }
    }
}

/// The attempts of each schedule.
pub fn attempts(schedules: &[PlannedSchedule]) -> impl Iterator<Item = Limit> {
    schedules.iter().map(|planned| Limit {
        tenants: vec![planned.tenant.to_owned()],
        schedules: vec![planned.name.clone()],
        from_ns: 0,
        until_ns: None,
        bound: Bound::MaxAttempts { attempts: u32::from(planned.max_attempts) },
    })
}

fn relay(name: &str, pool: &str, per_second: u32, max_sessions: u32) -> Command {
    let relay = Relay {
        name: name.into(),
        pool: pool.into(),
        host: "relay.simulation".into(),
        port: 25,
        access: Access::default(),
        rate_milli: u64::from(per_second) * 1_000,
        max_sessions,
        late_rate_milli: 0,
        weight: 1,
    };
    Command::RelayPut(RelayPut { relay, replace: false, request: Some(name.into()) })
}
