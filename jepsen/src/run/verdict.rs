//! The last line of a run, and where it is written down.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use reveille_check::Judgement;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Outcome;

/// What is said at the end, and appended to a file where there is one.
pub fn outcome(
    judgement: &Judgement,
    particulars: &impl Serialize,
    valid: bool,
    append_to: Option<&Path>,
) -> Result<Outcome> {
    let outcome = Outcome { line: line(judgement, particulars, valid)?, valid };
    if let Some(file) = append_to {
        append(file, &outcome.line)?;
    }
    Ok(outcome)
}

/// The last line: the judgement, and what the run was like. `valid` may be less than the judgement says.
fn line(judgement: &Judgement, particulars: &impl Serialize, valid: bool) -> Result<String> {
    let mut line = object(judgement)?;
    line.extend(object(particulars)?);
    line.insert("valid".to_owned(), valid.into());
    Ok(serde_json::to_string(&line)?)
}

fn object(of: &impl Serialize) -> Result<Map<String, Value>> {
    match serde_json::to_value(of)? {
        Value::Object(object) => Ok(object),
        other => anyhow::bail!("{other} is no object"),
    }
}

/// The commit of the tree that this is run in, with a mark where something was changed since; `unknown` elsewhere.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let answer = Command::new("git").args(arguments).output().ok().filter(|answer| answer.status.success())?;
        Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changed| !changed.is_empty());
    if changed { format!("{commit}-changed") } else { commit }
}

/// Appends a line to a file, which is made where it is not there.
pub fn append(file: &Path, line: &str) -> Result<()> {
    let mut open = OpenOptions::new().create(true).append(true).open(file);
    let open = open.as_mut().map_err(|error| anyhow::anyhow!("{error}"));
    open.and_then(|open| Ok(writeln!(open, "{line}")?)).with_context(|| format!("appending to {}", file.display()))
}
