//! `apply` composes no text (P23): each text in the state came in an entry, or is a fixed name.
//!
//! A sentence composed in `apply` makes replicas of two releases differ as soon as one release words it otherwise. The
//! texts are read from `Debug`, which quotes each `String` of each table, so new fields are covered.

use std::collections::BTreeSet;
use std::fmt::Debug;

use reveille_ledger::erased::is_erased_key;
use reveille_ledger::{DEFAULT_TENANT, Ledger};

/// Names that `apply` stores and no entry contains. They are identifiers, not texts for users.
const FIXED: [&str; 3] = [DEFAULT_TENANT, "UTC", ""];

/// All texts in entries so far.
pub struct GivenTexts(BTreeSet<String>);

impl Default for GivenTexts {
    fn default() -> GivenTexts {
        GivenTexts(FIXED.map(String::from).into())
    }
}

impl GivenTexts {
    /// Adds the texts of an entry, or of an initial state.
    pub fn record(&mut self, source: &impl Debug) {
        self.0.extend(quoted(&format!("{source:?}")).map(String::from));
    }

    /// Checks that each text in the state was in an entry.
    ///
    /// # Panics
    /// Panics if one was not.
    pub fn assert_hold(&self, ledger: &Ledger) {
        let closed: Vec<_> = ledger.closed_claims().collect();
        let state = format!("{ledger:?} {closed:?}");
        let is_given = |text: &str| self.0.contains(text) || is_erased_key(text);
        let composed: BTreeSet<_> = quoted(&state).filter(|text| !is_given(text)).collect();
        assert!(composed.is_empty(), "P23: apply stores texts that no entry gave: {composed:?}");
    }
}

/// Returns the texts between quotes, as `Debug` escapes them.
fn quoted(debug: &str) -> impl Iterator<Item = &str> {
    let mut rest = debug;
    std::iter::from_fn(move || {
        let text = &rest[rest.find('"')? + 1..];
        let mut escaped = false;
        let end = text.find(|character| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        })?;
        rest = &text[end + 1..];
        Some(&text[..end])
    })
}
