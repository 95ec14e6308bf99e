//! The output of `reveille version -o json`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use reveille_harness::{LEVEL_VARIABLE, NEXT_LEVEL};
use serde::Deserialize;

/// The version of a binary.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Crash points, if the binary was built with them.
    #[serde(default)]
    pub crash_points: Vec<String>,
    /// Highest level of the ledger that the binary applies as the next release.
    #[serde(default)]
    level: u32,
}

impl Version {
    /// Reads the output of `version -o json` of the binary.
    pub fn of(binary: &Path) -> Result<Version> {
        let mut command = Command::new(binary);
        let output = command.args(["version", "-o", "json"]).env(LEVEL_VARIABLE, NEXT_LEVEL.to_string()).output();
        let output = output.with_context(|| format!("{} cannot be started", binary.display()))?;
        serde_json::from_slice(&output.stdout).context("the output of `reveille version`")
    }

    /// Returns why nodes of this binary cannot be upgraded. `None`: they can.
    pub fn lacks_next_level(&self) -> Option<&'static str> {
        (self.level < NEXT_LEVEL).then_some(
            "the binary of the nodes has no next level: build one with `cargo build --workspace --bin reveille \
             --features reveille/next-level` and name it with --reveille PATH",
        )
    }
}
