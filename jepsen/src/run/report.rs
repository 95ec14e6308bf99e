//! The result of a fault run as JSON: the last line of its standard output.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use reveille_check::Judgement;
use reveille_harness::Report;
use serde_json::Value;

/// The report of a run; also appended to a file, if one is given.
pub fn report(judgement: &Judgement, particulars: Value, valid: bool, append_to: Option<&Path>) -> Result<Report> {
    let report = Report::new(&line(judgement, particulars, valid)?, valid)?;
    if let Some(file) = append_to {
        append(file, &report.line)?;
    }
    Ok(report)
}

/// The judgement and the particulars of the run. A run may be invalid although its judgement is valid.
fn line(judgement: &Judgement, particulars: Value, valid: bool) -> Result<Value> {
    let mut line = serde_json::to_value(judgement)?;
    if let (Value::Object(line), Value::Object(particulars)) = (&mut line, particulars) {
        line.extend(particulars);
    }
    line["valid"] = valid.into();
    Ok(line)
}

/// The commit of the working tree, marked if it has changes; `unknown` outside of one.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let answer = Command::new("git").args(arguments).output().ok().filter(|answer| answer.status.success())?;
        Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changed| !changed.is_empty());
    if changed { format!("{commit}-changed") } else { commit }
}

/// Appends a line to a file; creates the file if needed.
pub fn append(file: &Path, line: &str) -> Result<()> {
    let mut open = OpenOptions::new().create(true).append(true).open(file);
    let open = open.as_mut().map_err(|error| anyhow::anyhow!("{error}"));
    open.and_then(|open| Ok(writeln!(open, "{line}")?)).with_context(|| format!("appending to {}", file.display()))
}

/// The current instant, for a last line.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
