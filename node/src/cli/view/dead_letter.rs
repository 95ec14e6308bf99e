//! Output of `dead-letter list` and `dead-letter export`.

use std::collections::BTreeMap;

use reveille_proto::admin::v1::{DeadLetter, DeadLetterGroup, DeathReason};

use super::{Cell, Tone, View, card, some};
use crate::cli::wording::{self, reason_words};

/// Returns a relay's answer: its code, which is 0 if no relay replied, its enhanced status code, and its text.
pub fn answer(code: u32, enhanced: &str, text: &str) -> String {
    let code = (code > 0).then(|| code.to_string());
    let parts = [code.as_deref(), some(enhanced), some(text)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn answer_of(letter: &DeadLetter) -> String {
    why_dead(letter.death_reason(), &answer(letter.code, &letter.enhanced, &letter.text))
}

/// Returns why a recipient is dead. `answer`: of a relay, or the text that belongs to the reason.
pub fn why_dead(reason: DeathReason, answer: &str) -> String {
    let words = match reason {
        DeathReason::NoSmtputf8 => wording::NO_SMTPUTF8,
        DeathReason::Deadline => wording::DEADLINE,
        DeathReason::CrashedComposing => wording::CRASHED_COMPOSING,
        DeathReason::CrashedOrDeadline => wording::CRASHED_OR_DEADLINE,
        DeathReason::Answer | DeathReason::Broken | DeathReason::NotComposed | DeathReason::Unspecified => answer,
    };
    words.to_owned()
}

impl View for DeadLetter {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "ATTEMPTS", "SINCE", "ANSWER"];

    fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.run.as_str().into(),
            self.recipient.as_str().into(),
            self.number.to_string().into(),
            self.attempts.to_string().into(),
            Cell::at(self.settle_time.as_ref()),
            answer_of(self).into(),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("run", self.run.as_str().into()),
            ("recipient", format!("{} #{}", self.recipient, self.number).into()),
            ("answer", Cell::toned(answer_of(self), Tone::Bad)),
            ("attempts", self.attempts.to_string().into()),
            ("since", Cell::at(self.settle_time.as_ref())),
        ];
        card(pairs, paint)
    }
}

impl View for DeadLetterGroup {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["COUNT", "REASON", "OLDEST", "NEWEST", "EXAMPLE"];

    fn name(&self) -> String {
        self.reason.as_ref().map(reason_words).unwrap_or_default()
    }

    fn cells(&self) -> Vec<Cell> {
        let example = self.example.as_ref().map(|example| format!("{}: {}", example.name(), answer_of(example)));
        vec![
            self.count.to_string().into(),
            Cell::toned(self.name(), Tone::Bad),
            Cell::at(self.oldest_time.as_ref()),
            Cell::at(self.newest_time.as_ref()),
            Cell::or_dash(example.as_deref()),
        ]
    }
}

/// Groups of dead letters, summed over the pages of a count.
#[derive(Default)]
pub struct Groups(BTreeMap<String, DeadLetterGroup>);

impl Groups {
    /// Adds the groups of one page.
    pub fn add(&mut self, groups: Vec<DeadLetterGroup>) {
        let time = |instant: &Option<prost_types::Timestamp>| instant.map(|at| (at.seconds, at.nanos));
        for group in groups {
            match self.0.get_mut(&group.name()) {
                None => drop(self.0.insert(group.name(), group)),
                Some(known) => {
                    known.count += group.count;
                    if time(&group.oldest_time) < time(&known.oldest_time) {
                        known.oldest_time = group.oldest_time;
                    }
                    if time(&group.newest_time) > time(&known.newest_time) {
                        (known.newest_time, known.example) = (group.newest_time, group.example);
                    }
                }
            }
        }
    }

    /// Returns one row per reason, the largest group first.
    pub fn rows(self) -> Vec<DeadLetterGroup> {
        let mut rows: Vec<DeadLetterGroup> = self.0.into_values().collect();
        rows.sort_by_key(|group| std::cmp::Reverse(group.count));
        rows
    }
}
