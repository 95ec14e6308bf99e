//! Labels of a schedule: keys and values by which users group schedules. The ledger's decisions never depend on them.
//!
//! They are validated where a request becomes a command; `apply` checks them again to bound the state. The allowed
//! characters are those of Kubernetes. A key has no prefix, because tenants are already separate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of labels of a schedule.
pub const LABELS_MAX: usize = 16;
/// Longest key or value, in characters.
pub const LABEL_CHARS_MAX: usize = 63;

/// Valid labels: sorted, each key once. A map would take half a KiB of memory for one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl From<BTreeMap<String, String>> for Labels {
    /// Does not check the labels.
    fn from(labels: BTreeMap<String, String>) -> Labels {
        Labels(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

const FORM: &str = "letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit";

/// Why labels are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WrongLabel {
    /// There are more than [`LABELS_MAX`]; their number.
    #[error("{0} labels, at most {max}", max = LABELS_MAX)]
    TooMany(usize),
    /// This key is invalid.
    #[error("{0:?} is not the key of a label; use 1 to {max} {form}", max = LABEL_CHARS_MAX, form = FORM)]
    Key(String),
    /// The value of a key is invalid.
    #[error(
        "{value:?} is not the value of a label; use at most {max} {form}, or nothing",
        max = LABEL_CHARS_MAX,
        form = FORM
    )]
    Value {
        /// Key of the value.
        key: String,
        /// The value as given.
        value: String,
    },
}

/// True if `text` is a valid key of a label.
pub fn is_key(text: &str) -> bool {
    !text.is_empty() && is_value(text)
}

/// True if `text` is a valid value of a label.
pub fn is_value(text: &str) -> bool {
    let at_ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_CHARS_MAX
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && at_ends(bytes.first())
        && at_ends(bytes.last())
}

impl Labels {
    /// Returns valid labels, or the first rule that they break.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Labels, WrongLabel> {
        let labels = Labels::from(labels);
        labels.check().map(|()| labels)
    }

    /// Iterates over keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of a key; `None` if there is no such label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Returns the first rule that they break, if there is one.
    pub fn check(&self) -> Result<(), WrongLabel> {
        if self.0.len() > LABELS_MAX {
            return Err(WrongLabel::TooMany(self.0.len()));
        }
        for (key, value) in self.iter() {
            if !is_key(key) {
                return Err(WrongLabel::Key(key.to_owned()));
            }
            if !is_value(value) {
                return Err(WrongLabel::Value { key: key.to_owned(), value: value.to_owned() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_words_that_begin_and_end_with_a_letter_or_a_digit() {
        let long = "x".repeat(LABEL_CHARS_MAX);
        for good in ["a", "9", "team", "cost-centre", "app.part_2", "A-b", long.as_str()] {
            assert!(is_key(good) && is_value(good), "{good}");
        }
        let longer = "x".repeat(LABEL_CHARS_MAX + 1);
        for bad in ["-a", "a-", ".a", "a b", "a/b", "a=b", "ä", "a\n", "a,b", "!a", longer.as_str()] {
            assert!(!is_key(bad) && !is_value(bad), "{bad}");
        }
        assert!(is_value("") && !is_key(""), "a label may say nothing but its key");
    }

    #[test]
    fn labels_are_limited_to_sixteen() {
        let some = |count: usize| (0..count).map(|number| (format!("k{number}"), String::new())).collect();
        assert!(Labels::new(some(LABELS_MAX)).is_ok());
        assert_eq!(Labels::new(some(LABELS_MAX + 1)), Err(WrongLabel::TooMany(17)));
    }
}
