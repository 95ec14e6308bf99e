//! What an invariant comes to, and how a judge comes to it.

use serde::Serialize;

use crate::history::Part;
use crate::history_index::HistoryIndex;

/// So many offences are printed; all are counted.
const LISTED_MAX: usize = 10;

/// What an invariant comes to. Only [`Verdict::True`] is a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It holds for everything in the history, and everything that it needs was observed.
    True,
    /// It does not.
    False {
        /// How many offences there are.
        count: u64,
        /// The first of them, readable.
        violations: Vec<String>,
    },
    /// No offence was seen, and not everything that it needs was.
    Unknown {
        /// What is missing.
        missing: Vec<String>,
    },
}

impl Verdict {
    /// Is it a pass?
    pub fn is_true(&self) -> bool {
        *self == Verdict::True
    }

    /// Was an offence seen?
    pub fn is_false(&self) -> bool {
        matches!(self, Verdict::False { .. })
    }

    /// The offences or gaps that are known, readable.
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

/// An inquiry into one invariant: offences and gaps as they are found.
///
/// An offence that rests on the *absence* of something may be raised only where its part is whole:
/// [`Findings::requires`] answers that.
#[derive(Debug, Default)]
pub struct Findings {
    count: u64,
    violations: Vec<String>,
    missing: Vec<String>,
}

impl Findings {
    /// The verdict that this judge comes to.
    pub fn verdict(history: &HistoryIndex, judge: fn(&HistoryIndex, &mut Findings)) -> Verdict {
        let mut findings = Findings::default();
        judge(history, &mut findings);
        match findings {
            Findings { count: count @ 1.., violations, .. } => Verdict::False { count, violations },
            Findings { missing, .. } if !missing.is_empty() => Verdict::Unknown { missing },
            Findings { .. } => Verdict::True,
        }
    }

    /// Notes which of these parts are not whole; true where all are.
    pub fn requires(&mut self, history: &HistoryIndex, parts: &[Part]) -> bool {
        let mut whole = true;
        for part in parts.iter().filter(|part| !history.is_whole(**part)) {
            whole = false;
            self.missing(format!("{part:?} not observed completely"));
        }
        whole
    }

    /// An offence.
    pub fn violation(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.violations.len() < LISTED_MAX {
            self.violations.push(what());
        }
    }

    /// Something that would have to be known; told once.
    pub fn missing(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.missing.len() < LISTED_MAX && !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }
}
