//! The toll of a large run: of those about whom something was decided lately, how many are dead (P6).
//!
//! A recipient's failure costs that recipient alone, until it is everybody's: content that cannot be composed for
//! most rows, a list of addresses that are gone. Each dead letter is kept in memory on every node until somebody has
//! looked, and each relay counts how often it is asked for mailboxes that are not there. So a run is paused when more
//! than a tenth of a stretch of its recipients have died; and who resumes it lets it go ten times as far.

use serde::{Deserialize, Serialize};

use crate::causes::PauseReason;
use crate::limits::TollLimits;
use crate::planted::{self, Bug};
use crate::state::{Run, RunState, Standing};

/// Counted since the present stretch began, in entries as they apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toll {
    /// Recipients of a stretch: it ends with the entry that makes so many.
    pub stretch: u32,
    /// Sent or dead in this one.
    pub decided: u32,
    /// Dead of those.
    pub dead: u32,
}

impl Toll {
    /// That of a run that opens.
    pub(crate) fn begin(limits: &TollLimits) -> Toll {
        Toll { stretch: limits.stretch, decided: 0, dead: 0 }
    }

    /// Who comes back is no longer counted, as far as this stretch has counted him.
    fn note(&mut self, (from, to): (Standing, Standing), count: u32, limits: &TollLimits) {
        let is_decided = |standing| matches!(standing, Standing::Sent | Standing::Dead);
        let step = |sum: &mut u32, was: bool, is: bool| match (was, is) {
            (false, true) => *sum = sum.saturating_add(count),
            (true, false) => *sum = sum.saturating_sub(count),
            _ => {}
        };
        step(&mut self.decided, is_decided(from), is_decided(to));
        step(&mut self.dead, from == Standing::Dead, to == Standing::Dead);
        if self.decided >= self.stretch && !self.is_too_high(limits) {
            (self.decided, self.dead) = (0, 0);
        }
    }

    fn is_too_high(&self, limits: &TollLimits) -> bool {
        self.dead > self.stretch / limits.one_of
    }
}

impl Run {
    /// Counts those who have moved. Answers why the run is paused, where it is now: one that has ended or is paused
    /// already needs none, and where nobody is left to be sent there is nobody to hold.
    pub(crate) fn note_toll(
        &mut self,
        moved: (Standing, Standing),
        count: u32,
        limits: &TollLimits,
    ) -> Option<PauseReason> {
        let is_half = |decided: u32| decided >= self.count.div_ceil(2);
        let before = is_half(self.toll.decided);
        if self.count <= limits.stretch && !planted::is(Bug::PauseForNothing) {
            return None;
        }
        self.toll.note(moved, count, limits);
        let for_nothing = planted::is(Bug::PauseForNothing) && !before && is_half(self.toll.decided);
        if self.state != RunState::Open || !(for_nothing || self.toll.is_too_high(limits)) {
            return None;
        }
        let reason = PauseReason::Toll(self.toll);
        self.state = RunState::Paused { reason: reason.clone() };
        Some(reason)
    }

    /// Somebody lets a paused run go on: in spite of its toll, where that is too high.
    pub(crate) fn overrule_toll(&mut self, limits: &TollLimits) {
        if self.toll.is_too_high(limits) {
            self.toll = Toll { stretch: self.toll.stretch.saturating_mul(limits.further), decided: 0, dead: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::limits;

    const LIMITS: &TollLimits = &limits(1).toll;

    const DIES: (Standing, Standing) = (Standing::Claimed, Standing::Dead);
    const SENT: (Standing, Standing) = (Standing::Claimed, Standing::Sent);

    #[test]
    fn a_tenth_may_die_and_one_more_is_too_many_however_many_were_sent_before() {
        let mut toll = Toll::begin(LIMITS);
        for _ in 0..1_000 {
            toll.note(SENT, 9_000, LIMITS);
            toll.note(DIES, 1_000, LIMITS);
        }
        assert_eq!(toll, Toll::begin(LIMITS), "a tenth of each stretch");
        toll.note(DIES, 1_000, LIMITS);
        assert!(!toll.is_too_high(LIMITS));
        toll.note(DIES, 1, LIMITS);
        assert!(toll.is_too_high(LIMITS));
        toll.note(SENT, 50_000, LIMITS);
        assert!(toll.is_too_high(LIMITS), "emails that were sent meanwhile revive no recipient");
    }

    #[test]
    fn who_comes_back_is_not_counted_and_never_below_none() {
        let mut toll = Toll::begin(LIMITS);
        toll.note(DIES, 1_500, LIMITS);
        toll.note((Standing::Dead, Standing::Pending), 1_000, LIMITS);
        assert_eq!((toll.decided, toll.dead), (500, 500));
        toll.note((Standing::Dead, Standing::Pending), 1_000, LIMITS);
        toll.note((Standing::InDoubt, Standing::Sent), 3, LIMITS);
        assert_eq!((toll.decided, toll.dead), (3, 0));
    }
}
