//! The result of a command.

use anyhow::{Context, Result};
use serde::Serialize;

/// The result of a command: the last line on stdout, and the exit code.
pub struct Report {
    /// One JSON object.
    pub line: String,
    /// True if the result is correct. False makes the exit code a failure.
    pub valid: bool,
}

impl Report {
    /// Writes the object as JSON.
    ///
    /// # Errors
    /// Fails if the object cannot be written as JSON.
    pub fn new(report: &impl Serialize, valid: bool) -> Result<Report> {
        Ok(Report { line: serde_json::to_string(report).context("the report")?, valid })
    }
}
