//! A canary: some recipients of a run are sent first, and the others wait for the verdict (P6).
//!
//! The recipients are divided into as many equal strides as the canary has recipients. A hash of the run and the stride
//! picks one recipient of each stride. So the canary is spread evenly, and a list with a pattern (every second address
//! of one provider) does not defeat it. Only the seed is stored; membership is computed.
//!
//! The verdict is given as soon as no undecided recipient can change it. The canary fails, and the run is paused, if
//! more recipients are dead or in doubt than it allows. It passes if these and the undecided ones together are within
//! the limit. So a recipient that is deferred for an hour delays no other recipient.
//!
//! The verdict is final. Doubts of a crashed node count, although its journal may clear them seconds later. An operator
//! can overrule a failed canary; waiting for a journal that may never return could take forever.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::{
    Bitmap, CHUNK, CommandRefusal, Impossible, PauseReason, RecipientState, Run, RunId, RunSlots, RunState,
    StateChange, mix,
};

/// The whole, in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// Size and limit of a canary, in hundredths of a percent. The user chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Canary {
    /// Share of the recipients that are sent first; at least one recipient.
    pub share: u16,
    /// Share of the canary's recipients that may be dead or in doubt.
    pub limit: u16,
}

/// State of a run's canary. After the verdict it no longer changes, except for an overrule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display(
    "canary: of {recipients} recipients {bad} are dead or in doubt and {bad_max} may be; {undecided} were undecided"
)]
pub struct CanaryState {
    /// Number of the canary's recipients.
    pub recipients: u32,
    /// Number of them that may be dead or in doubt.
    pub bad_max: u32,
    /// Number of them that are pending or claimed.
    pub undecided: u32,
    /// Number of them that are dead or in doubt.
    pub bad: u32,
    /// The verdict.
    pub verdict: CanaryVerdict,
    /// Hash of the run's id; it picks the recipients.
    pub seed: u64,
}

/// Verdict on a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CanaryVerdict {
    /// There is no verdict yet. Only recipients of the canary are claimed.
    Undecided,
    /// The other recipients are sent.
    Passed,
    /// The canary failed, and the run is paused.
    Held,
    /// The canary failed, and the operator resumed the run without it.
    Overruled,
}

/// Returns a number below `length` for a stride; `length` is at most 2^32.
fn pick(seed: u64, stride: u64, length: u64) -> u64 {
    ((mix(seed ^ stride) >> 32) * length) >> 32
}

fn is_undecided(state: RecipientState) -> bool {
    matches!(state, RecipientState::Pending | RecipientState::Claimed)
}

fn is_bad(state: RecipientState) -> bool {
    matches!(state, RecipientState::Dead | RecipientState::InDoubt)
}

impl CanaryState {
    /// Returns the canary of a run that opens with `count` recipients.
    pub(crate) fn new(canary: Canary, count: u32, run: RunId) -> CanaryState {
        let seed = mix(run.index ^ mix(u64::from(run.place)));
        let part = |of: u32, share: u16| u64::from(of) * u64::from(share);
        let recipients = part(count, canary.share).div_ceil(WHOLE).clamp(1, u64::from(count).max(1)) as u32;
        let bad_max = (part(recipients, canary.limit) / WHOLE).min(u64::from(recipients)) as u32;
        CanaryState { recipients, bad_max, undecided: recipients, bad: 0, verdict: CanaryVerdict::Undecided, seed }
    }

    /// Returns the stride that contains recipient `number` of `count`.
    fn stride_of(&self, number: u32, count: u32) -> u64 {
        u64::from(number) * u64::from(self.recipients) / u64::from(count.max(1))
    }

    /// Returns the first recipient number of a stride.
    fn start_of(&self, stride: u64, count: u32) -> u64 {
        (stride * u64::from(count)).div_ceil(u64::from(self.recipients))
    }

    /// Returns the recipient number that is picked in a stride.
    fn picked(&self, stride: u64, count: u32) -> u64 {
        let start = self.start_of(stride, count);
        start + pick(self.seed, stride, self.start_of(stride + 1, count) - start)
    }

    /// Returns how many of the first `numbers` recipients of `count` are in the canary.
    fn among(&self, numbers: u32, count: u32) -> u64 {
        let stride = self.stride_of(numbers, count);
        let is_within = stride < u64::from(self.recipients) && self.picked(stride, count) < u64::from(numbers);
        stride + u64::from(is_within)
    }

    /// True if recipient `number` of `count` is in the canary.
    fn has(&self, number: u32, count: u32) -> bool {
        self.picked(self.stride_of(number, count), count) == u64::from(number)
    }

    /// Returns the range of strides whose picked recipient is in `numbers`; the run has `count` recipients.
    fn strides_in(&self, numbers: &Range<u32>, count: u32) -> Range<u64> {
        self.among(numbers.start, count)..self.among(numbers.end, count)
    }

