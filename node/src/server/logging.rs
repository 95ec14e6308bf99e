//! Where log lines go: stderr, one line each, `RUST_LOG` to choose. Never a secret, never an address.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::{FilterExt, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What is logged unless `RUST_LOG` says otherwise. What openraft warns of (a lost vote, a peer that does not
/// answer, each time it is tried) our own lines say once, in words for operators. h2 warns of each stream that a
/// client resets, thousands in a second.
const DEFAULT: &str = "info,openraft=error,h2=error,tonic=warn";

/// Set while Raft is shut down: its tasks end in some order, and openraft calls each end that it sees an error.
static RAFT_ENDS: AtomicBool = AtomicBool::new(false);

/// From now on openraft logs nothing; what goes wrong with the log or the state is said by our own lines.
pub fn raft_ends() {
    RAFT_ENDS.store(true, Ordering::Relaxed);
}

/// Installs the logger of this process; a second call changes nothing.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let raft =
        dynamic_filter_fn(|event, _| !(RAFT_ENDS.load(Ordering::Relaxed) && event.target().starts_with("openraft")));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
    // Fails only when there is a logger already.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter.and(raft))).try_init();
}
