//! Writes down when nobody led with a quorum, as the watch heard it: from the last word of a leader to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reveille_check::history::{EpochStarted, Event, Outage};

use super::recorder::Recorder;
use crate::measure::monotonic_us;
use crate::watch::Watch;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until `over` is set, then writes down every outage since it was called, and every leadership.
pub async fn observe(watch: Arc<Watch>, recorder: Recorder, over: Arc<AtomicBool>) {
    let began_us = monotonic_us();
    while !over.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    for (from_us, until_us) in watch.silences().into_iter().filter(|(_, until_us)| *until_us > began_us) {
        let (from_ns, until_ns) = (recorder.ns(from_us.max(began_us)), recorder.ns(until_us));
        recorder.event(&Event::Outage(Outage { from_ns, until_ns }));
    }
    for leadership in watch.all() {
        if let Some(node) = leadership.node {
            let at_ns = recorder.ns(leadership.first_us);
            recorder.event(&Event::EpochStarted(EpochStarted { at_ns, epoch: leadership.epoch, node }));
        }
    }
}
