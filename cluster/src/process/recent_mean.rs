//! Recent durations: a moving mean that forgets old values.
//!
//! Used where the claim cap is measured (P12): by a relay's sessions for their dialogues, by the settler for its
//! entries, by the dispatcher for its claims. Pure values: no runtime and no clock. All times must come from one clock
//! that does not go back.

use std::time::Duration;

/// Weight of a new measurement against the mean of all former ones.
const WEIGHT: f64 = 1.0 / 8.0;
/// Time without a measurement after which the mean is forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Moving mean of about the last eight measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentMean {
    /// `None`: nothing was measured yet.
    last: Option<RecordedMean>,
}

#[derive(Clone, Copy, Debug)]
struct RecordedMean {
    seconds: f64,
    recorded_at: Duration,
}

impl RecentMean {
    /// Adds a measurement of `took` that ended at `now`.
    pub fn record(&mut self, took: Duration, now: Duration) {
        let took = took.as_secs_f64();
        let mean = self.at(now).map_or(took, |mean| mean.as_secs_f64() * (1.0 - WEIGHT) + took * WEIGHT);
        self.last = Some(RecordedMean { seconds: mean, recorded_at: now });
    }

    /// Returns the mean at `now`. `None`: nothing was measured within the last minute.
    pub fn at(&self, now: Duration) -> Option<Duration> {
        let RecordedMean { seconds, recorded_at } = self.last?;
        (now.saturating_sub(recorded_at) <= REMEMBERED_FOR).then(|| Duration::from_secs_f64(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn mean_starts_at_first_value_and_follows() {
        let mut mean = RecentMean::default();
        assert_eq!(mean.at(ms(0)), None);
        mean.record(ms(800), ms(1_000));
        assert_eq!(mean.at(ms(1_000)), Some(ms(800)));
        mean.record(ms(0), ms(1_100));
        assert_eq!(mean.at(ms(1_100)), Some(ms(700)));
        for now in 0..50 {
            mean.record(ms(3), ms(1_100 + now));
        }
        assert!(mean.at(ms(1_200)) < Some(ms(5)), "fifty fast ones outweigh a slow one");
    }

    #[test]
    fn measurement_older_than_a_minute_is_forgotten() {
        let mut mean = RecentMean::default();
        mean.record(ms(800), ms(1_000));
        assert_eq!(mean.at(ms(61_000)), Some(ms(800)));
        assert_eq!(mean.at(ms(61_001)), None);
        mean.record(ms(10), ms(90_000));
        assert_eq!(mean.at(ms(90_000)), Some(ms(10)), "and counts nothing afterwards");
    }
}
