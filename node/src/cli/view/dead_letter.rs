//! Output of `dead-letter list` and `dead-letter export`.

use std::collections::BTreeMap;

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::mail::MailView;
use super::{Row, View};
use crate::cli::commands::export::Record;

view! {
    /// A recipient that was refused permanently.
    pub struct DeadLetterView of v1::DeadLetter as letter {
        #[serde(flatten)]
        mail: MailView = MailView { run: letter.run, recipient: letter.recipient, number: letter.number },
        /// Reply code of the relay; null if no relay replied.
        code: Option<u32>,
        enhanced: Option<String>,
        text: String,
        attempts: u32,
        since: Option<String>,
    }
}

impl DeadLetterView {
    fn answer(&self) -> String {
        let code = self.code.map(|code| format!("{code} ")).unwrap_or_default();
        let enhanced = self.enhanced.as_ref().map(|enhanced| format!("{enhanced} ")).unwrap_or_default();
        format!("{code}{enhanced}{}", self.text)
    }
}

impl View for DeadLetterView {
    fn name(&self) -> String {
        self.mail.name()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = self.mail.pairs();
        pairs.extend([
            ("answer", Cell::toned(self.answer(), Tone::Bad)),
            ("attempts", self.attempts.to_string().into()),
            ("since", Cell::or_dash(self.since.as_deref())),
        ]);
        card(pairs, paint)
    }
}

impl Row for DeadLetterView {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "ATTEMPTS", "SINCE", "ANSWER"];

    fn cells(&self) -> Vec<Cell> {
        let mut cells = self.mail.cells();
        cells.extend([self.attempts.to_string().into(), Cell::or_dash(self.since.as_deref()), self.answer().into()]);
        cells
    }
}

impl Record for DeadLetterView {
    const ONE: &'static str = "dead letter";
    const FIELDS: &'static [&'static str] =
        &["run", "recipient", "number", "code", "enhanced", "text", "attempts", "since"];

    fn values(&self) -> Vec<String> {
        vec![
            self.mail.run.clone(),
            self.mail.recipient.clone(),
            self.mail.number.to_string(),
            self.code.map(|code| code.to_string()).unwrap_or_default(),
            self.enhanced.clone().unwrap_or_default(),
            self.text.clone(),
            self.attempts.to_string(),
            self.since.clone().unwrap_or_default(),
        ]
    }
}

view! {
    /// Dead letters with the same reason.
    pub struct GroupView of v1::DeadLetterGroup as group {
        reason: String,
        count: u64,
        oldest: Option<String>,
        newest: Option<String>,
        /// The newest dead letter of the group; null for a token without the role pii.
        example: Option<DeadLetterView>,
    }
}

impl View for GroupView {
    fn name(&self) -> String {
        self.reason.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(GroupView::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for GroupView {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["COUNT", "REASON", "OLDEST", "NEWEST", "EXAMPLE"];

    fn cells(&self) -> Vec<Cell> {
        let example = self.example.as_ref().map(|example| format!("{}: {}", example.mail.name(), example.text));
        vec![
            self.count.to_string().into(),
            Cell::toned(self.reason.as_str(), Tone::Bad),
            Cell::or_dash(self.oldest.as_deref()),
            Cell::or_dash(self.newest.as_deref()),
            Cell::or_dash(example.as_deref()),
        ]
    }
}

/// Groups of dead letters, summed over the pages of a count.
#[derive(Default)]
pub struct Groups(BTreeMap<String, v1::DeadLetterGroup>);

impl Groups {
    /// Adds the groups of one page.
    pub fn add(&mut self, groups: Vec<v1::DeadLetterGroup>) {
        let time = |instant: &Option<prost_types::Timestamp>| instant.map(|at| (at.seconds, at.nanos));
        for group in groups {
            match self.0.get_mut(&group.reason) {
                None => drop(self.0.insert(group.reason.clone(), group)),
                Some(known) => {
                    known.count += group.count;
                    if time(&group.oldest) < time(&known.oldest) {
                        known.oldest = group.oldest;
                    }
                    if time(&group.newest) > time(&known.newest) {
                        (known.newest, known.example) = (group.newest, group.example);
                    }
                }
            }
        }
    }

    /// Returns one row per reason, the largest group first.
    pub fn rows(self) -> Vec<GroupView> {
        let mut rows: Vec<GroupView> = self.0.into_values().map(GroupView::from).collect();
        rows.sort_by_key(|group| std::cmp::Reverse(group.count));
        rows
    }
}