    /// Returns the slots of the canary in a chunk.
    fn slots_in(&self, run: RunSlots, chunk: u32) -> Bitmap {
        let strides = self.strides_in(&run.numbers_in(chunk), run.count);
        let (all, of) = (u64::from(run.count), u64::from(self.recipients));
        // Stride k begins at k * all / of, rounded up. A large canary has thousands of strides in each of a thousand
        // chunks, so only the first stride of a chunk costs a division.
        let first_start = strides.start * all + of - 1;
        let (mut start, mut rest) = (first_start / of, first_start % of);
        let (whole, part) = (all / of, all % of);
        let base = u64::from(chunk) * u64::from(CHUNK);
        let slots = strides.filter_map(|stride| {
            let this = start;
            (start, rest) = (start + whole, rest + part);
            if rest >= of {
                (start, rest) = (start + 1, rest - of);
            }
            u16::try_from(u64::from(run.first) + this + pick(self.seed, stride, start - this) - base).ok()
        });
        Bitmap::of_many(slots)
    }

    /// Returns how many of these slots of a chunk are in the canary. A run event over a whole run moves a thousand
    /// chunks, so this takes the shortest way. If `slots` has all of the run's recipients in the chunk, no slot is
    /// tested. Otherwise it tests `slots` or the canary's slots, whichever are fewer.
    fn count_in(&self, run: RunSlots, chunk: u32, slots: &Bitmap) -> u32 {
        let base = chunk * CHUNK;
        let RunSlots { first, count } = run;
        let numbers = run.numbers_in(chunk);
        let strides = self.strides_in(&numbers, count);
        let here = strides.end - strides.start;
        if here == 0 {
            return 0;
        }
        let own = first + numbers.start - base..=first + numbers.end - 1 - base;
        if slots.count_in(own) == numbers.end - numbers.start {
            return here as u32;
        }
        if here <= u64::from(slots.len()) {
            return self.slots_in(run, chunk).and(slots).len();
        }
        let numbers = slots.iter().filter_map(|slot| (base + u32::from(slot)).checked_sub(first));
        numbers.filter(|number| *number < count && self.has(*number, count)).count() as u32
    }

    /// Returns the verdict that follows from the numbers; `None` if there is none yet or it was given before.
    fn judged(&self) -> Option<CanaryVerdict> {
        if self.verdict != CanaryVerdict::Undecided {
            None
        } else if self.bad > self.bad_max {
            Some(CanaryVerdict::Held)
        } else if self.bad + self.undecided <= self.bad_max {
            Some(CanaryVerdict::Passed)
        } else {
            None
        }
    }
}

impl Run {
    /// True while the canary is undecided. Only its recipients are claimed then.
    pub fn waits_for_canary(&self) -> bool {
        self.canary.is_some_and(|canary| canary.verdict == CanaryVerdict::Undecided)
    }

    /// True if recipient `number` is in the canary.
    pub fn is_of_canary(&self, number: u32) -> bool {
        self.canary.is_some_and(|canary| canary.has(number, self.count))
    }

    /// True if a recipient is pending that the canary does not hold back. While the canary is undecided, each of its
    /// undecided recipients is pending or claimed.
    pub fn has_claimable(&self) -> bool {
        match self.canary.filter(|_| self.waits_for_canary()) {
            Some(canary) => canary.undecided > self.counts.get(RecipientState::Claimed),
            None => self.counts.get(RecipientState::Pending) > 0,
        }
    }

    /// Returns the slots of a chunk whose recipients wait for the canary.
    pub fn slots_behind_canary(&self, chunk: u32) -> Bitmap {
        let Some(canary) = self.canary.filter(|_| self.waits_for_canary()) else { return Bitmap::new() };
        let mut slots = self.slots_in(chunk);
        slots.remove(&canary.slots_in(self.slots(), chunk));
        slots
    }

    /// Updates the canary's counts for slots of a chunk that changed their state, until the verdict is given.
    pub(crate) fn update_canary(&mut self, chunk: u32, slots: &Bitmap, StateChange { from, to }: StateChange) {
        if !self.waits_for_canary() || (is_undecided(from), is_bad(from)) == (is_undecided(to), is_bad(to)) {
            return;
        }
        let run = self.slots();
        let Some(canary) = &mut self.canary else { return };
        let moved = canary.count_in(run, chunk, slots);
        canary.undecided =
            canary.undecided + u32::from(is_undecided(to)) * moved - u32::from(is_undecided(from)) * moved;
        canary.bad = canary.bad + u32::from(is_bad(to)) * moved - u32::from(is_bad(from)) * moved;
    }

    /// Returns the canary's state if the verdict is given now; a failed canary pauses the run. A cancelled or expired
    /// run needs no verdict. A finished run has no recipient left to hold back, so its canary cannot fail.
    pub(crate) fn judge_canary(&mut self) -> Option<CanaryState> {
        if matches!(self.state, RunState::Cancelled { .. } | RunState::Expired { .. }) {
            return None;
        }
        let canary = self.canary.as_mut()?;
        let verdict = canary.judged().filter(|one| *one != CanaryVerdict::Held || self.state != RunState::Finished)?;
        canary.verdict = verdict;
        let judged = *canary;
        if verdict == CanaryVerdict::Held {
            self.state = RunState::Paused { reason: PauseReason::Canary(judged) };
        }
        Some(judged)
    }

