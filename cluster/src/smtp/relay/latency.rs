//! Latency of the dialogues with one relay, by which the claim cap is measured (P12). No runtime and no clock.

use std::time::Duration;

use crate::process::recent_mean::RecentMean;

/// Before the first answer, the age of running dialogues counts from this age on.
const UNANSWERED: Duration = Duration::from_secs(1);

/// Latency of the dialogues with one relay: the answered ones and the running ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct DialogueLatency {
    answered: RecentMean,
    running: u32,
    /// Sum of the start times, so that the mean age is `now - start_sum / running` without a list.
    start_sum: Duration,
}

impl DialogueLatency {
    /// Records the start of a dialogue.
    pub fn started(&mut self, now: Duration) {
        self.running += 1;
        self.start_sum += now;
    }

    /// Records the end of a dialogue that began at `began`. It is measured only if the relay was `reached`.
    pub fn ended(&mut self, began: Duration, now: Duration, reached: bool) {
        self.running = self.running.saturating_sub(1);
        self.start_sum = self.start_sum.saturating_sub(began);
        if reached {
            self.answered.record(now.saturating_sub(began), now);
        }
    }

    /// Returns the recent latency of a dialogue. If the running dialogues are older on average, their age is returned:
    /// a relay that becomes slow is known as slow before its first late answer.
    pub fn last(&self, now: Duration) -> Option<Duration> {
        let age = (now * self.running).saturating_sub(self.start_sum).checked_div(self.running);
        match (self.answered.at(now), age) {
            (Some(mean), age) => Some(mean.max(age.unwrap_or_default())),
            // Without an answer only the age of the running dialogues is known. The latency is at least that.
            (None, age) => age.filter(|age| *age >= UNANSWERED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn running_dialogues_make_relay_slow_before_first_answer() {
        let mut dialogues = DialogueLatency::default();
        dialogues.started(ms(0));
        dialogues.ended(ms(0), ms(4), true);
        assert_eq!(dialogues.last(ms(10)), Some(ms(4)));
        dialogues.started(ms(1_000));
        dialogues.started(ms(3_000));
        assert_eq!(dialogues.last(ms(3_002)), Some(ms(1_002)), "the mean of their ages");
        dialogues.ended(ms(1_000), ms(3_000), true);
        dialogues.ended(ms(3_000), ms(3_000), false);
        assert!(
            dialogues.last(ms(3_000)) < Some(ms(260)),
            "one of eight was slow; a relay that was not reached shows nothing"
        );
    }

    #[test]
    fn unanswered_relay_is_as_slow_as_its_oldest_dialogue() {
        let mut dialogues = DialogueLatency::default();
        assert_eq!(dialogues.last(ms(0)), None);
        dialogues.started(ms(500));
        assert_eq!(dialogues.last(ms(1_400)), None, "it has just begun");
        assert_eq!(dialogues.last(ms(40_500)), Some(ms(40_000)));
    }
}
