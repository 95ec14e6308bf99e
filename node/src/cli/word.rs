//! Converts words of the command line to values of the API's enumerations: `assume-sent` is `IN_DOUBT_ASSUME_SENT`. The
//! way back is [`crate::api_json::word`].

/// Returns the generated name of a word, for `from_str_name`.
pub fn name(prefix: &str, word: &str) -> String {
    format!("{prefix}{}", word.replace('-', "_").to_uppercase())
}

/// Returns the API's values of words that the parser of the command line has checked.
pub fn values<E: Default + Into<i32>>(
    prefix: &str,
    words: &[String],
    from_str_name: fn(&str) -> Option<E>,
) -> Vec<i32> {
    words.iter().map(|word| from_str_name(&name(prefix, word)).unwrap_or_default().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_json::word;
    use reveille_proto::admin::v1::InDoubt;

    #[test]
    fn word_is_read_back_as_what_printed_it() {
        let printed = word(InDoubt::AssumeSent.as_str_name());
        for given in [printed.as_str(), "assume-sent"] {
            assert_eq!(InDoubt::from_str_name(&name("IN_DOUBT_", given)), Some(InDoubt::AssumeSent));
        }
    }
}
