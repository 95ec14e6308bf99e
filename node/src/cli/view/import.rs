//! What `import …` prints: what became of each line.

use serde::Serialize;

use super::instant::InstantView;
use super::sheet::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::import::plan::{Source, cut};

/// Characters of the columns that hold sentences; a terminal may make them narrower.
const SOURCE_CHARACTERS: usize = 36;
const NOTES_CHARACTERS: usize = 48;
/// Lines of a source that a table shows.
const SOURCE_LINES: usize = 3;

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would be created.
    Planned,
    /// It was created, paused.
    Created,
    /// It existed with the same body.
    Unchanged,
    /// It was imported from this line, and edited since: it is left alone.
    Kept,
    /// It cannot be a schedule.
    Refused,
    /// It could be one, and something is missing.
    LeftOut,
    /// The cluster refused it.
    Failed,
    /// The cluster was not asked: an earlier line could not be answered.
    NotAsked,
}

impl Outcome {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Planned => "planned",
            Outcome::Created => "created",
            Outcome::Unchanged => "unchanged",
            Outcome::Kept => "kept",
            Outcome::Refused => "refused",
            Outcome::LeftOut => "left out",
            Outcome::Failed => "failed",
            Outcome::NotAsked => "not asked",
        }
    }

    /// Is there a schedule for the line now, or would there be one?
    pub fn is_well(self) -> bool {
        matches!(self, Outcome::Planned | Outcome::Created | Outcome::Unchanged | Outcome::Kept)
    }

    fn tone(self) -> Tone {
        match self {
            Outcome::Planned | Outcome::Created => Tone::Good,
            Outcome::Unchanged | Outcome::Kept => Tone::Plain,
            Outcome::LeftOut | Outcome::NotAsked => Tone::Notable,
            Outcome::Refused | Outcome::Failed => Tone::Bad,
        }
    }
}

/// A line, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportView {
    /// Its number in the file, from 1.
    pub line: u64,
    /// As it stands there.
    pub source: String,
    /// Whose it is; in the system form only.
    pub user: Option<String>,
    /// The schedule's name; null where the line cannot be read.
    pub schedule: Option<String>,
    /// Five fields or a nickname.
    pub cron: Option<String>,
    /// The zone of its time.
    pub zone: Option<String>,
    /// Its source.
    pub zone_from: Option<Source>,
    /// The next three instants.
    pub next: Vec<InstantView>,
    /// The recipients.
    pub recipients: Vec<String>,
    /// The sender.
    pub sender: Option<String>,
    /// The subject, as it will read.
    pub subject: Option<String>,
    /// What is not as cron would do it.
    pub warnings: Vec<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it is not well, or what was edited.
    pub reason: Option<String>,
}

impl ImportView {
    fn schedule_text(&self) -> String {
        let lines = [&self.schedule, &self.cron, &self.zone];
        let lines = lines.into_iter().flatten().map(String::as_str);
        lines.chain(self.recipients.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
    }

    /// The reason, the warnings, and what clock changes do, each on lines of its own.
    fn notes(&self) -> String {
        let remarks = self.next.iter().filter(|next| !next.remark.is_empty());
        let remarks = remarks.map(|next| format!("{}: {}", next.local, next.remark));
        let notes = self.reason.iter().cloned().chain(self.warnings.iter().cloned()).chain(remarks);
        notes.map(|note| wrapped(&note, NOTES_CHARACTERS)).collect::<Vec<_>>().join("\n")
    }
}

impl View for ImportView {
    fn name(&self) -> String {
        self.schedule.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        card(Self::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for ImportView {
    const NOUN: &'static str = "jobs";
    const COLUMNS: &'static [&'static str] = &["LINE", "SOURCE", "SCHEDULE", "NEXT", "OUTCOME", "NOTES"];

    fn cells(&self) -> Vec<Cell> {
        let next: Vec<&str> = self.next.iter().map(|next| next.local.as_str()).collect();
        let source = self.source.split_whitespace().collect::<Vec<_>>().join(" ");
        let source = cut(&source, SOURCE_CHARACTERS * SOURCE_LINES);
        vec![
            self.line.to_string().into(),
            wrapped(&source, SOURCE_CHARACTERS).into(),
            self.schedule_text().into(),
            next.join("\n").into(),
            Cell::toned(self.outcome.word(), self.outcome.tone()),
            Cell::toned(self.notes(), if self.outcome.is_well() { Tone::Notable } else { self.outcome.tone() }),
        ]
    }
}

/// Broken between words where that is possible, into lines of at most so many characters.
fn wrapped(text: &str, characters: usize) -> String {
    let (mut lines, mut line, mut length) = (Vec::new(), String::new(), 0);
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + word.len() > characters {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        while word.len() > characters {
            lines.push(word.drain(..characters).collect());
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        length += word.len();
        line.extend(word);
    }
    lines.push(line);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("abcdefghij k", 4), "abcd\nefgh\nij k");
        assert_eq!(wrapped("", 4), "");
    }
}
