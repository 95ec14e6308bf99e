//! Pauses a run when too many of its recently decided recipients are dead (P6).
//!
//! One failure costs one recipient, unless the cause is common: a suspended account, content that cannot be composed
//! for most recipients, or a list of addresses that no longer exist. Each dead letter takes memory on every node, and
//! relays count attempts to unknown mailboxes. So a run is paused when more than a tenth of a window of its recipients
//! is dead, and already at 20 dead recipients if they are half of those decided. When the operator resumes the run,
//! both numbers become ten times as large.

use serde::{Deserialize, Serialize};

use crate::injected_bugs::{self, Bug};
use crate::model::{BounceBreakerLimits, PauseReason, RecipientState, Run, RunState, StateChange};

/// Counts of the current window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BounceBreaker {
    /// Length of the window, in decided recipients. It ends with the entry that reaches this number.
    pub window: u32,
    /// Recipients that became sent or dead in this window.
    pub decided: u32,
    /// Recipients of `decided` that are dead.
    pub dead: u32,
}

impl BounceBreaker {
    /// Returns the breaker of a run that opens.
    pub(crate) fn new(limits: &BounceBreakerLimits) -> BounceBreaker {
        BounceBreaker { window: limits.window, decided: 0, dead: 0 }
    }

    /// Counts a transition. Recipients that leave Dead or Sent are subtracted from this window, never below zero.
    fn count(&mut self, StateChange { from, to }: StateChange, count: u32, limits: &BounceBreakerLimits) {
        let is_decided = |state| matches!(state, RecipientState::Sent | RecipientState::Dead);
        let step = |sum: &mut u32, was: bool, is: bool| match (was, is) {
            (false, true) => *sum = sum.saturating_add(count),
            (true, false) => *sum = sum.saturating_sub(count),
            _ => {}
        };
        step(&mut self.decided, is_decided(from), is_decided(to));
        step(&mut self.dead, from == RecipientState::Dead, to == RecipientState::Dead);
        if self.decided >= self.window && !self.is_tripped(limits) {
            (self.decided, self.dead) = (0, 0);
        }
    }

    fn is_tripped(&self, limits: &BounceBreakerLimits) -> bool {
        let is_half = self.dead.saturating_mul(2) >= self.decided;
        self.dead > self.window / limits.one_of || is_half && self.dead >= self.window / limits.half_from
    }
}

impl Run {
    /// Counts recipients that changed their state. Returns the reason if this pauses the run; only an open run is
    /// paused.
    pub(crate) fn count_bounces(
        &mut self,
        moved: StateChange,
        count: u32,
        limits: &BounceBreakerLimits,
    ) -> Option<PauseReason> {
        let is_half = |decided: u32| decided >= self.count.div_ceil(2);
        let before = is_half(self.bounce_breaker.decided);
        self.bounce_breaker.count(moved, count, limits);
        let for_nothing = injected_bugs::is(Bug::PauseForNothing) && !before && is_half(self.bounce_breaker.decided);
        if self.state != RunState::Open || !(for_nothing || self.bounce_breaker.is_tripped(limits)) {
            return None;
        }
        let reason = PauseReason::BounceBreaker(self.bounce_breaker);
        self.state = RunState::Paused { reason: reason.clone() };
        Some(reason)
    }

    /// Gives a tripped breaker a larger window. Called when the operator resumes the run.
    pub(crate) fn reset_tripped_breaker(&mut self, limits: &BounceBreakerLimits) {
        let BounceBreaker { window, .. } = self.bounce_breaker;
        if self.bounce_breaker.is_tripped(limits) {
            self.bounce_breaker = BounceBreaker { window: window.saturating_mul(limits.further), decided: 0, dead: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits;

    const LIMITS: &BounceBreakerLimits = &limits(1).bounce_breaker;

    const DIES: StateChange = StateChange { from: RecipientState::Claimed, to: RecipientState::Dead };
    const SENT: StateChange = StateChange { from: RecipientState::Claimed, to: RecipientState::Sent };

    #[test]
    fn more_than_a_tenth_dead_of_window_trips_breaker() {
        let mut breaker = BounceBreaker::new(LIMITS);
        for _ in 0..1_000 {
            breaker.count(SENT, 9_000, LIMITS);
            breaker.count(DIES, 1_000, LIMITS);
        }
        assert_eq!(breaker, BounceBreaker::new(LIMITS), "a tenth of each stretch");
        breaker.count(SENT, 5_000, LIMITS);
        breaker.count(DIES, 1_000, LIMITS);
        assert!(!breaker.is_tripped(LIMITS));
        breaker.count(DIES, 1, LIMITS);
        assert!(breaker.is_tripped(LIMITS));
        breaker.count(SENT, 50_000, LIMITS);
        assert!(breaker.is_tripped(LIMITS), "emails that were sent meanwhile revive no recipient");
    }

    #[test]
    fn twenty_dead_trip_breaker_when_they_are_half_of_decided() {
        let mut breaker = BounceBreaker::new(LIMITS);
        breaker.count(DIES, 19, LIMITS);
        assert!(!breaker.is_tripped(LIMITS));
        breaker.count(SENT, 21, LIMITS);
        breaker.count(DIES, 1, LIMITS);
        assert!(!breaker.is_tripped(LIMITS), "20 of 41");
        breaker.count(DIES, 1, LIMITS);
        assert!(breaker.is_tripped(LIMITS), "21 of 42");
    }

    #[test]
    fn revived_recipient_is_subtracted_without_underflow() {
        let mut breaker = BounceBreaker::new(LIMITS);
        breaker.count(DIES, 1_500, LIMITS);
        breaker.count(StateChange { from: RecipientState::Dead, to: RecipientState::Pending }, 1_000, LIMITS);
        assert_eq!((breaker.decided, breaker.dead), (500, 500));
        breaker.count(StateChange { from: RecipientState::Dead, to: RecipientState::Pending }, 1_000, LIMITS);
        breaker.count(StateChange { from: RecipientState::InDoubt, to: RecipientState::Sent }, 3, LIMITS);
        assert_eq!((breaker.decided, breaker.dead), (3, 0));
    }
}
