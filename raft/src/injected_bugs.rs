//! Bugs that the judge must find (feature `injected-bugs`, which no release has): the only file of this crate that asks
//! whether one is injected.

use std::ops::Range;
use std::time::Duration;

use reveille_ledger::injected_bugs::{self, Bug};

/// Election time-outs in milliseconds.
pub(crate) fn election_ms(configured: &Range<u64>) -> Range<u64> {
    if injected_bugs::is(Bug::NoElection) { 15_000..20_000 } else { configured.clone() }
}

/// How long a node with a history waits before it takes part.
pub(crate) fn startup_delay(configured: Duration) -> Duration {
    if injected_bugs::is(Bug::NoStartupDelay) { Duration::ZERO } else { configured }
}

/// Whether the log syncs what it writes.
pub(crate) fn log_is_synced() -> bool {
    !injected_bugs::is(Bug::FsyncLies)
}

/// Whether a proposal is acknowledged before it is in any log.
pub(crate) fn acknowledges_before_commit() -> bool {
    injected_bugs::is(Bug::AckBeforeCommit)
}
