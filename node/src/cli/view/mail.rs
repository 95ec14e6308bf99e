//! Which email is meant: what `dead-letter …` and `in-doubt …` print first.

use serde::Serialize;

use super::sheet::Cell;

/// One recipient of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MailView {
    pub run: String,
    pub recipient: String,
    pub number: u32,
}

impl MailView {
    /// As commands take it.
    pub fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    /// The first lines of a card.
    pub fn pairs(&self) -> Vec<(&'static str, Cell)> {
        vec![("run", self.run.as_str().into()), ("recipient", format!("{} #{}", self.recipient, self.number).into())]
    }

    /// Under the headings RUN, RECIPIENT and #.
    pub fn cells(&self) -> Vec<Cell> {
        vec![self.run.as_str().into(), self.recipient.as_str().into(), self.number.to_string().into()]
    }
}
