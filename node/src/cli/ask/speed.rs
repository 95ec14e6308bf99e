//! How fast something goes that is watched, and when it is over: by what was seen of it lately, so that a pause or a
//! slow hour is forgotten soon.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::format;

/// Looks further back than this tell nothing of now.
const SPAN: Duration = Duration::from_secs(30);
/// A change over less than this tells nothing.
const SPAN_MIN: Duration = Duration::from_millis(500);
/// Looks that are kept; they come four times a second at most.
const LOOKS_MAX: usize = 128;

/// What was seen lately: when, and how much of it was done by then.
#[derive(Debug, Default)]
pub struct Speed(VecDeque<(Duration, u64)>);

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goes {
    /// So much more is done each second; none before that was seen for long enough.
    per_second: Option<f64>,
    /// How long the rest takes at that; none where nothing moves, or nothing is left.
    eta: Option<Duration>,
    is_over: bool,
}

impl Speed {
    /// Takes in how much is done of all of it, `elapsed` after the first look.
    pub fn look(&mut self, (done, all): (u64, u64), elapsed: Duration) -> Goes {
        self.0.push_back((elapsed, done));
        let is_old = |at: &Duration| elapsed.saturating_sub(*at) > SPAN;
        while self.0.len() > LOOKS_MAX || self.0.get(1).is_some_and(|(at, _)| is_old(at)) {
            self.0.pop_front();
        }
        let Some((since, before)) = self.0.front() else { return Goes::default() };
        let span = elapsed.saturating_sub(*since);
        if span < SPAN_MIN {
            return Goes::default();
        }
        let per_second = done.saturating_sub(*before) as f64 / span.as_secs_f64();
        let left = all.saturating_sub(done);
        let eta = Duration::try_from_secs_f64(left as f64 / per_second).ok().filter(|_| left > 0);
        Goes { per_second: Some(per_second), eta, is_over: left == 0 }
    }

    /// It is paused: there is nothing to expect, and what was seen so far does not tell how it goes on.
    pub fn pause(&mut self) -> Goes {
        self.0.clear();
        Goes::default()
    }
}

impl Goes {
    /// `3,912/s, over in 3h 12m`; empty while the speed is unknown, and after the end.
    pub fn words(&self) -> String {
        let Some(per_second) = self.per_second.filter(|_| !self.is_over) else { return String::new() };
        let rate = format!("{}/s", format::rate(per_second));
        match self.eta_ms() {
            Some(eta_ms) => format!("{rate}, over in {}", format::duration(eta_ms)),
            None => rate,
        }
    }

    /// For programs; null while the speed is unknown.
    pub fn fields(&self) -> [(&'static str, Value); 2] {
        [("per_second", json!(self.per_second)), ("eta_ms", json!(self.eta_ms()))]
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
        assert_eq!(speed.look((10, 100), seconds(0)), Goes::default());
        assert_eq!(speed.look((11, 100), Duration::from_millis(400)).words(), "", "too short a time");
        let goes = speed.look((30, 100), seconds(10));
        assert_eq!(goes.words(), "2/s, over in 35s");
        assert_eq!(goes.fields(), [("per_second", json!(2.0)), ("eta_ms", json!(35_000))]);
        let over = speed.look((100, 100), seconds(15));
        assert_eq!((over.words(), over.fields()[0].1.clone()), (String::new(), json!(6.0)), "nothing is left");
    }

    #[test]
    fn paused_run_shows_no_speed() {
        let mut speed = Speed::default();
        speed.look((0, 1_000), seconds(0));
        assert_eq!(speed.look((100, 1_000), seconds(10)).words(), "10/s, over in 1m 30s");
        assert_eq!(speed.pause(), Goes::default());
        assert_eq!(speed.look((100, 1_000), seconds(20)), Goes::default(), "what was before it counts no more");
        assert_eq!(speed.look((120, 1_000), seconds(21)).words(), "20/s, over in 44s");
    }

    #[test]
    fn what_was_long_ago_counts_no_more() {
        let mut speed = Speed::default();
        speed.look((0, 1_000), seconds(0));
        speed.look((900, 1_000), seconds(10));
        let goes = speed.look((900, 1_000), seconds(41));
        assert_eq!((goes.words(), goes.fields()[1].1.clone()), ("0/s".to_owned(), Value::Null), "it stands still");
        for look in 0..1_000 {
            speed.look((900, 1_000), seconds(41) + Duration::from_millis(look));
        }
        assert!(speed.0.len() <= LOOKS_MAX);
    }
}
