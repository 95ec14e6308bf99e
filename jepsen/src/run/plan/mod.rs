//! The plan of faults: everything that chance decides is drawn from the seed before the run begins. Pure.
//!
//! The fault phase is cut into periods. In each one another subset of the chosen families strikes; in the last one
//! all of them. Every family draws from a stream of its own, so that one more family moves no other. Whom a blow
//! meets (the leader, a sender) is known only when it falls; that it falls, when, and for how long is not.

mod blow;
mod chance;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub use self::blow::{Bad, Blow, DiskBlow, Family, Order, Shape, Whom};

/// A period lasts about this long.
const PERIOD_MS: u64 = 10_000;

/// When something is to be broken, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// Since the fault phase began.
    pub at: Duration,
    /// Until it is mended; no matter where a blow has no length.
    pub lasts: Duration,
    /// Who drew it.
    pub family: Family,
    /// What.
    pub blow: Blow,
}

/// Kills a minute of a run with this seed: from one in two minutes, where three nodes send most of the time, to 35, where
/// nodes that died too often rest (P12). Each order of magnitude is as likely as any other.
pub fn kills_per_minute(seed: u64) -> f64 {
    const LEAST: f64 = 0.5;
    const MOST: f64 = 35.0;
    // A stream of its own: the number of kills moves no other draw.
    let drawn: f64 = StdRng::seed_from_u64(seed.wrapping_mul(0xD1B5_4A32_D192_ED03)).random();
    LEAST * (MOST / LEAST).powf(drawn)
}

/// Draws the plan of a run, in the order of its instants.
pub fn draw(seed: u64, phase: Duration, families: &[Family]) -> Vec<Strike> {
    let phase_ms = phase.as_millis() as u64;
    let periods = (phase_ms / PERIOD_MS).max(1);
    let length_ms = phase_ms / periods;
    let mut strikes = Vec::new();
    for &family in families {
        let mut dice = stream(seed, family);
        for period in 0..periods {
            // The draw is made in any case: what one period does must not move the next.
            let mut own = StdRng::seed_from_u64(dice.random());
            let active = dice.random_bool(share(family)) || period + 1 == periods;
            if !active {
                continue;
            }
            let blows = match family {
                Family::Kill => {
                    let wanted = kills_per_minute(seed) * length_ms as f64 / 60_000.0;
                    let drawn = wanted as u32 + u32::from(own.random_bool(wanted.fract()));
                    // Whatever is asked for is to be seen once.
                    drawn.max(u32::from(period + 1 == periods))
                }
                Family::Operator => 4,
                _ => 1,
            };
            for (at_ms, lasts_ms, blow) in family.draw(&mut own, length_ms, blows) {
                let at = Duration::from_millis(period * length_ms + at_ms);
                strikes.push(Strike { at, lasts: Duration::from_millis(lasts_ms), family, blow });
            }
        }
    }
    strikes.sort_by_key(|strike| strike.at);
    strikes
}

fn stream(seed: u64, family: Family) -> StdRng {
    StdRng::seed_from_u64(seed ^ (family as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// In how many of the periods a family strikes. How often there are kills is drawn by itself; what a relay does meets
/// nobody where nobody can send.
fn share(family: Family) -> f64 {
    match family {
        Family::Kill => 1.0,
        Family::Operator => 0.8,
        Family::Relay => 0.6,
        Family::Power => 0.3,
        _ => 0.4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_draws_the_same_plan_again_and_another_seed_another() {
        let plan = draw(7, MINUTE, &Family::ALL);
        assert_eq!(plan, draw(7, MINUTE, &Family::ALL));
        assert_ne!(plan, draw(8, MINUTE, &Family::ALL));
        assert!(plan.is_sorted_by_key(|strike| strike.at));
        assert!(plan.iter().all(|strike| strike.at < MINUTE));
    }

    #[test]
    fn one_more_family_moves_no_other() {
        let alone = draw(7, MINUTE, &[Family::Kill]);
        let among: Vec<Strike> =
            draw(7, MINUTE, &Family::ALL).into_iter().filter(|strike| strike.family == Family::Kill).collect();
        assert_eq!(alone, among);
    }

    #[test]
    fn in_the_last_period_every_family_strikes() {
        for seed in 0..20 {
            let last = draw(seed, MINUTE, &Family::ALL).into_iter().filter(|strike| strike.at >= MINUTE * 5 / 6);
            let families: BTreeSet<Family> = last.map(|strike| strike.family).collect();
            assert_eq!(families.len(), Family::ALL.len(), "seed {seed}");
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
        let all: Vec<Strike> = (0..40).flat_map(|seed| draw(seed, 10 * MINUTE, &Family::ALL)).collect();
        let of_seed = |seed: u64| {
            let plan = draw(seed, 10 * MINUTE, &[Family::Kill]);
            plan.len() as f64 / 10.0
        };
        for (seed, density) in densities.iter().enumerate() {
            let drawn = of_seed(seed as u64);
            assert!((drawn - density).abs() <= 1.0 + density / 3.0, "seed {seed}: {drawn} drawn, {density} wanted");
        }
        let kills = all.iter().filter(|strike| matches!(strike.blow, Blow::Kill { .. })).count();
        let inside = all.iter().filter(|strike| matches!(strike.blow, Blow::Kill { inside: true, .. })).count();
        assert!(kills > 2_000 && inside * 2 > kills, "{kills}, {inside} of them inside");
    }

    #[test]
    fn every_fault_of_the_relay_can_be_read() {
        for (name, faults) in chance::RELAY {
            assert!(faults.parse::<reveille_sink::FaultPlan>().is_ok(), "{name}");
        }
    }
}
