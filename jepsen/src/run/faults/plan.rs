//! The plan of faults. All random choices are drawn from the seed before the run begins. Pure.
//!
//! The fault phase is divided into periods. In each period a subset of the chosen families acts, and in the last period
//! all families act. Every family draws from its own stream, so that a further family does not change the others. The
//! node behind a target (the leader, a sender) is known only when the fault is injected; the fault, its instant and its
//! length are known before.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::actions::{Family, FaultAction};

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
                Family::Operator | Family::Upgrade => 4,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;
    use reveille_check::events::FaultKind;

    use super::super::draw;
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
                FaultKind::Damage => (FaultKind::Disk, false),
                FaultKind::Transfer => (FaultKind::Restart, false),
                // A rotation is an operator's, of a family of its own.
                kind => (kind, planned.action == FaultAction::Rotate),
            };
            let families: BTreeSet<(FaultKind, bool)> = last.map(family).collect();
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
    fn relay_faults_can_be_parsed() {
        for (name, faults) in draw::RELAY {
            assert!(faults.parse::<reveille_sink::FaultPlan>().is_ok(), "{name}");
        }
    }
}
