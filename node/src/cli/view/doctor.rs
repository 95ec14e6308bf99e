//! Output of `doctor`.

use std::borrow::Cow;

use super::{Cell, Serialize, Tone, View, table};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work, or may stop working at any time.
    Problem,
    /// Something that the operator may want to check.
    Warning,
}

/// A problem or a warning that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Name of the check, one word for programs.
    pub check: &'static str,
    /// What is wrong, with names and numbers.
    pub what: String,
    /// Why it matters.
    pub why: Cow<'static, str>,
    /// The next command or action.
    pub next: String,
}

/// All findings, problems first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DoctorView {
    findings: Vec<Finding>,
}

impl Finding {
    /// Creates a problem.
    pub fn problem(
        check: &'static str,
        what: String,
        why: impl Into<Cow<'static, str>>,
        next: impl Into<String>,
    ) -> Finding {
        Finding { severity: Severity::Problem, check, what, why: why.into(), next: next.into() }
    }

    /// Creates a warning.
    pub fn warning(
        check: &'static str,
        what: String,
        why: impl Into<Cow<'static, str>>,
        next: impl Into<String>,
    ) -> Finding {
        Finding { severity: Severity::Warning, check, what, why: why.into(), next: next.into() }
    }
}

impl DoctorView {
    /// Sorts the findings by severity.
    pub fn new(mut findings: Vec<Finding>) -> DoctorView {
        findings.sort_by_key(|finding| finding.severity);
        DoctorView { findings }
    }

    /// Returns the number of findings of this severity.
    pub fn count(&self, severity: Severity) -> u64 {
        self.findings.iter().filter(|finding| finding.severity == severity).count() as u64
    }
}

impl View for DoctorView {
    fn name(&self) -> String {
        self.findings.iter().map(|finding| finding.check).collect::<Vec<_>>().join("\n")
    }

    fn text(&self, paint: bool) -> String {
        if self.findings.is_empty() {
            return "nothing is wrong".to_owned();
        }
        let row = |finding: &Finding| {
            let severity = match finding.severity {
                Severity::Problem => Cell::toned("problem", Tone::Bad),
                Severity::Warning => Cell::toned("warning", Tone::Notable),
            };
            let text = format!("{}\nwhy   {}\nnext  {}", finding.what, finding.why, finding.next);
            vec![severity, finding.check.into(), text.into()]
        };
        table(&["SEVERITY", "CHECK", "FINDING"], self.findings.iter().map(row).collect(), paint)
    }
}
