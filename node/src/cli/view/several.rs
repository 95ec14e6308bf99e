//! What `schedule pause -l` and `schedule resume -l` print: what became of each schedule.

use serde::Serialize;

use super::sheet::{Cell, Tone, card};
use super::{Row, View};
use crate::format;

/// What became of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It fires no more.
    Paused,
    /// It fires again.
    Resumed,
    /// It would fire no more.
    WouldPause,
    /// It would fire again.
    WouldResume,
    /// The cluster refused it.
    Failed,
    /// The cluster was not asked: an earlier one could not be answered.
    NotAsked,
}

impl Outcome {
    fn cell(self) -> Cell {
        let (word, tone) = match self {
            Outcome::Paused => ("paused", Tone::Notable),
            Outcome::Resumed => ("resumed", Tone::Good),
            Outcome::WouldPause => ("would be paused", Tone::Notable),
            Outcome::WouldResume => ("would be resumed", Tone::Good),
            Outcome::Failed => ("failed", Tone::Bad),
            Outcome::NotAsked => ("not asked", Tone::Notable),
        };
        Cell::toned(word, tone)
    }
}

/// A schedule of several that were paused: it opens and explains nothing, so that is in no column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PausedView(pub SeveralView);

/// One schedule of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeveralView {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Missed instants that open with a resume.
    pub opens_count: u32,
    /// Missed instants that are explained instead.
    pub explained_count: u32,
    /// Why it failed.
    pub reason: Option<String>,
    /// On which a resume is made.
    #[serde(skip)]
    pub etag: String,
}

impl SeveralView {
    /// Of a schedule that missed nothing.
    pub fn new(name: &str, outcome: Outcome) -> SeveralView {
        let (name, etag) = (name.to_owned(), String::new());
        SeveralView { name, outcome, opens_count: 0, explained_count: 0, reason: None, etag }
    }

    /// With what a resume would do.
    pub fn with_plan(self, etag: String, opens_count: u32, explained_count: u32) -> SeveralView {
        SeveralView { etag, opens_count, explained_count, ..self }
    }

    /// For a question.
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
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(vec![("name", self.name.as_str().into()), ("outcome", self.outcome.cell())], paint)
    }
}

impl View for PausedView {
    fn name(&self) -> String {
        self.0.name()
    }

    fn text(&self, paint: bool) -> String {
        self.0.text(paint)
    }
}

impl Row for PausedView {
    const NOUN: &'static str = SeveralView::NOUN;
    const COLUMNS: &'static [&'static str] = &["NAME", "OUTCOME", "REASON"];

    fn cells(&self) -> Vec<Cell> {
        let SeveralView { name, outcome, reason, .. } = &self.0;
        vec![name.as_str().into(), outcome.cell(), Cell::or_dash(reason.as_deref())]
    }
}

impl Row for SeveralView {
    const NOUN: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &["NAME", "OUTCOME", "OPENS", "EXPLAINED", "REASON"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.outcome.cell(),
            Cell::count(self.opens_count.into(), Tone::Plain),
            Cell::count(self.explained_count.into(), Tone::Plain),
            Cell::or_dash(self.reason.as_deref()),
        ]
    }
}
