//! Records the intervals without a leader, and every leadership, as the nodes' pages showed them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reveille_check::history::{EpochStarted, Event, Outage};

use super::recorder::Recorder;
use reveille_harness::leader_watch::LeaderWatch;
use reveille_harness::measure::monotonic_us;

const POLL_EVERY: Duration = Duration::from_millis(100);

/// Waits until `over` is set, then records all since its call.
pub async fn observe(watch: Arc<LeaderWatch>, recorder: Recorder, over: Arc<AtomicBool>) {
    let began_us = monotonic_us();
    while !over.load(Ordering::Relaxed) {
        tokio::time::sleep(POLL_EVERY).await;
    }
    for (from_us, until_us) in watch.gaps().into_iter().filter(|(_, until_us)| *until_us > began_us) {
        let (from_ns, until_ns) = (recorder.ns(from_us.max(began_us)), recorder.ns(until_us));
        recorder.event(&Event::Outage(Outage { from_ns, until_ns }));
    }
    for leadership in watch.all() {
        let at_ns = recorder.ns(leadership.first_us);
        let started = EpochStarted { at_ns, epoch: leadership.epoch, node: leadership.node };
        recorder.event(&Event::EpochStarted(started));
    }
}
