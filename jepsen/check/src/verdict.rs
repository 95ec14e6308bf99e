//! The verdict on an invariant, and the findings from which it follows.

use serde::Serialize;

use crate::history::History;

/// Maximum number of violations that are listed. All are counted.
const LISTED_MAX: usize = 10;

/// The verdict on an invariant. Only [`Verdict::True`] passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The invariant holds, and everything was observed.
    True,
    /// The invariant was violated.
    False {
        /// Number of violations.
        count: u64,
        /// The first violations, as text for people.
        violations: Vec<String>,
    },
    /// No violation was found, but some needed observation is missing.
    Unknown {
        /// The missing observations.
        missing: Vec<String>,
    },
}

impl Verdict {
    /// Returns true if the verdict passes.
    pub fn is_true(&self) -> bool {
        *self == Verdict::True
    }

    /// Returns true if a violation was found.
    pub fn is_false(&self) -> bool {
        matches!(self, Verdict::False { .. })
    }

    /// Returns the violations or missing observations, as text for people.
    pub fn reasons(&self) -> Vec<String> {
        match self {
            Verdict::True => Vec::new(),
            Verdict::False { count, violations } => {
                let more = count - violations.len() as u64;
                violations.iter().cloned().chain((more > 0).then(|| format!("and {more} more"))).collect()
            }
            Verdict::Unknown { missing } => missing.iter().map(|gap| format!("unknown: {gap}")).collect(),
        }
    }
}

/// Findings of the judge of one invariant.
///
/// A violation by the *absence* of an event may be reported only if the history is complete ([`History::is_whole`]).
#[derive(Debug, Default)]
pub struct Findings {
    count: u64,
    violations: Vec<String>,
    missing: Vec<String>,
}

impl Findings {
    /// Returns the verdict of this judge.
    pub fn verdict(history: &History, judge: fn(&History, &mut Findings)) -> Verdict {
        let mut findings = Findings::default();
        match &history.ended {
            Some(ended) => ended.missing.iter().for_each(|missing| findings.missing(missing)),
            None => findings.missing("the end of the history"),
        }
        judge(history, &mut findings);
        match findings {
            Findings { count: count @ 1.., violations, .. } => Verdict::False { count, violations },
            Findings { missing, .. } if !missing.is_empty() => Verdict::Unknown { missing },
            Findings { .. } => Verdict::True,
        }
    }

    /// Records a violation.
    pub fn violation(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.violations.len() < LISTED_MAX {
            self.violations.push(what());
        }
    }

    /// Records a missing observation, once.
    pub fn missing(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.missing.len() < LISTED_MAX && !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }
}
