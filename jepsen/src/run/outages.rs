//! Writes down when nobody led with a quorum, as the watch sees it: from the last word of a leader to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reveille_check::history::{EpochStarted, Event, Outage};

use super::recorder::Recorder;
use crate::measure::monotonic_us;
use crate::watch::Watch;

/// A leader that has not said so for longer than this may be none: it is asked ten times a second.
const SILENCE_US: i64 = 400_000;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until `over` is set, then writes down every leadership.
pub async fn observe(watch: Arc<Watch>, recorder: Recorder, over: Arc<AtomicBool>) {
    let mut last_us = monotonic_us();
    while !over.load(Ordering::Relaxed) {
        let word_us = watch.all().iter().map(|leadership| leadership.last_us).max().unwrap_or(last_us);
        if word_us - last_us > SILENCE_US {
            recorder.event(&Event::Outage(Outage { from_ns: recorder.ns(last_us), until_ns: recorder.ns(word_us) }));
        }
        last_us = last_us.max(word_us);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let now = monotonic_us();
    if now - last_us > SILENCE_US {
        recorder.event(&Event::Outage(Outage { from_ns: recorder.ns(last_us), until_ns: recorder.ns(now) }));
    }
    for leadership in watch.all() {
        if let Some(node) = leadership.node {
            let at_ns = recorder.ns(leadership.first_us);
            recorder.event(&Event::EpochStarted(EpochStarted { at_ns, epoch: leadership.epoch, node }));
        }
    }
}
