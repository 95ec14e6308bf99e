//! Decides at each occasion if a fault is injected. A sink has one [`Dice`], and every dialogue asks it at every stage.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};

/// The current plan, with a random generator for each rule.
pub(crate) struct Dice {
    armed: Mutex<Vec<Armed>>,
}

struct Armed {
    rule: FaultRule,
    random: StdRng,
    injected: u64,
}

impl Dice {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self { armed: Mutex::new(arm(plan)) }
    }

    /// Replaces the plan and starts its random generators anew.
    pub(crate) fn set(&self, plan: FaultPlan) {
        *self.armed.lock() = arm(plan);
    }

    /// Returns the number of times that each rule of the current plan was applied.
    pub(crate) fn injected(&self) -> Vec<u64> {
        self.armed.lock().iter().map(|armed| armed.injected).collect()
    }

    /// Returns the fault to inject at this occasion, if any. `emails` were accepted on this connection so far.
    pub(crate) fn roll(&self, stage: FaultStage, emails: u32) -> Option<FaultKind> {
        let mut rules = self.armed.lock();
        let armed = rules.iter_mut().find_map(|armed| armed.applies(stage, emails).then_some(armed))?;
        armed.injected += 1;
        Some(armed.rule.kind.clone())
    }
}

impl Armed {
    fn applies(&mut self, stage: FaultStage, emails: u32) -> bool {
        let early = matches!(self.rule.kind, FaultKind::CloseAfter { emails: wanted } if emails < wanted);
        if self.rule.stage != stage || early {
            return false;
        }
        match self.rule.amount {
            Amount::Rate(rate) => self.random.random::<f64>() < rate,
            Amount::Next(count) => self.injected < u64::from(count),
        }
    }
}

/// Returns the random generator of a rule. The index is multiplied by an odd constant before it is mixed with the seed,
/// so neighbouring seeds and rules have different generators.
fn dice_of(seed: u64, index: usize) -> StdRng {
    let index = u64::try_from(index).unwrap_or(u64::MAX);
    StdRng::seed_from_u64(seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn arm(plan: FaultPlan) -> Vec<Armed> {
    let arm = |(index, rule)| Armed { random: dice_of(plan.seed, index), rule, injected: 0 };
    plan.rules.into_iter().enumerate().map(arm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected(spec: &str, stage: FaultStage, occasions: u32) -> Vec<bool> {
        let dice = Dice::new(spec.parse().unwrap());
        (0..occasions).map(|_| dice.roll(stage, 0).is_some()).collect()
    }

    #[test]
    fn seed_repeats_itself_and_another_rule_or_stage_does_not_move_it() {
        let alone = injected("seed=3,rcpt:450@0.3", FaultStage::Rcpt, 500);
        assert_eq!(alone, injected("seed=3,rcpt:450@0.3,mail:450@0.5", FaultStage::Rcpt, 500));
        assert_ne!(alone, injected("seed=4,rcpt:450@0.3", FaultStage::Rcpt, 500));
        let share = alone.iter().filter(|injected| **injected).count();
        assert!((100..200).contains(&share), "{share} of 500 at a rate of 0.3");
    }

    #[test]
    fn next_n_are_injected_and_counted_and_then_none() {
        let dice = Dice::new("data:451#2,data:stall@0".parse().unwrap());
        let injected: Vec<_> = (0..4).map(|_| dice.roll(FaultStage::Data, 0).is_some()).collect();
        assert_eq!(injected, [true, true, false, false]);
        assert_eq!(dice.roll(FaultStage::Rcpt, 0), None);
        assert_eq!(dice.injected(), [2, 0]);
        dice.set(FaultPlan::default());
        assert_eq!(dice.roll(FaultStage::Data, 0), None);
    }

    #[test]
    fn close_after_waits_for_its_number_of_emails() {
        let dice = Dice::new("between:close-after=20".parse().unwrap());
        assert_eq!(dice.roll(FaultStage::Between, 19), None);
        assert_eq!(dice.roll(FaultStage::Between, 20), Some(FaultKind::CloseAfter { emails: 20 }));
    }
}
