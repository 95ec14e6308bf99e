//! Output of `apply` and `diff`: the outcome of each document.

use super::{Cell, Serialize, Tone, View, card};
use crate::cli::manifest::difference::Change;
use crate::cli::manifest::document::Document;

/// Limit of keys that a table names; the rest is only counted.
const FIELDS_SHOWN: usize = 4;

/// Outcome of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyOutcome {
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// The object is already as the document says.
    Unchanged,
    /// The object would be created.
    WouldCreate,
    /// The object would be updated.
    WouldUpdate,
    /// The cluster refused the document.
    Failed,
    /// Not requested, because an earlier document got no answer.
    #[default]
    NotAsked,
}

impl ApplyOutcome {
    /// Returns the outcome for the user, and its meaning.
    pub fn word(self) -> (&'static str, Tone) {
        match self {
            ApplyOutcome::Created => ("created", Tone::Good),
            ApplyOutcome::Updated => ("updated", Tone::Good),
            ApplyOutcome::Unchanged => ("unchanged", Tone::Plain),
            ApplyOutcome::WouldCreate => ("would be created", Tone::Good),
            ApplyOutcome::WouldUpdate => ("would be updated", Tone::Good),
            ApplyOutcome::Failed => ("failed", Tone::Bad),
            ApplyOutcome::NotAsked => ("not asked", Tone::Notable),
        }
    }

    /// True if the object is as the document says, or would be.
    pub fn is_well(self) -> bool {
        !matches!(self, ApplyOutcome::Failed | ApplyOutcome::NotAsked)
    }
}

/// A document and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AppliedView {
    /// Kind of the object, such as `schedule` or `relay`.
    pub kind: &'static str,
    /// Null for objects without a tenant.
    pub tenant: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Outcome of the document.
    pub outcome: ApplyOutcome,
    /// Changes by key; empty for a new object.
    pub changes: Vec<Change>,
    /// Further remarks for the user.
    pub notes: Vec<String>,
    /// Why the document failed; null otherwise.
    pub reason: Option<String>,
    /// Place of the document: `file:line`.
    pub place: String,
}

impl AppliedView {
    /// Returns the view of a document that was not requested yet.
    pub fn of(document: &Document) -> AppliedView {
        let (kind, tenant, place) = (document.kind.word(), document.tenant.clone(), document.place.clone());
        AppliedView { kind, tenant, name: document.name.clone(), place, ..AppliedView::default() }
    }

    /// Returns the lines that `diff` prints. Empty without a difference.
    pub fn difference(&self, whole: &str) -> Vec<String> {
        let mut lines = vec![format!("{} ({}): {}", self.name(), self.place, self.outcome.word().0)];
        match self.outcome {
            ApplyOutcome::Unchanged | ApplyOutcome::NotAsked => return Vec::new(),
            ApplyOutcome::Created | ApplyOutcome::WouldCreate => {
                lines.extend(whole.lines().map(|line| format!("  + {line}")))
            }
            _ => lines.extend(self.changes.iter().flat_map(Change::lines).map(|line| format!("  {line}"))),
        }
        lines.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        lines.extend(self.reason.iter().map(|reason| format!("  {reason}")));
        lines
    }

    fn result_text(&self) -> String {
        let names = self.changes.iter().take(FIELDS_SHOWN).map(|change| change.field.as_str());
        let mut fields = names.collect::<Vec<_>>().join(", ");
        if let Some(more) = self.changes.len().checked_sub(FIELDS_SHOWN).filter(|more| *more > 0) {
            fields.push_str(&format!(" and {more} more"));
        }
        // The reason of a failure is printed on stderr.
        let lines = [fields].into_iter().chain(self.notes.iter().cloned());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

impl View for AppliedView {
    const NOUN: &'static str = "documents";
    const COLUMNS: &'static [&'static str] = &["OBJECT", "OUTCOME", "CHANGES"];

    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    fn cells(&self) -> Vec<Cell> {
        let (word, tone) = self.outcome.word();
        let changes = Cell::toned(self.result_text(), if self.outcome.is_well() { Tone::Plain } else { tone });
        vec![self.name().into(), Cell::toned(word, tone), changes]
    }

    fn text(&self, paint: bool) -> String {
        card(Self::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}
