//! Converts enumerations of the API to words for users and scripts: `IN_DOUBT_ASSUME_SENT` is `assume_sent`. A
//! generated name consists of a prefix and the word, so no table is needed.

/// Returns the word of a generated name: `word("CATCH_UP_", CatchUp::One.as_str_name())` is `one`.
pub fn word(prefix: &str, name: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}

/// Returns the generated name of a word, for `from_str_name`.
pub fn name(prefix: &str, word: &str) -> String {
    format!("{prefix}{}", word.replace('-', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_proto::admin::v1::InDoubt;

    #[test]
    fn word_is_read_back_as_what_printed_it() {
        let printed = word("IN_DOUBT_", InDoubt::AssumeSent.as_str_name());
        assert_eq!(printed, "assume_sent");
        assert_eq!(InDoubt::from_str_name(&name("IN_DOUBT_", &printed)), Some(InDoubt::AssumeSent));
        assert_eq!(InDoubt::from_str_name(&name("IN_DOUBT_", "assume-sent")), Some(InDoubt::AssumeSent));
    }
}
