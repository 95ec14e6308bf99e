//! Output of `import …`: the outcome of each line.

use reveille_proto::admin::v1::Instant;
use serde::Serialize;

use crate::cli::commands::View;
use crate::cli::import::plan::{Source, cut};
use crate::cli::view::layout::{Cell, Tone};
use crate::cli::view::own_objects;
use crate::cli::wording::instant_remarks;

/// Width of the columns with sentences, in characters. A terminal may make them narrower.
const SOURCE_CHARACTERS: usize = 36;
const NOTES_CHARACTERS: usize = 48;
/// Limit of lines of a source in a table.
const SOURCE_LINES: usize = 3;

/// Outcome of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineOutcome {
    /// The line becomes a paused schedule.
    Planned,
    /// The line cannot become a schedule.
    #[default]
    Refused,
    /// The line could become a schedule, but something is missing.
    LeftOut,
}

impl LineOutcome {
    /// Returns the outcome for the user, and its meaning.
    pub fn word(self) -> (&'static str, Tone) {
        match self {
            LineOutcome::Planned => ("planned", Tone::Good),
            LineOutcome::Refused => ("refused", Tone::Bad),
            LineOutcome::LeftOut => ("left out", Tone::Notable),
        }
    }

    /// True if the line becomes a schedule.
    pub fn is_well(self) -> bool {
        self == LineOutcome::Planned
    }
}

/// A line of the crontab and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LineView {
    /// Line number in the file, from 1.
    pub line: u64,
    /// The line's text.
    pub source: String,
    /// The user that runs the command; null in the user form.
    pub user: Option<String>,
    /// Name of the schedule; null if the line cannot be read.
    pub schedule: Option<String>,
    /// Five fields or a nickname.
    pub cron: Option<String>,
    /// Time zone of the schedule.
    pub zone: Option<String>,
    /// Source of the time zone.
    pub zone_from: Option<Source>,
    /// The next three instants.
    #[serde(serialize_with = "crate::api_json::serialize_all")]
    pub next: Vec<Instant>,
    /// Recipients of the schedule.
    pub recipients: Vec<String>,
    /// Sender; null if unknown.
    pub sender: Option<String>,
    /// Subject as the recipient will see it.
    pub subject: Option<String>,
    /// Differences from cron's behaviour.
    pub warnings: Vec<String>,
    /// Outcome of the line.
    pub outcome: LineOutcome,
    /// Why the line has no schedule.
    pub reason: Option<String>,
}

impl LineView {
    fn schedule_text(&self) -> String {
        let lines = [&self.schedule, &self.cron, &self.zone];
        let lines = lines.into_iter().flatten().map(String::as_str);
        lines.chain(self.recipients.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
    }

    /// Returns the reason, the warnings and the effects of clock changes, each on its own lines.
    fn notes(&self) -> String {
        let remarks = self.next.iter().filter(|next| !next.remarks.is_empty());
        let remarks = remarks.map(|next| format!("{}: {}", next.local, instant_remarks(next)));
        let notes = self.reason.iter().cloned().chain(self.warnings.iter().cloned()).chain(remarks);
        notes.map(|note| wrapped(&note, NOTES_CHARACTERS)).collect::<Vec<_>>().join("\n")
    }
}

own_objects!(LineView);

impl View for LineView {
    const NAME: &'static str = "schedule";
    const NOUN: &'static str = "jobs";
    const COLUMNS: &'static [&'static str] = &["LINE", "SOURCE", "SCHEDULE", "NEXT", "OUTCOME", "NOTES"];

    fn cells(&self) -> Vec<Cell> {
        let next: Vec<&str> = self.next.iter().map(|next| next.local.as_str()).collect();
        let source = self.source.split_whitespace().collect::<Vec<_>>().join(" ");
        let source = cut(&source, SOURCE_CHARACTERS * SOURCE_LINES);
        let (word, tone) = self.outcome.word();
        vec![
            self.line.to_string().into(),
            wrapped(&source, SOURCE_CHARACTERS).into(),
            self.schedule_text().into(),
            next.join("\n").into(),
            Cell::toned(word, tone),
            Cell::toned(self.notes(), if self.outcome.is_well() { Tone::Notable } else { tone }),
        ]
    }
}

/// Wraps the text to lines of at most `characters` characters, between words if possible.
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
