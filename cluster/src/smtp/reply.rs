//! One reply of a relay, as `session/lines.rs` reads it and as the rules for replies classify it.

/// One whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Code of three digits, 200 to 599.
    pub code: u16,
    /// Text without the codes. Control characters are replaced, and lines are separated by LF.
    pub text: String,
}

impl Reply {
    /// Returns the first digit, 2 to 5, which decides if the other digits are unknown.
    pub fn class(&self) -> u16 {
        self.code / 100
    }

    /// Returns the code and the beginning of the text, for messages.
    pub fn summary(&self) -> String {
        let text: String = self.text.replace('\n', " ").chars().take(120).collect();
        format!("{} {text}", self.code)
    }
}
