//! Outcomes of recipients, in `run recipients` and in the lists of dead letters and of doubts.

use reveille_proto::admin::v1::{DeathReason, DoubtCause, RunRecipient, Suppression};

use super::{Cell, View, format, word};
use crate::cli::wording;

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

/// Returns why the outcome is unknown, in a few words.
pub fn cause(cause: DoubtCause) -> &'static str {
    match cause {
        DoubtCause::NoAnswer => "no answer after the final dot",
        DoubtCause::OwnerLost => "owner lost",
        DoubtCause::Begun => "handed off, no answer in the journal",
        DoubtCause::NoJournal => "owner came back without its journal",
        DoubtCause::Restored => "restored from a backup",
        DoubtCause::Unspecified => "a cause that this version does not know",
    }
}

/// Returns the answer of a relay, or why the recipient is in doubt or gets no email.
fn why(recipient: &RunRecipient) -> String {
    match (recipient.doubt_cause(), recipient.suppression()) {
        (DoubtCause::Unspecified, Suppression::Unspecified) => {
            why_dead(recipient.death_reason(), &wording::answer(recipient.code, &recipient.enhanced, &recipient.text))
        }
        (DoubtCause::Unspecified, suppression) => word(suppression.as_str_name()).replace('_', " "),
        (cause, _) => self::cause(cause).to_owned(),
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

/// Says how many parts of lists a search left out. `None`: it left out none.
pub fn not_searched(lost_parts: usize) -> Option<String> {
    let words = if lost_parts == 1 { "part of lists is" } else { "parts of lists are" };
    let count = format::count(lost_parts as u64);
    (lost_parts > 0).then(|| format!("{count} {words} lost on every node, and not searched: reveille doctor"))
}
