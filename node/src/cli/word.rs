//! The words that people and scripts read for the enumerations of the API: `IN_DOUBT_ASSUME_SENT` is
//! `assume_sent`. An enumeration's generated name is its prefix and its word, so no table is kept.

/// The word of a generated name: `word("CATCH_UP_", CatchUp::One.as_str_name())` is `one`.
pub fn word(prefix: &str, name: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}

/// The generated name of a word: what `from_str_name` reads.
pub fn name(prefix: &str, word: &str) -> String {
    format!("{prefix}{}", word.replace('-', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_proto::admin::v1::InDoubt;

    #[test]
    fn a_word_is_read_back_as_what_printed_it() {
        let printed = word("IN_DOUBT_", InDoubt::AssumeSent.as_str_name());
        assert_eq!(printed, "assume_sent");
        assert_eq!(InDoubt::from_str_name(&name("IN_DOUBT_", &printed)), Some(InDoubt::AssumeSent));
        assert_eq!(InDoubt::from_str_name(&name("IN_DOUBT_", "assume-sent")), Some(InDoubt::AssumeSent));
    }
}
