//! Speed and remaining time of watched work. Only recent observations count, so that the effect of a pause or a slow
//! hour ends soon.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::format;

/// Window over which a speed is computed.
const SPAN: Duration = Duration::from_secs(30);
/// Shortest window from which a speed is computed.
const SPAN_MIN: Duration = Duration::from_millis(500);
/// Limit of observations kept. They come at most four times a second.
const SAMPLES_MAX: usize = 128;

/// Recent observations: time since the first one, and the amount done by then.
#[derive(Debug, Default)]
pub struct Speed(VecDeque<(Duration, u64)>);

/// Speed and remaining time at one observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Amount done per second. `None` until the window is long enough.
    per_second: Option<f64>,
    /// Time that the rest takes at this speed. `None` if nothing moves, or nothing is left.
    eta: Option<Duration>,
    is_over: bool,
}

impl Speed {
    /// Records the amount done and the total, `elapsed` after the first observation. Returns the speed.
    pub fn sample(&mut self, (done, all): (u64, u64), elapsed: Duration) -> Throughput {
        self.0.push_back((elapsed, done));
        let is_old = |at: &Duration| elapsed.saturating_sub(*at) > SPAN;
        while self.0.len() > SAMPLES_MAX || self.0.get(1).is_some_and(|(at, _)| is_old(at)) {
            self.0.pop_front();
        }
        let Some((since, before)) = self.0.front() else { return Throughput::default() };
        let span = elapsed.saturating_sub(*since);
        if span < SPAN_MIN {
            return Throughput::default();
        }
        let per_second = done.saturating_sub(*before) as f64 / span.as_secs_f64();
        let left = all.saturating_sub(done);
        let eta = Duration::try_from_secs_f64(left as f64 / per_second).ok().filter(|_| left > 0);
        Throughput { per_second: Some(per_second), eta, is_over: left == 0 }
    }

    /// Forgets all observations, because speed before a pause says nothing about the time after it.
    pub fn pause(&mut self) -> Throughput {
        self.0.clear();
        Throughput::default()
    }
}

impl Throughput {
    /// Returns text such as `3,912/s, over in 3h 12m`. It is empty while the speed is unknown, and when all is done.
    pub fn words(&self) -> String {
        let Some(per_second) = self.per_second.filter(|_| !self.is_over) else { return String::new() };
        let rate = format!("{}/s", format::rate(per_second));
        match self.eta_ms() {
            Some(eta_ms) => format!("{rate}, over in {}", format::duration(eta_ms)),
            None => rate,
        }
    }

    /// Returns the fields for `-o json`. They are null while the speed is unknown.
    pub fn fields(&self) -> [(&'static str, Value); 2] {
        let eta = self.eta.map(|eta| format!("{:.3}s", eta.as_secs_f64()));
        [("perSecond", json!(self.per_second)), ("eta", json!(eta))]
    }

    fn eta_ms(&self) -> Option<i64> {
        self.eta.and_then(|eta| i64::try_from(eta.as_millis()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn speed_is_shown_after_a_while() {
        let mut speed = Speed::default();
        assert_eq!(speed.sample((10, 100), seconds(0)), Throughput::default());
        assert_eq!(speed.sample((11, 100), Duration::from_millis(400)).words(), "", "too short a time");
        let goes = speed.sample((30, 100), seconds(10));
        assert_eq!(goes.words(), "2/s, over in 35s");
        assert_eq!(goes.fields(), [("perSecond", json!(2.0)), ("eta", json!("35.000s"))]);
        let over = speed.sample((100, 100), seconds(15));
        assert_eq!((over.words(), over.fields()[0].1.clone()), (String::new(), json!(6.0)), "nothing is left");
    }

    #[test]
    fn paused_run_shows_no_speed() {
        let mut speed = Speed::default();
        speed.sample((0, 1_000), seconds(0));
        assert_eq!(speed.sample((100, 1_000), seconds(10)).words(), "10/s, over in 1m 30s");
        assert_eq!(speed.pause(), Throughput::default());
        assert_eq!(speed.sample((100, 1_000), seconds(20)), Throughput::default(), "what was before it counts no more");
        assert_eq!(speed.sample((120, 1_000), seconds(21)).words(), "20/s, over in 44s");
    }

    #[test]
    fn old_samples_do_not_count() {
        let mut speed = Speed::default();
        speed.sample((0, 1_000), seconds(0));
        speed.sample((900, 1_000), seconds(10));
        let goes = speed.sample((900, 1_000), seconds(41));
        assert_eq!((goes.words(), goes.fields()[1].1.clone()), ("0/s".to_owned(), Value::Null), "it stands still");
        for ms in 0..1_000 {
            speed.sample((900, 1_000), seconds(41) + Duration::from_millis(ms));
        }
        assert!(speed.0.len() <= SAMPLES_MAX);
    }
}
