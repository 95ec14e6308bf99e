//! Reasons of dead letters as words: `550 5.1.1`, `550`, `not_composed`.

use reveille_proto::admin::v1::{DeadLetterReason, DeathReason};

use crate::api_json::word;
use crate::cli::word::name;

/// Returns the reason as words.
pub fn reason_words(reason: &DeadLetterReason) -> String {
    match reason.code {
        0 => word(reason.death_reason().as_str_name()),
        code => format!("{code} {}", reason.enhanced).trim_end().to_owned(),
    }
}

/// Reads what [`reason_words`] returns.
///
/// # Errors
/// If they name no reason.
pub fn reason_of_words(words: &str) -> Result<DeadLetterReason, String> {
    let (first, enhanced) = words.trim().split_once(' ').unwrap_or((words.trim(), ""));
    if let Some(code) = first.parse().ok().filter(|code| *code > 0) {
        return Ok(DeadLetterReason { code, enhanced: enhanced.trim().to_owned(), ..DeadLetterReason::default() });
    }
    match DeathReason::from_str_name(&name("DEATH_REASON_", words.trim())) {
        None | Some(DeathReason::Unspecified) => {
            Err("give a code, such as '550 5.1.1', or a word that --group-by reason shows".to_owned())
        }
        Some(reason) => Ok(DeadLetterReason { death_reason: reason.into(), ..DeadLetterReason::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_read_back_as_its_words() {
        for words in ["550 5.1.1", "421", "not_composed", "no_smtputf8"] {
            assert_eq!(reason_words(&reason_of_words(words).expect("a reason")), words);
        }
        assert_eq!(reason_of_words("NOT-COMPOSED"), reason_of_words("not_composed"));
        for wrong in ["", "0", "unspecified", "no such user", "5.1.1"] {
            assert!(reason_of_words(wrong).is_err(), "{wrong}");
        }
    }
}
