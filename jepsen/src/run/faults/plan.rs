//! The plan of faults. All random choices are drawn from the seed before the run begins. Pure.
//!
//! The fault phase is divided into periods. In each period a subset of the chosen families acts, and in the last period
//! all families act. Every family draws from its own stream, so that a further family does not change the others. The
//! node behind a target (the leader, a sender) is known only when the fault is injected; the fault, its instant and its
//! length are known before.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::actions::{DiskFault, Family, FaultAction, FaultTarget, LinkFault, OperatorAction, PartitionShape};

/// Time from one kill of the leader to the next, where only the leader is killed, and how long it is down. It is ready
/// again long before the next kill.
const KILL_LEADER_EVERY: Duration = Duration::from_secs(8);
const LEADER_DOWN_FOR: Duration = Duration::from_secs(3);
/// Milliseconds by which each of these kills is shifted, so that it hits another phase of heartbeats and lease
/// renewals.
const PHASE_STEP_MS: u64 = 137;
const PHASES_MS: u64 = 1_000;
/// Approximate length of a period.
const PERIOD_MS: u64 = 10_000;

/// A fault with its time window.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    /// Time from the beginning of the fault phase.
    pub at: Duration,
    /// Time until the repair, for an action that lasts.
    pub lasts: Duration,
    /// The action that breaks something.
    pub action: FaultAction,
}

/// Returns the kills per minute of a run with this seed: 0.5 to 35, uniform on a logarithmic scale. With few kills,
/// three nodes send most of the time. With many kills, nodes get no claims because they crashed too often (P12).
pub fn kills_per_minute(seed: u64) -> f64 {
    const LEAST: f64 = 0.5;
    const MOST: f64 = 35.0;
    // A stream of its own, so that the number of kills changes no other draw.
    let drawn: f64 = StdRng::seed_from_u64(seed.wrapping_mul(0xD1B5_4A32_D192_ED03)).random();
    LEAST * (MOST / LEAST).powf(drawn)
}

/// Draws the plan of a run, in the order of its instants.
pub fn draw(seed: u64, phase: Duration, families: &[Family]) -> Vec<PlannedFault> {
    let phase_ms = phase.as_millis() as u64;
    let periods = (phase_ms / PERIOD_MS).max(1);
    let length_ms = phase_ms / periods;
    let mut faults = Vec::new();
    for &family in families {
        let mut random = stream(seed, family);
        for period in 0..periods {
            // Always drawn, so that one period does not change the next.
            let mut own = StdRng::seed_from_u64(random.random());
            let active = random.random_bool(share(family)) || period + 1 == periods;
            if !active {
                continue;
            }
            let actions = match family {
                Family::Kill => {
                    let wanted = kills_per_minute(seed) * length_ms as f64 / 60_000.0;
                    let drawn = wanted as u32 + u32::from(own.random_bool(wanted.fract()));
                    // There is at least one kill in the last period.
                    drawn.max(u32::from(period + 1 == periods))
                }
                Family::Operator => 6,
                Family::Upgrade => 4,
                _ => 1,
            };
            for (at_ms, lasts_ms, action) in family.draw(&mut own, length_ms, actions) {
                let at = Duration::from_millis(period * length_ms + at_ms);
                faults.push(PlannedFault { at, lasts: Duration::from_millis(lasts_ms), action });
            }
        }
    }
    faults.sort_by_key(|planned| planned.at);
    faults
}

/// Returns the plan of a run in which only the leader is killed, again and again.
pub fn kills_of_leader(phase: Duration) -> Vec<PlannedFault> {
    let kill = |number: u32| PlannedFault {
        at: KILL_LEADER_EVERY * number + Duration::from_millis(u64::from(number) * PHASE_STEP_MS % PHASES_MS),
        lasts: LEADER_DOWN_FOR,
        action: FaultAction::Kill { target: FaultTarget::Leader, inside: false },
    };
    (0..(phase.as_secs() / KILL_LEADER_EVERY.as_secs()) as u32).map(kill).collect()
}

