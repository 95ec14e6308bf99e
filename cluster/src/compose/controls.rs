//! Control characters: which of them a text of an email may contain.
//!
//! `check.rs` calls this, the admin service for the values of recipients, and the command line for the rows of a file.
//! A text may have tabs and line ends, but no other control character. NUL ends the text in some readers, and an escape
//! changes a terminal. U+0080 to U+009F show that the text was decoded with a wrong encoding. They are refused while a
//! user can still fix them. Otherwise each would become a dead letter when the email is due.

/// Returns what is wrong with a text that contains a control character other than a tab or a line end. `None`: nothing.
pub fn control_in(text: &str) -> Option<String> {
    let found = text.chars().find(|one| one.is_control() && !matches!(one, '\t' | '\r' | '\n'))?;
    let next = match found {
        '\u{80}'..='\u{9f}' => "it may have been read in another encoding than it was written in: save it as UTF-8",
        _ => "remove it",
    };
    Some(format!("holds the control character U+{:04X}, which no email carries; {next}", u32::from(found)))
}

/// Returns the number of the line on which [`control_in`] finds a control character, from 1.
pub(super) fn line_of_control(text: &str) -> Option<u32> {
    let line = text.split('\n').position(|line| control_in(line).is_some())?;
    u32::try_from(line + 1).ok()
}

/// Returns what is wrong with a value for a header, which is one line. `None`: nothing.
pub(super) fn not_one_line(value: &str, field: &str) -> Option<String> {
    if value.contains(['\r', '\n']) {
        return Some(format!("holds a line end, and {field} uses it, which is one line; take it out there or here"));
    }
    let bytes = value.len();
    let long = bytes > super::HEADER_BYTES_MAX;
    long.then(|| format!("has {bytes} bytes, and {field} uses it, which may have {}", super::HEADER_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_allows_tabs_and_line_ends_but_no_other_control_character() {
        for text in ["", "a\tb\r\nc\rd\n", "Ä\u{a0}\u{2028}\u{ad}漢"] {
            assert_eq!(control_in(text), None, "{text:?}");
        }
        for character in (0..0xA0).filter_map(char::from_u32).filter(|one| one.is_control()) {
            let held = control_in(&format!("a{character}b")).is_some();
            assert_eq!(held, !"\t\r\n".contains(character), "{character:?}");
        }
        assert_eq!(line_of_control("a\r\nb\0"), Some(2));
    }
}
