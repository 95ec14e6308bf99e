//! Configures logging: one line per event on stderr, filtered by `RUST_LOG`. Log lines contain no secrets and no email
//! addresses.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::{FilterExt, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The filter if `RUST_LOG` is not set. openraft repeats warnings, such as a lost vote or an unreachable peer, at each
/// attempt; Reveille logs each once itself. h2 warns of each stream that a client resets, which can be thousands per
/// second.
const DEFAULT: &str = "info,openraft=error,h2=error,tonic=warn";

/// True while Raft shuts down. Its tasks stop in any order, and openraft logs each stopped task as an error.
static RAFT_ENDS: AtomicBool = AtomicBool::new(false);

/// Silences openraft from now on. Reveille itself still logs errors of the log and the state.
pub fn raft_ends() {
    RAFT_ENDS.store(true, Ordering::Relaxed);
}

/// Installs the logger of this process. Further calls change nothing.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let raft =
        dynamic_filter_fn(|event, _| !(RAFT_ENDS.load(Ordering::Relaxed) && event.target().starts_with("openraft")));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
    // Fails only if a logger is installed already.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter.and(raft))).try_init();
}
