//! Records the intervals without a leader, and every leadership, as the nodes' pages showed them.

use reveille_check::events::{EpochStarted, Event, Outage};
use reveille_harness::leader_watch::LeaderWatch;

use super::recorder::Recorder;

/// Records all intervals and leaderships that were seen until now.
pub fn record(watch: &LeaderWatch, recorder: &Recorder) {
    for (from_us, until_us) in watch.gaps() {
        let (from_ns, until_ns) = (recorder.ns(from_us), recorder.ns(until_us));
        recorder.event(&Event::Outage(Outage { from_ns, until_ns }));
    }
    for leadership in watch.all() {
        let at_ns = recorder.ns(leadership.first_us);
        recorder.event(&Event::EpochStarted(EpochStarted { at_ns, epoch: leadership.epoch }));
    }
}
