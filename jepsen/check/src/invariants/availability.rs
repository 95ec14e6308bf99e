//! I17: with a majority of the nodes up and undisturbed there is a leader within ten seconds, emails are sent, and no
//! recipient stays claimed without a hand-off (`progress.rs`).
//!
//! `majority.rs` defines when a majority is up and undisturbed.

use super::majority::{Interval, majorities};
use super::progress;
use crate::book::Book;
use crate::history::Part;
use crate::time::MS;
use crate::verdict::Inquiry;

/// A majority has a leader within this. An election takes under a second; a process needs some seconds to start on a busy
/// machine.
const LED_WITHIN_NS: u64 = 10_000 * MS;
/// I17.
pub fn available(book: &Book, inquiry: &mut Inquiry) {
    if !inquiry.needs(book, &[Part::Lives, Part::Faults, Part::Outages]) {
        return;
    }
    let majorities = majorities(book);
    let within_ns = book.header.led_within_ms.map_or(LED_WITHIN_NS, |ms| ms.saturating_mul(MS));
    led(book, &majorities, within_ns, inquiry);
    let of_recipients = [Part::Accepts, Part::Claims, Part::Outcomes, Part::Standings, Part::Runs, Part::Calls];
    if inquiry.needs(book, &of_recipients) {
        progress::sends(book, &majorities, within_ns, inquiry);
    }
}

fn led(book: &Book, majorities: &[Interval], within_ns: u64, inquiry: &mut Inquiry) {
    for outage in &book.outages {
        for (from_ns, until_ns) in majorities {
            let (first, last) = ((*from_ns).max(outage.from_ns), (*until_ns).min(outage.until_ns));
            let without = last.saturating_sub(first);
            if without > within_ns {
                let (first, without) = (first as f64 / 1e9, without as f64 / 1e9);
                inquiry
                    .offends(|| format!("a majority was up from {first:.3} s on and had no leader for {without:.3} s"));
            }
        }
    }
}
