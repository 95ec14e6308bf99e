//! Enhanced status code of a relay's reply (RFC 3463).

use serde::{Deserialize, Serialize};

/// An enhanced status code, like 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{class}.{subject}.{detail}")]
pub struct EnhancedCode {
    /// 2: success, 4: transient failure, 5: permanent failure.
    pub class: u8,
    /// What the reply concerns. 1: the address, 2: the mailbox.
    pub subject: u16,
    /// The condition.
    pub detail: u16,
}

impl EnhancedCode {
    /// Reads a word like `5.1.1`: one digit, then two numbers of one to three digits.
    pub fn parse(word: &str) -> Option<EnhancedCode> {
        let mut numbers = word.splitn(3, '.');
        let class = digits(numbers.next()?, 1)?;
        let subject = digits(numbers.next()?, 3)?;
        let detail = digits(numbers.next()?, 3)?;
        Some(EnhancedCode { class: u8::try_from(class).ok()?, subject, detail })
    }

    /// True if it concerns the address or the mailbox.
    pub(crate) fn names_mailbox(self) -> bool {
        matches!(self.subject, 1 | 2)
    }
}

fn digits(text: &str, most: usize) -> Option<u16> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}
