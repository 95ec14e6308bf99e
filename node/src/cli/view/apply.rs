//! What `apply` and `diff` print: what became of each document.

use serde::Serialize;

use super::sheet::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::manifest::difference::Change;

/// Keys that a table names; the others are counted.
const FIELDS_SHOWN: usize = 4;

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// There was nothing of that name.
    Created,
    /// It was another one.
    Updated,
    /// It is like that already.
    Unchanged,
    /// It would be created.
    WouldCreate,
    /// It would be updated.
    WouldUpdate,
    /// The cluster refused it.
    Failed,
    /// The cluster was not asked: an earlier document could not be answered.
    NotAsked,
}

impl Outcome {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Updated => "updated",
            Outcome::Unchanged => "unchanged",
            Outcome::WouldCreate => "would be created",
            Outcome::WouldUpdate => "would be updated",
            Outcome::Failed => "failed",
            Outcome::NotAsked => "not asked",
        }
    }

    /// Is it as the document says, or would it be?
    pub fn is_well(self) -> bool {
        !matches!(self, Outcome::Failed | Outcome::NotAsked)
    }

    fn tone(self) -> Tone {
        match self {
            Outcome::Created | Outcome::Updated | Outcome::WouldCreate | Outcome::WouldUpdate => Tone::Good,
            Outcome::Unchanged => Tone::Plain,
            Outcome::NotAsked => Tone::Notable,
            Outcome::Failed => Tone::Bad,
        }
    }
}

/// A document, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AppliedView {
    /// `schedule` or `relay`.
    pub kind: &'static str,
    /// Null for what belongs to no tenant.
    pub tenant: Option<String>,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Key by key; nothing where it is new.
    pub changes: Vec<Change>,
    /// What else there is to know.
    pub notes: Vec<String>,
    /// Why, when it failed.
    pub reason: Option<String>,
    /// `file:line`.
    pub place: String,
}

impl AppliedView {
    /// What `diff` says of it: nothing where there is no difference.
    pub fn difference(&self, whole: &str) -> Vec<String> {
        let mut lines = vec![format!("{} ({}): {}", self.name(), self.place, self.outcome.word())];
        match self.outcome {
            Outcome::Unchanged | Outcome::NotAsked => return Vec::new(),
            Outcome::Created | Outcome::WouldCreate => lines.extend(whole.lines().map(|line| format!("  + {line}"))),
            _ => lines.extend(self.changes.iter().flat_map(Change::lines).map(|line| format!("  {line}"))),
        }
        lines.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        lines.extend(self.reason.iter().map(|reason| format!("  {reason}")));
        lines
    }

    fn told(&self) -> String {
        let names = self.changes.iter().take(FIELDS_SHOWN).map(|change| change.field.as_str());
        let mut fields = names.collect::<Vec<_>>().join(", ");
        if let Some(more) = self.changes.len().checked_sub(FIELDS_SHOWN).filter(|more| *more > 0) {
            fields.push_str(&format!(" and {more} more"));
        }
        // Why it failed is said on stderr.
        let lines = [fields].into_iter().chain(self.notes.iter().cloned());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

impl View for AppliedView {
    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    fn text(&self, paint: bool) -> String {
        card(Self::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for AppliedView {
    const NOUN: &'static str = "documents";
    const COLUMNS: &'static [&'static str] = &["OBJECT", "OUTCOME", "CHANGES"];

    fn cells(&self) -> Vec<Cell> {
        let told = self.told();
        vec![
            self.name().into(),
            Cell::toned(self.outcome.word(), self.outcome.tone()),
            Cell::toned(told, if self.outcome.is_well() { Tone::Plain } else { self.outcome.tone() }),
        ]
    }
}
