//! Bugs injected for tests (feature `injected-bugs`, which no release has). The judge must find them. Only this file
//! and `proposer/injected_bugs.rs` check if a bug is injected.

use std::ops::Range;
use std::time::Duration;

use reveille_ledger::injected_bugs::{self, Bug};

/// Returns the range of election time-outs in milliseconds.
pub(crate) fn election_ms(configured: &Range<u64>) -> Range<u64> {
    if injected_bugs::is(Bug::NoElection) { 15_000..20_000 } else { configured.clone() }
}

/// Returns how long a node whose log is not empty waits before it takes part in Raft.
pub(crate) fn startup_delay(configured: Duration) -> Duration {
    if injected_bugs::is(Bug::NoStartupDelay) { Duration::ZERO } else { configured }
}

/// True if connections between nodes are encrypted.
pub(crate) fn peers_are_encrypted() -> bool {
    !injected_bugs::is(Bug::PlaintextPeers)
}

/// True if the log syncs what it writes.
pub(crate) fn log_is_synced() -> bool {
    !injected_bugs::is(Bug::FsyncLies)
}
