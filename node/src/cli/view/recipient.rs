//! Output of `recipient …` and of `run recipients`.

use std::collections::BTreeSet;

use reveille_proto::admin::v1::{
    DoubtCause, EraseRecipientResponse, RecipientPlace, RecipientState, RunRecipient, Suppression,
};

use super::dead_letter::{answer, why_dead};
use super::{Cell, View, barrier, doubt, format, word};

impl View for RecipientPlace {
    const NOUN: &'static str = "places";
    const COLUMNS: &'static [&'static str] = &["KIND", "NAME", "SCHEDULE", "NUMBER", "STATE", "AT"];

    fn name(&self) -> String {
        if self.name.is_empty() { kind(self) } else { self.name.clone() }
    }

    fn cells(&self) -> Vec<Cell> {
        let number = self.number.map(|number| format!("#{number}"));
        let known = self.state() != RecipientState::Unspecified;
        let state = known.then(|| word(self.state().as_str_name()));
        vec![
            kind(self).into(),
            Cell::or_dash(self.name.as_str()),
            Cell::or_dash(self.schedule.as_str()),
            Cell::or_dash(number.as_deref()),
            Cell::or_dash(state.as_deref()),
            Cell::at(self.time.as_ref()),
        ]
    }
}

fn kind(place: &RecipientPlace) -> String {
    word(place.kind().as_str_name()).replace('_', "-")
}

/// Returns the answer of a relay, or why the recipient is in doubt or gets no email.
fn why(recipient: &RunRecipient) -> String {
    match (recipient.doubt_cause(), recipient.suppression()) {
        (DoubtCause::Unspecified, Suppression::Unspecified) => {
            why_dead(recipient.death_reason(), &answer(recipient.code, &recipient.enhanced, &recipient.text))
        }
        (DoubtCause::Unspecified, suppression) => word(suppression.as_str_name()).replace('_', " "),
        (cause, _) => doubt::cause(cause).to_owned(),
    }
}

impl View for RunRecipient {
    const NOUN: &'static str = "recipients";
    const COLUMNS: &'static [&'static str] = &["#", "ADDRESS", "STATE", "ATTEMPTS", "AT", "ANSWER"];

    fn name(&self) -> String {
        format!("#{}", self.number)
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.number.to_string().into(),
            Cell::or_dash(self.address.as_str()),
            word(self.state().as_str_name()).into(),
            self.attempts.to_string().into(),
            Cell::at(self.update_time.as_ref()),
            Cell::or_dash(why(self).as_str()),
        ]
    }
}

/// Adds the answer to another part of an erasure.
pub fn add(sum: &mut EraseRecipientResponse, answer: EraseRecipientResponse) {
    sum.lists += answer.lists;
    sum.blocks += answer.blocks;
    sum.index = sum.index.max(answer.index);
    let known: BTreeSet<String> = sum.lost_parts.drain(..).chain(answer.lost_parts).collect();
    sum.lost_parts.extend(known);
    if let Some(barrier) = answer.barrier {
        sum.barrier = Some(barrier);
    }
}

/// Says how many parts of lists a search left out. `None`: it left out none.
pub fn not_searched(lost_parts: usize) -> Option<String> {
    let words = if lost_parts == 1 { "part of lists is" } else { "parts of lists are" };
    let count = format::count(lost_parts as u64);
    (lost_parts > 0).then(|| format!("{count} {words} lost on every node, and not searched: reveille doctor"))
}

/// Returns the result of an erasure in words.
pub fn erased(recipient: &str, sum: &EraseRecipientResponse) -> String {
    let lists = format::counted(u64::from(sum.lists), "list");
    let blocks = format::counted(u64::from(sum.blocks), "block");
    let barrier = barrier::sentence(sum.barrier.as_ref());
    let lost = not_searched(sum.lost_parts.len()).map(|lost| format!("\n{lost}")).unwrap_or_default();
    format!(
        "{recipient} erased from {lists} and {blocks} of the archive: {barrier}\nIts files leave each running node \
         within a minute. Backups from before still have it: docs/how-to/erase-a-person.md{lost}"
    )
}