fn stream(seed: u64, family: Family) -> StdRng {
    StdRng::seed_from_u64(seed ^ (family as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Returns the share of the periods in which a family acts. The number of kills is drawn separately.
fn share(family: Family) -> f64 {
    match family {
        Family::Kill => 1.0,
        Family::Operator => 0.8,
        Family::Relay | Family::Upgrade => 0.6,
        Family::Power => 0.3,
        // While a node is replaced, two of three must run.
        Family::Membership => 0.2,
        _ => 0.4,
    }
}

fn any_target(random: &mut StdRng) -> FaultTarget {
    match random.random_range(0..5) {
        0 | 1 => FaultTarget::Leader,
        2 | 3 => FaultTarget::Sender,
        _ => FaultTarget::Node(random.random_range(0..7)),
    }
}

/// Returns one of these values, of which there is at least one.
fn one_of<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    *of.choose(random).unwrap_or(&of[0])
}

/// Instant and length of a fault in milliseconds, and its action.
type Drawn = (u64, u64, FaultAction);

impl Family {
    /// Returns the faults of a family in one period. They begin before its last third, so that most faults end within
    /// the period.
    fn draw(self, random: &mut StdRng, length_ms: u64, actions: u32) -> Vec<Drawn> {
        let latest = (length_ms * 7 / 10).max(1);
        let mut drawn = Vec::new();
        for _ in 0..actions {
            let at = random.random_range(0..latest);
            let (lasts, action) = self.draw_one(random);
            drawn.push((at, lasts, action));
        }
        drawn
    }

    fn draw_one(self, random: &mut StdRng) -> (u64, FaultAction) {
        match self {
            Family::Kill => kill(random),
            Family::Pause => {
                let lasts = one_of(random, &[500, 2_000, 4_500, 7_000]);
                (lasts, FaultAction::Pause { target: any_target(random), inside: random.random_bool(0.6) })
            }
            Family::Partition => (random.random_range(1_000..7_000), FaultAction::Cut(shape(random))),
            Family::Link => (random.random_range(2_000..6_000), bad_link(random)),
            Family::Clock => {
                let offset = one_of(random, &OFFSETS);
                (random.random_range(2_000..8_000), FaultAction::Clock { target: any_target(random), offset })
            }
            Family::Disk => disk(random),
            Family::Power => {
                let target = if random.random_bool(0.3) { None } else { Some(any_target(random)) };
                let lasts = one_of(random, &[300, 2_000, 6_000]);
                (lasts, FaultAction::Power { target, torn: random.random_bool(0.5) })
            }
            Family::Relay => {
                let (name, faults) = one_of(random, &RELAY);
                (random.random_range(1_500..5_000), FaultAction::Relay { name, faults })
            }
            Family::Roll => (0, if random.random_bool(0.5) { FaultAction::Roll } else { FaultAction::Transfer }),
            Family::Operator => (random.random_range(500..3_000), FaultAction::Operator(one_of(random, &ORDERS))),
            Family::Membership => {
                let (target, replaces, grows) = (any_target(random), random.random_bool(0.4), random.random_bool(0.5));
                (0, if replaces { FaultAction::Replace { target } } else { FaultAction::Resize { target, grows } })
            }
            Family::Certificates => (0, FaultAction::Rotate),
            Family::Restore => (0, FaultAction::BackUp),
            Family::Upgrade => {
                let (number, goes_back) = (random.random_range(0..7), random.random_bool(0.2));
                (one_of(random, &[100, 500, 2_000]), FaultAction::Upgrade { number, goes_back })
            }
        }
    }
}

/// Jumps beyond a lease, a minute, an hour and a day, both ways, and a clock that is a tenth too fast or slow.
const OFFSETS: [&str; 10] = ["+1", "-1", "+61", "-61", "+3600", "-3600", "+90000", "-90000", "+0 x1.1", "+0 x0.9"];

const ORDERS: [OperatorAction; 17] = [
    OperatorAction::OptOut,
    OperatorAction::PauseAndResume,
    OperatorAction::Cancel,
    OperatorAction::Trigger,
    OperatorAction::CreateAgain,
    OperatorAction::Decide,
    OperatorAction::Decide,
    OperatorAction::Requeue,
    OperatorAction::Backfill,
    OperatorAction::Update,
    OperatorAction::Delete,
    OperatorAction::Message,
    OperatorAction::PutAndPause,
    OperatorAction::CreateBatch,
    OperatorAction::Erase,
    OperatorAction::PutTemplate,
    OperatorAction::Upload,
];

/// Faults of the relay, by the sink's fault plan. No reply says "daily quota", and no reply from RCPT on defers a
/// recipient: the back-off doubles while the fault lasts, and a run would have to wait for it. The simulation has
/// deferrals. Two faults refuse permanently, so that there are dead letters to requeue.
const RELAY: [(&str, &str); 12] = [
    ("unknown mailboxes", "rcpt:550=5.1.1 no such user@0.1"),
    (
        "unknown mailboxes, also after the dot",
        "rcpt:550=5.1.1 no such user@0.06,before-commit:554=5.2.1 mailbox disabled@0.06",
    ),
    (
        "quotas: 452 and 454",
        "mail:454=4.7.0 Throttling failure: Maximum sending rate exceeded@0.3,\
         mail:452=4.3.1 insufficient system storage@0.2,rcpt:452=4.5.3 too many recipients@0.1",
    ),
    ("refusals at EHLO", "ehlo:421=4.3.2 not now@0.3,ehlo:554=5.3.2 no service here@0.3"),
    ("an outage: connections are reset", "connect:reset"),
    ("a storm of throttles: 421 and 451", "mail:421=4.7.0 too fast@0.3,mail:451=4.3.2 try later@0.5"),
    ("refusals after the dot", "before-commit:451=4.7.0 too fast@0.3,rcpt:450=4.7.0 too fast@0.2"),
    ("a tarpit", "banner:stall=1500ms,after-commit:stall=800ms@0.5"),
    ("a huge banner", "banner:huge=10000000@0.3"),
    ("connections dropped after the dot", "after-commit:close@0.1"),
    ("connections reset in the body and inside an answer", "body:reset@0.1,answer:close@0.05"),
    ("closes the connection after five emails", "between:close-after=5"),
];

const DOWN_MS: [u64; 16] = [100, 100, 100, 100, 300, 300, 300, 500, 500, 500, 1_000, 1_000, 2_000, 2_000, 4_500, 7_000];

fn kill(random: &mut StdRng) -> (u64, FaultAction) {
    // The node is back within the lease (4 s), near its end, or after it. In most cases soon, so that the next kill
    // finds a leader.
    let down = one_of(random, &DOWN_MS);
    if random.random_bool(0.06) {
        return (down.min(2_000), FaultAction::KillAll);
    }
    (down, FaultAction::Kill { target: any_target(random), inside: random.random_bool(0.6) })
}

fn shape(random: &mut StdRng) -> PartitionShape {
    let number = random.random_range(0..7);
    one_of(
        random,
        &[
            PartitionShape::Alone(FaultTarget::Leader),
            PartitionShape::Alone(FaultTarget::Sender),
            PartitionShape::Halves(number),
            PartitionShape::Ring,
            PartitionShape::Bridge(number),
            PartitionShape::OneWay(FaultTarget::Leader, true),
            PartitionShape::OneWay(FaultTarget::Leader, false),
            PartitionShape::OneWay(FaultTarget::Node(number), true),
        ],
    )
}

const LINKS: [LinkFault; 5] =
    [LinkFault::Loss(10), LinkFault::Loss(30), LinkFault::Reset(20), LinkFault::Narrow(32), LinkFault::Narrow(16)];

fn bad_link(random: &mut StdRng) -> FaultAction {
    let how = one_of(random, &LINKS);
    FaultAction::Link { target: any_target(random), how }
}

fn disk(random: &mut StdRng) -> (u64, FaultAction) {
    let slow = Duration::from_millis(one_of(random, &[50, 300, 1_500]));
    let how = one_of(
        random,
        &[
            DiskFault::Fails,
            DiskFault::Slow(slow),
            DiskFault::Full,
            DiskFault::SnapshotLost,
            DiskFault::SnapshotDamaged,
            DiskFault::SnapshotsDamaged,
            DiskFault::TornTail,
        ],
    );
    (random.random_range(1_000..4_000), FaultAction::Disk { target: any_target(random), how })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;
    use reveille_check::events::FaultKind;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn same_seed_draws_same_plan() {
        let plan = draw(7, MINUTE, Family::value_variants());
        assert_eq!(plan, draw(7, MINUTE, Family::value_variants()));
        assert_ne!(plan, draw(8, MINUTE, Family::value_variants()));
        assert!(plan.is_sorted_by_key(|planned| planned.at));
        assert!(plan.iter().all(|planned| planned.at < MINUTE));
    }

    #[test]
    fn further_family_changes_no_other() {
        let alone = draw(7, MINUTE, &[Family::Kill]);
        let among: Vec<PlannedFault> = draw(7, MINUTE, Family::value_variants())
            .into_iter()
            .filter(|planned| planned.action.kind() == FaultKind::Kill)
            .collect();
        assert_eq!(alone, among);
    }

    #[test]
    fn every_family_acts_in_last_period() {
        for seed in 0..20 {
            let last =
                draw(seed, MINUTE, Family::value_variants()).into_iter().filter(|planned| planned.at >= MINUTE * 5 / 6);
            let family = |planned: PlannedFault| match planned.action.kind() {
                FaultKind::Damage => FaultKind::Disk,
                FaultKind::Transfer => FaultKind::Restart,
                kind => kind,
            };
            let families: BTreeSet<FaultKind> = last.map(family).collect();
            assert_eq!(families.len(), Family::value_variants().len(), "seed {seed}");
        }
    }

    #[test]
    fn kill_density_differs_by_seed_and_most_kills_are_inside() {
        let densities: Vec<f64> = (0..40).map(kills_per_minute).collect();
        assert!(densities.iter().all(|density| (0.5..=35.0).contains(density)), "{densities:?}");
        for (least, most) in [(0.5, 2.0), (2.0, 9.0), (9.0, 35.0)] {
            let within = densities.iter().filter(|density| (least..most).contains(*density)).count();
            assert!(within >= 5, "{within} of 40 from {least} to {most}");
        }
        let all: Vec<PlannedFault> =
            (0..40).flat_map(|seed| draw(seed, 10 * MINUTE, Family::value_variants())).collect();
        let of_seed = |seed: u64| {
            let plan = draw(seed, 10 * MINUTE, &[Family::Kill]);
            plan.len() as f64 / 10.0
        };
        for (seed, density) in densities.iter().enumerate() {
            let drawn = of_seed(seed as u64);
            assert!((drawn - density).abs() <= 1.0 + density / 3.0, "seed {seed}: {drawn} drawn, {density} wanted");
        }
        let kills = all.iter().filter(|planned| matches!(planned.action, FaultAction::Kill { .. })).count();
        let inside =
            all.iter().filter(|planned| matches!(planned.action, FaultAction::Kill { inside: true, .. })).count();
        assert!(kills > 2_000 && inside * 2 > kills, "{kills}, {inside} of them inside");
    }

    #[test]
    fn kills_of_leader_are_in_order_at_different_phases() {
        let phase = Duration::from_secs(160);
        let plan = kills_of_leader(phase);
        assert!(plan.is_sorted_by_key(|planned| planned.at) && plan.len() == 20);
        assert!(plan.iter().all(|planned| planned.at < phase));
        let phases: BTreeSet<u32> = plan.iter().map(|planned| planned.at.subsec_millis()).collect();
        assert_eq!(phases.len(), 20);
    }

    #[test]
    fn relay_faults_can_be_parsed() {
        for (name, faults) in RELAY {
            assert!(faults.parse::<reveille_sink::FaultPlan>().is_ok(), "{name}");
        }
    }
}
