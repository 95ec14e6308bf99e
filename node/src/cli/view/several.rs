//! Output of `schedule pause -l` and `schedule resume -l`: the outcome of each schedule.

use super::{Cell, Serialize, Tone, View, card, format};

/// Outcome of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkOutcome {
    /// The schedule was paused.
    Paused,
    /// The schedule was resumed.
    Resumed,
    /// The schedule would be paused.
    WouldPause,
    /// The schedule would be resumed.
    WouldResume,
    /// The cluster refused the change.
    Failed,
    /// Not requested, because an earlier schedule got no answer.
    #[default]
    NotAsked,
}

impl BulkOutcome {
    fn cell(self) -> Cell {
        let (word, tone) = match self {
            BulkOutcome::Paused => ("paused", Tone::Notable),
            BulkOutcome::Resumed => ("resumed", Tone::Good),
            BulkOutcome::WouldPause => ("would be paused", Tone::Notable),
            BulkOutcome::WouldResume => ("would be resumed", Tone::Good),
            BulkOutcome::Failed => ("failed", Tone::Bad),
            BulkOutcome::NotAsked => ("not asked", Tone::Notable),
        };
        Cell::toned(word, tone)
    }
}

/// One schedule of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeveralView {
    /// Name of the schedule.
    pub name: String,
    /// Outcome of the schedule.
    pub outcome: BulkOutcome,
    /// Missed instants that open at a resume.
    pub opens_count: u32,
    /// Missed instants that are explained in the history instead.
    pub explained_count: u32,
    /// Why the change failed; null otherwise.
    pub reason: Option<String>,
    /// Etag of the state that was shown, which a resume requires.
    #[serde(skip)]
    pub etag: String,
}

impl SeveralView {
    /// Returns a count of missed instants, which a pause has not.
    fn counted(&self, count: u32) -> Cell {
        match self.outcome {
            BulkOutcome::Resumed | BulkOutcome::WouldResume => Cell::count(count.into(), Tone::Plain),
            _ => Cell::number((count > 0).then_some(count.into())),
        }
    }

    /// Returns the schedule for the confirmation question.
    pub fn in_words(&self) -> String {
        match (self.opens_count, self.explained_count) {
            (0, 0) => self.name.clone(),
            (opens, 0) => format!("{} ({} for what it missed)", self.name, format::counted(opens.into(), "run")),
            (opens, explained) => {
                let opens = format::counted(opens.into(), "run");
                format!("{} ({opens} for what it missed, {explained} explained)", self.name)
            }
        }
    }
}

impl View for SeveralView {
    const NOUN: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &["NAME", "OUTCOME", "OPENS", "EXPLAINED", "REASON"];
    // A pause opens and explains nothing.
    const OPTIONAL: &'static [&'static str] = &["OPENS", "EXPLAINED"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.outcome.cell(),
            self.counted(self.opens_count),
            self.counted(self.explained_count),
            Cell::or_dash(self.reason.as_deref()),
        ]
    }

    fn text(&self, paint: bool) -> String {
        card(vec![("name", self.name.as_str().into()), ("outcome", self.outcome.cell())], paint)
    }
}
