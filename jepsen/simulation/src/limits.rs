//! Limits of a seed's workload, which are judged under faults (I18, I19). All schedules have `max_attempts`. In one
//! seed of four the relay has a rate; each other seed has one more schedule with its own limit: a tenant's rate, a
//! warm-up of a pool, or a `min_gap`.
//!
//! Rate and warm-up are lifted when the faults end, so that everything can drain. The limit depends only on the number
//! of the seed, so that it changes no random draw.

use reveille_check::calendar::{Fold, Gap, Rule};
use reveille_check::events::{Bound, Limit};
use reveille_ledger::access::Access;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, Relay, RelayPut};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap};
use reveille_ledger::pool::{Day, PoolSet};
use reveille_ledger::tenant::TenantSet;

use crate::options::SESSIONS;
use crate::schedule::{CalendarScenario, LAST_MS, PlannedSchedule, TENANTS};

/// Emails per second that the relay accepts from all nodes. A third of this rate must drain the backlog after the
/// faults, because two of three nodes may get no claims then (P12).
const RELAY_PER_SECOND: u32 = 75;
/// Name of the tenant that has a rate: one email per second.
const PACED: &str = "paced";
const TENANT_RATE_MILLI: u64 = 1_000;
/// Number of recipients of that tenant, all due at once. Without the rate they would be claimed within a second. The
/// rate allows five.
const PACED_RECIPIENTS: u32 = 45;
/// Name of the pool that is warmed up, its sessions, its emails on each day, and its recipients that are due at once.
const WARMING: &str = "warming";
const WARMING_SESSIONS: u32 = 2;
const CAP: u32 = 15;
const WARMING_RECIPIENTS: u32 = 40;
/// Period and gap in milliseconds of the schedule with a `min_gap`, and its number of recipients.
const GAPPED_PERIOD_MS: i64 = 30_000;
const GAP_MS: i64 = 70_000;
const GAPPED_RECIPIENTS: u32 = 4;
/// Name of the schedule that is under the limit.
const LIMITED: &str = "limited";

/// The limit of a seed, besides attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The relay's rate.
    Relay,
    /// A tenant's rate.
    Tenant,
    /// A warm-up of a pool.
    WarmUp,
    /// A `min_gap` of a schedule.
    Gap,
}

impl Limited {
    /// Returns the limit of a seed.
    pub fn of(seed: u64) -> Limited {
        match seed % 4 {
            1 => Limited::Relay,
            2 => Limited::Tenant,
            3 => Limited::WarmUp,
            _ => Limited::Gap,
        }
    }

    /// Returns the number of sessions of each node with the relay.
    pub fn sessions(self) -> u32 {
        SESSIONS + if self == Limited::WarmUp { WARMING_SESSIONS } else { 0 }
    }

    /// Returns true if the limit is a budget (I18).
    pub fn has_budget(self) -> bool {
        self != Limited::Gap
    }

    /// Returns the additional schedule that is limited, if any.
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
            // Created after the largest schedule, which `interrupt_large_run` must find.
            at_ms: 60_000,
            when,
            rule,
            zone: scenario.zone,
            changes: (Gap::After, Fold::First),
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

    /// Returns the commands of an operator that set the limit before anything is due.
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
                pools: None,
                expected: None,
            })),
            Limited::WarmUp => {
                commands.push(relay(WARMING, WARMING, 0, WARMING_SESSIONS));
                commands.push(Command::PoolSet(PoolSet {
                    request: Some("pool".into()),
                    pool: WARMING.into(),
                    caps: vec![CAP; 2],
                    first: Some(Day::of(begins)),
                    reveille_headers: None,
                    expected: None,
                }));
            }
            Limited::Relay | Limited::Gap => {}
        }
        commands
    }

    /// Returns the command of an operator that lifts the limit when the faults have ended.
    pub fn lift(self) -> Option<Command> {
        match self {
            Limited::Tenant => Some(Command::TenantRemove(PACED.into())),
            Limited::WarmUp => Some(Command::PoolReset(WARMING.into())),
            Limited::Relay | Limited::Gap => None,
        }
    }

    /// Returns the limit in the format of histories, with its end.
    pub fn limit(self, begins: Time, until_ns: Option<u64>) -> Limit {
        let limited = |tenant: &str| (vec![tenant.to_owned()], vec![LIMITED.to_owned()]);
        let ((tenants, schedules), bound) = match self {
            Limited::Relay => {
                let per_second_milli = u64::from(RELAY_PER_SECOND) * 1_000;
                let of_all = (TENANTS.map(str::to_owned).to_vec(), Vec::new());
                (of_all, Bound::RelayRate { per_second_milli, sessions: SESSIONS })
            }
            Limited::Tenant => (limited(PACED), Bound::TenantRate { per_second_milli: TENANT_RATE_MILLI }),
            Limited::WarmUp => {
                (limited(TENANTS[0]), Bound::WarmUp { first_day: Day::of(begins).0, caps: vec![CAP; 2] })
            }
            Limited::Gap => (limited(TENANTS[0]), Bound::MinGap { gap_ms: GAP_MS as u64 }),
        };
        Limit { tenants, schedules, from_ns: 0, until_ns, bound }
    }
}

/// Returns the limit of attempts of each schedule.
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
    Command::RelayPut(RelayPut { replace: false, request: Some(name.into()), ..relay.into() })
}
