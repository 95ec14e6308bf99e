//! What an invariant comes to, and how a judge comes to it.

use serde::Serialize;

use crate::book::Book;
use crate::history::Part;

/// So many offences are printed; all are counted.
const TOLD: usize = 10;

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
        offences: Vec<String>,
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
            Verdict::False { count, offences } => {
                let more = count - offences.len() as u64;
                offences.iter().cloned().chain((more > 0).then(|| format!("and {more} more"))).collect()
            }
            Verdict::Unknown { missing } => missing.iter().map(|gap| format!("unknown: {gap}")).collect(),
        }
    }
}

/// An inquiry into one invariant: offences and gaps as they are found.
///
/// An offence that rests on the *absence* of something may be raised only where its part is whole:
/// [`Inquiry::needs`] answers that.
#[derive(Debug, Default)]
pub struct Inquiry {
    count: u64,
    offences: Vec<String>,
    missing: Vec<String>,
}

impl Inquiry {
    /// The verdict that this judge comes to.
    pub fn hold(book: &Book, judge: fn(&Book, &mut Inquiry)) -> Verdict {
        let mut inquiry = Inquiry::default();
        judge(book, &mut inquiry);
        match inquiry {
            Inquiry { count: count @ 1.., offences, .. } => Verdict::False { count, offences },
            Inquiry { missing, .. } if !missing.is_empty() => Verdict::Unknown { missing },
            Inquiry { .. } => Verdict::True,
        }
    }

    /// Notes which of these parts are not whole; true where all are.
    pub fn needs(&mut self, book: &Book, parts: &[Part]) -> bool {
        let mut whole = true;
        for part in parts.iter().filter(|part| !book.is_whole(**part)) {
            whole = false;
            self.lacks(format!("{part:?} not observed completely"));
        }
        whole
    }

    /// An offence.
    pub fn offends(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.offences.len() < TOLD {
            self.offences.push(what());
        }
    }

    /// Something that would have to be known; told once.
    pub fn lacks(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.missing.len() < TOLD && !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }
}
