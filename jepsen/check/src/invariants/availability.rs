//! I17: while a majority of the nodes is up and undisturbed (`majority.rs`), there is a leader within ten seconds,
//! emails are sent, and no recipient stays claimed without a handoff (`progress.rs`).

use super::majority::{Interval, majorities};
use super::progress;
use crate::history::History;
use crate::time::MS;
use crate::verdict::Findings;

/// Maximum time until a majority has a leader. An election takes less than a second. A process needs some seconds to
/// start on a busy machine.
const LED_WITHIN_NS: u64 = 10_000 * MS;
/// I17: a majority that is up has a leader and sends.
pub fn available(history: &History, findings: &mut Findings) {
    if !history.is_whole() {
        return;
    }
    let majorities = majorities(history);
    let within_ns = history.header.led_within_ms.map_or(LED_WITHIN_NS, |ms| ms.saturating_mul(MS));
    report_missing_leaders(history, &majorities, within_ns, findings);
    progress::report_silence(history, &majorities, within_ns, findings);
}

fn report_missing_leaders(history: &History, majorities: &[Interval], within_ns: u64, findings: &mut Findings) {
    for outage in &history.outages {
        for (from_ns, until_ns) in majorities {
            let (first, last) = ((*from_ns).max(outage.from_ns), (*until_ns).min(outage.until_ns));
            let without = last.saturating_sub(first);
            if without > within_ns {
                let (first, without) = (first as f64 / 1e9, without as f64 / 1e9);
                findings.violation(|| {
                    format!("a majority was up from {first:.3} s on and had no leader for {without:.3} s")
                });
            }
        }
    }
}
