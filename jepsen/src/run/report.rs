//! The result of a fault run as JSON: the last line of its standard output.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use reveille_harness::Report;
use serde_json::{Value, json};

use super::scenario::ScenarioResult;

impl ScenarioResult {
    /// Returns a report with the judgement, the figures of all runs and the particulars of this run. Also appends it to
    /// a file if one is given.
    pub fn report(&self, particulars: Value, append_to: Option<&Path>) -> Result<Report> {
        let common = json!({
            "drained": self.drained,
            // Nodes that ended unexpectedly, with the end of their logs.
            "ended_by_themselves": self.unexpected_ends,
            "errors": self.errors.0,
            "valid": self.is_valid(),
        });
        let mut line = serde_json::to_value(&self.judgement)?;
        for part in [particulars, common] {
            if let (Value::Object(line), Value::Object(part)) = (&mut line, part) {
                line.extend(part);
            }
        }
        let report = Report::new(&line, self.is_valid())?;
        if let Some(file) = append_to {
            append(file, &report.line)?;
        }
        Ok(report)
    }
}

/// Returns the commit of the working tree, marked if it has changes, and `unknown` outside of a working tree.
pub fn commit() -> String {
    let arguments = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-changed"];
    match Command::new("git").args(arguments).output() {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Appends a line to a file, which it creates if needed.
pub fn append(file: &Path, line: &str) -> Result<()> {
    let mut open = OpenOptions::new().create(true).append(true).open(file);
    let open = open.as_mut().map_err(|error| anyhow::anyhow!("{error}"));
    open.and_then(|open| Ok(writeln!(open, "{line}")?)).with_context(|| format!("appending to {}", file.display()))
}

/// Returns the current instant, for a last line.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
