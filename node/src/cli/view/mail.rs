//! Names an email, for the output of `dead-letter …` and `in-doubt …`.

use serde::Serialize;

use super::layout::Cell;

/// One recipient of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MailView {
    pub run: String,
    pub recipient: String,
    pub number: u32,
}

impl MailView {
    /// Returns run and recipient, as commands accept them.
    pub fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    /// Returns the first lines of a card.
    pub fn pairs(&self) -> Vec<(&'static str, Cell)> {
        vec![("run", self.run.as_str().into()), ("recipient", format!("{} #{}", self.recipient, self.number).into())]
    }

    /// Returns the cells under the headings RUN, RECIPIENT and #.
    pub fn cells(&self) -> Vec<Cell> {
        vec![self.run.as_str().into(), self.recipient.as_str().into(), self.number.to_string().into()]
    }
}
