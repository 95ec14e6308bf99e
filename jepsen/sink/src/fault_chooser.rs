//! Decides at each occasion if a fault is injected. A sink has one [`FaultChooser`]; every dialogue asks it at every
//! stage.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};

/// The current plan, with a random generator for each rule.
pub(crate) struct FaultChooser {
    active: Mutex<Vec<ActiveRule>>,
}

struct ActiveRule {
    rule: FaultRule,
    random: StdRng,
    injected: u64,
}

impl FaultChooser {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self { active: Mutex::new(activate(plan)) }
    }

    /// Replaces the plan and starts its random generators anew.
    pub(crate) fn set(&self, plan: FaultPlan) {
        *self.active.lock() = activate(plan);
    }

    /// Returns the number of times that each rule of the current plan was applied.
    pub(crate) fn injected(&self) -> Vec<u64> {
        self.active.lock().iter().map(|rule| rule.injected).collect()
    }

    /// Returns the fault to inject at this occasion, if any. `emails` were accepted on this connection so far.
    pub(crate) fn choose(&self, stage: FaultStage, emails: u32) -> Option<FaultKind> {
        let mut rules = self.active.lock();
        let active = rules.iter_mut().find_map(|active| active.applies(stage, emails).then_some(active))?;
        active.injected += 1;
        Some(active.rule.kind.clone())
    }
}

impl ActiveRule {
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
fn generator_of(seed: u64, index: usize) -> StdRng {
    let index = u64::try_from(index).unwrap_or(u64::MAX);
    StdRng::seed_from_u64(seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn activate(plan: FaultPlan) -> Vec<ActiveRule> {
    let activate = |(index, rule)| ActiveRule { random: generator_of(plan.seed, index), rule, injected: 0 };
    plan.rules.into_iter().enumerate().map(activate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected(spec: &str, stage: FaultStage, occasions: u32) -> Vec<bool> {
        let fault_chooser = FaultChooser::new(spec.parse().unwrap());
        (0..occasions).map(|_| fault_chooser.choose(stage, 0).is_some()).collect()
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
        let fault_chooser = FaultChooser::new("data:451#2,data:stall@0".parse().unwrap());
        let injected: Vec<_> = (0..4).map(|_| fault_chooser.choose(FaultStage::Data, 0).is_some()).collect();
        assert_eq!(injected, [true, true, false, false]);
        assert_eq!(fault_chooser.choose(FaultStage::Rcpt, 0), None);
        assert_eq!(fault_chooser.injected(), [2, 0]);
        fault_chooser.set(FaultPlan::default());
        assert_eq!(fault_chooser.choose(FaultStage::Data, 0), None);
    }

    #[test]
    fn close_after_waits_for_its_number_of_emails() {
        let fault_chooser = FaultChooser::new("between:close-after=20".parse().unwrap());
        assert_eq!(fault_chooser.choose(FaultStage::Between, 19), None);
        assert_eq!(fault_chooser.choose(FaultStage::Between, 20), Some(FaultKind::CloseAfter { emails: 20 }));
    }
}
