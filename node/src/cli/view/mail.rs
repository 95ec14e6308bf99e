//! Which mail is meant: what `dead-letter …` and `in-doubt …` print first.

use reveille_ledger::address::Address;
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

    /// Is it the one that is named, by an address or by `#` and its number?
    pub fn is_of(&self, named: &str) -> bool {
        let key = |address: &str| Address::parse(address).map(|address| address.key()).ok();
        match named.strip_prefix('#') {
            Some(number) => number.parse() == Ok(self.number),
            None => key(named).is_some_and(|named| key(&self.recipient).as_ref() == Some(&named)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_is_named_by_its_address_however_it_is_written_or_by_its_number() {
        let mail = MailView { run: "r1.0".to_owned(), recipient: "Ann@Example.com".to_owned(), number: 7 };
        assert!(mail.is_of("#7") && mail.is_of("Ann@example.COM"));
        assert!(!mail.is_of("#8") && !mail.is_of("bob@example.com") && !mail.is_of("7"));
    }
}
