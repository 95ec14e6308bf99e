//! Where log lines go: stderr, one line each, `RUST_LOG` to choose. Never a secret, never an address.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise. What openraft warns of (a lost vote, a peer that does not
/// answer, each time it is tried) our own lines say once, in words for operators.
const DEFAULT: &str = "info,openraft=error,h2=warn,tonic=warn";

/// Installs the logger of this process; a second call changes nothing.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let logger = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only when there is a logger already.
    let _ = logger.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init();
}
