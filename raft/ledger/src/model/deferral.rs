//! Back-off of a recipient after a relay answers that it should be tried again later (P6).
//!
//! A 4yz answer about a recipient uses up no attempt. The wait after it doubles, within the back-off of the run's
//! policies. A jitter of up to a quarter is added, so that recipients deferred together do not return together. The
//! jitter is a hash of recipient and step: it is equal on each replica and in a replay of the log.
//!
//! A chunk keeps the deferred recipients as one set for each (step, code). The step stops growing at the longest wait.
//! So the number of sets is bounded, and a million deferred recipients cost two bytes each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Bitmap, Policies, RecipientId, mix, remove_from_all};

/// Divisor of a wait that gives its maximum jitter.
pub(crate) const JITTER_PART: i64 = 4;

/// The step and the code of deferred recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Deferral {
    /// Number of deferrals so far; it stops growing when the wait reaches its maximum.
    pub step: u8,
    /// Basic code of the last deferral.
    pub code: u16,
}

/// Deferred recipients of a chunk; disjoint sets, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferrals(BTreeMap<Deferral, Bitmap>);

impl Deferrals {
    /// The deferral of a slot; `None` if it is not deferred.
    pub fn get(&self, slot: u16) -> Option<Deferral> {
        self.0.iter().find(|(_, slots)| slots.contains(slot)).map(|(deferral, _)| *deferral)
    }

    /// Iterates over the sets, with step and code.
    pub fn iter(&self) -> impl Iterator<Item = (&Deferral, &Bitmap)> {
        self.0.iter()
    }

    pub(crate) fn put(&mut self, slot: u16, deferral: Deferral) {
        self.remove(&[slot].into_iter().collect());
        self.0.entry(deferral).or_default().insert(slot);
    }

    pub(crate) fn remove(&mut self, slots: &Bitmap) {
        remove_from_all(&mut self.0, slots);
    }
}

impl Policies {
    /// Returns the step after `step`. It is the same step if the wait no longer grows.
    pub(crate) fn next_deferral(&self, step: u8) -> u8 {
        if step > 0 && self.backoff_ms(step) >= self.backoff_to_ms { step } else { step.saturating_add(1) }
    }

    /// Wait of a recipient after deferral `step`, with its jitter. Milliseconds.
    pub fn deferral_ms(&self, step: u8, RecipientId { run, number }: RecipientId) -> i64 {
        let wait_ms = self.backoff_ms(step);
        let seed = mix(mix(run.index ^ mix(u64::from(run.place))) ^ ((u64::from(number) << 8) | u64::from(step)));
        let jitter_ms = (u128::from(seed) * (wait_ms.max(0) / JITTER_PART) as u128) >> 64;
        wait_ms.saturating_add(jitter_ms as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HOUR_MS;
    use crate::model::MINUTE_MS;
    use crate::model::RunId;

    const RUN: RunId = RunId { index: 7, place: 2 };

    #[test]
    fn deferral_doubles_to_an_hour_with_jitter_of_a_quarter() {
        let policies = Policies::default();
        let mut step = 0;
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            step = policies.next_deferral(step);
            let waits: Vec<i64> = (0..1_000).map(|number| policies.deferral_ms(step, RUN.recipient(number))).collect();
            let (least, most) = (minutes * MINUTE_MS, minutes * MINUTE_MS * 5 / 4);
            assert!(waits.iter().all(|wait| (least..most).contains(wait)), "step {step}: {waits:?}");
            let early = waits.iter().filter(|wait| **wait < (least + most) / 2).count();
            assert!((400..600).contains(&early), "step {step}: {early} of 1000 in the first half");
        }
        assert_eq!(step, 7, "the wait no longer grows");
        let flat = Policies { backoff_from_ms: HOUR_MS, ..policies };
        assert_eq!(flat.next_deferral(flat.next_deferral(0)), 1);
    }

    #[test]
    fn deferral_keeps_one_step_per_slot() {
        let mut deferrals = Deferrals::default();
        deferrals.put(3, Deferral { step: 1, code: 450 });
        deferrals.put(4, Deferral { step: 1, code: 450 });
        deferrals.put(3, Deferral { step: 2, code: 451 });
        assert_eq!(deferrals.get(3), Some(Deferral { step: 2, code: 451 }));
        assert_eq!(deferrals.get(4), Some(Deferral { step: 1, code: 450 }));
        deferrals.remove(&[3, 4].into_iter().collect());
        assert_eq!(deferrals, Deferrals::default());
    }
}
