//! What `dead-letter list` prints.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::mail::MailView;
use super::sheet::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::instant::text;

/// A recipient that was refused for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterView {
    #[serde(flatten)]
    mail: MailView,
    /// Null where no relay was asked.
    code: Option<u32>,
    enhanced: Option<String>,
    text: String,
    attempts: u32,
    since: Option<String>,
}

impl From<v1::DeadLetter> for DeadLetterView {
    fn from(letter: v1::DeadLetter) -> DeadLetterView {
        DeadLetterView {
            since: text(letter.since.as_ref()),
            mail: MailView { run: letter.run, recipient: letter.recipient, number: letter.number },
            code: (letter.code > 0).then_some(letter.code),
            enhanced: some(letter.enhanced),
            text: letter.text,
            attempts: letter.attempts,
        }
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