    /// Holds the run as if its canary had failed, if it waits for the canary: after a restore there will be no verdict.
    /// Returns the reason of the pause.
    pub(crate) fn hold_canary(&mut self) -> Option<PauseReason> {
        let goes_on = matches!(self.state, RunState::Open | RunState::Paused { .. });
        let canary = self.canary.as_mut().filter(|canary| goes_on && canary.verdict == CanaryVerdict::Undecided)?;
        canary.verdict = CanaryVerdict::Held;
        let reason = PauseReason::Canary(*canary);
        self.state = RunState::Paused { reason: reason.clone() };
        Some(reason)
    }

    /// Overrules a failed canary when the operator resumes a paused run. The canary may have failed after the operator
    /// read the run, under another pause. So the request must say whether a canary is overruled, and this is compared
    /// with the state.
    pub(crate) fn overrule_canary(&mut self, without_canary: bool) -> Result<(), CommandRefusal> {
        let held = self.canary.as_mut().filter(|canary| canary.verdict == CanaryVerdict::Held);
        match (held, without_canary) {
            (Some(canary), true) => canary.verdict = CanaryVerdict::Overruled,
            (Some(canary), false) => return Err(CommandRefusal::CanaryHeld(*canary)),
            (None, true) => return Err(Impossible::NoCanary.into()),
            (None, false) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// In this list every second address is of one kind. A fixed step through it would pick one kind only.
    #[test]
    fn canary_of_a_patterned_list_takes_every_kind_in_proportion() {
        let count = 200_000;
        for (place, period) in [(0, 2_u32), (1, 10), (2, 20), (3, 100)] {
            let run = RunId { index: 77, place };
            let canary = CanaryState::new(Canary { share: 500, limit: 500 }, count, run);
            let mut kinds = vec![0_u32; period as usize];
            (0..count).filter(|number| canary.has(*number, count)).for_each(|one| kinds[(one % period) as usize] += 1);
            let fair = 10_000 / period;
            let is_fair = kinds.iter().all(|taken| (fair / 2..=fair * 3 / 2).contains(taken));
            assert!(is_fair, "{kinds:?}");
        }
    }

    proptest! {
        #[test]
        fn canary_is_spread_evenly_with_exact_share(
            count in 1_u32..200_000,
            share in 1_u16..=10_000,
            index in any::<u64>(),
        ) {
            let canary = CanaryState::new(Canary { share, limit: 500 }, count, RunId { index, place: 3 });
            let wanted = (u64::from(count) * u64::from(share)).div_ceil(10_000);
            prop_assert_eq!(u64::from(canary.recipients), wanted);
            let among = |numbers| canary.among(numbers, count);
            let first: Vec<u32> = (0..count).filter(|number| among(number + 1) > among(*number)).collect();
            prop_assert_eq!(first.len() as u64, wanted);
            // Each stride has one recipient, so two of them are never further apart than two strides.
            let stride = u64::from(count).div_ceil(wanted);
            let apart = first.windows(2).map(|pair| u64::from(pair[1] - pair[0])).max();
            prop_assert!(apart.is_none_or(|apart| apart < 2 * stride), "{apart:?} of {stride}");
        }

        /// Counts must be equal whichever way is shorter, and whatever the position of the run in the chunks of a page.
        #[test]
        fn canary_count_of_slots_equals_count_one_by_one(
            first in 0_u32..70_000,
            count in 1_u32..140_000,
            share in 1_u16..=10_000,
            chunk in 0_u32..4,
            (from, length) in (0_u32..CHUNK, 0_u32..=CHUNK),
            (step, is_whole) in (1_usize..9, any::<bool>()),
            seed in any::<u64>(),
        ) {
            let run = RunSlots { first, count };
            let canary = CanaryState::new(Canary { share, limit: 500 }, count, RunId { index: seed, place: 0 });
            let stretch = if is_whole { Bitmap::range(0, CHUNK) } else { Bitmap::range(from, length) };
            let slots = Bitmap::of_many(stretch.iter().step_by(step));
            let number = |slot: u16| (chunk * CHUNK + u32::from(slot)).checked_sub(first);
            let is_of_it = |slot: u16| number(slot).is_some_and(|number| number < count && canary.has(number, count));
            let one_by_one: Vec<u16> = slots.iter().filter(|slot| is_of_it(*slot)).collect();
            prop_assert_eq!(canary.count_in(run, chunk, &slots) as usize, one_by_one.len());
            let named = canary.slots_in(run, chunk).and(&slots);
            prop_assert_eq!(named.iter().collect::<Vec<u16>>(), one_by_one);
        }
    }
}
