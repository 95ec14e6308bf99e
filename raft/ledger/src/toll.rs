//! The toll of a large run: of those about whom something was decided lately, how many are dead (P6).
//!
//! A recipient's failure costs that recipient alone, until it is everybody's: content that cannot be composed for
//! most rows, a list of addresses that are gone. Each dead letter is kept in memory on every node until somebody has
//! looked, and each relay counts how often it is asked for mailboxes that are not there. So a run is paused when more
//! than a tenth of a stretch of its recipients have died; and who resumes it lets it go ten times as far.

use serde::{Deserialize, Serialize};

use crate::causes::PauseReason;
use crate::planted::{self, Bug};
use crate::state::{Run, RunState, Standing};

/// Recipients of the first stretch. A run with no more than that is never paused for its toll: it is what a list that
/// is given whole may have, and its letters are a few megabytes.
const STRETCH: u32 = 10_000;
/// One of so many may die: Amazon SES, which thousands of senders have to go by, may pause one of whose mails 10 %
/// bounce ("Amazon SES sending review process FAQs", bounces).
const DEAD_OF: u32 = 10;
/// A stretch is made so many times as long when somebody resumes a run in spite of its toll.
const FURTHER: u32 = 10;

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

impl Default for Toll {
    fn default() -> Toll {
        Toll { stretch: STRETCH, decided: 0, dead: 0 }
    }
}

impl Toll {
    /// Who comes back is no longer counted, as far as this stretch has counted him.
    fn note(&mut self, (from, to): (Standing, Standing), count: u32) {
        let is_decided = |standing| matches!(standing, Standing::Sent | Standing::Dead);
        let step = |sum: &mut u32, was: bool, is: bool| match (was, is) {
            (false, true) => *sum = sum.saturating_add(count),
            (true, false) => *sum = sum.saturating_sub(count),
            _ => {}
        };
        step(&mut self.decided, is_decided(from), is_decided(to));
        step(&mut self.dead, from == Standing::Dead, to == Standing::Dead);
        if self.decided >= self.stretch && !self.is_too_high() {
            (self.decided, self.dead) = (0, 0);
        }
    }

    fn is_too_high(&self) -> bool {
        self.dead > self.stretch / DEAD_OF
    }
}

impl Run {
    /// Counts those who have moved. Answers why the run is paused, where it is now: one that has ended or is paused
    /// already needs none, and where nobody is left to be sent there is nobody to hold.
    pub(crate) fn note_toll(&mut self, moved: (Standing, Standing), count: u32) -> Option<PauseReason> {
        let is_half = |decided: u32| decided >= self.count.div_ceil(2);
        let before = is_half(self.toll.decided);
        if self.count <= STRETCH && !planted::is(Bug::PauseForNothing) {
            return None;
        }
        self.toll.note(moved, count);
        let for_nothing = planted::is(Bug::PauseForNothing) && !before && is_half(self.toll.decided);
        if self.state != RunState::Open || !(for_nothing || self.toll.is_too_high()) {
            return None;
        }
        let reason = PauseReason::Toll(self.toll);
        self.state = RunState::Paused { reason: reason.clone() };
        Some(reason)
    }

    /// Somebody lets a paused run go on: in spite of its toll, where that is too high.
    pub(crate) fn overrule_toll(&mut self) {
        if self.toll.is_too_high() {
            self.toll = Toll { stretch: self.toll.stretch.saturating_mul(FURTHER), decided: 0, dead: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIES: (Standing, Standing) = (Standing::Claimed, Standing::Dead);
    const SENT: (Standing, Standing) = (Standing::Claimed, Standing::Sent);

    #[test]
    fn a_tenth_may_die_and_one_more_is_too_many_however_many_were_sent_before() {
        let mut toll = Toll::default();
        for _ in 0..1_000 {
            toll.note(SENT, 9_000);
            toll.note(DIES, 1_000);
        }
        assert_eq!(toll, Toll::default(), "a tenth of each stretch");
        toll.note(DIES, 1_000);
        assert!(!toll.is_too_high());
        toll.note(DIES, 1);
        assert!(toll.is_too_high());
        toll.note(SENT, 50_000);
        assert!(toll.is_too_high(), "who was sent meanwhile makes nobody alive");
    }

    #[test]
    fn who_comes_back_is_not_counted_and_never_below_none() {
        let mut toll = Toll::default();
        toll.note(DIES, 1_500);
        toll.note((Standing::Dead, Standing::Pending), 1_000);
        assert_eq!((toll.decided, toll.dead), (500, 500));
        toll.note((Standing::Dead, Standing::Pending), 1_000);
        toll.note((Standing::InDoubt, Standing::Sent), 3);
        assert_eq!((toll.decided, toll.dead), (3, 0));
    }
}
