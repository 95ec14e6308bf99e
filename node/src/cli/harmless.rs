//! Texts of strangers on their way to a terminal: names, lines of files, answers of relays.

/// Could it repaint the terminal, or make a line read otherwise than it is? Control characters, and those that
/// turn the direction of writing.
pub fn is_harmful(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The same text, with a sign in the place of each character that could do harm, but for those that may stay.
pub fn masked(text: &str, but: &[char]) -> String {
    text.chars().map(|one| if is_harmful(one) && !but.contains(&one) { '\u{FFFD}' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repaints_or_turns_a_line_is_masked() {
        for harmful in ["\u{1b}", "\u{7}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{200f}", "\u{2028}", "\n"] {
            assert_eq!(masked(harmful, &[]), "\u{FFFD}", "{harmful:?}");
        }
        assert_eq!(masked("a\n\tb ümläut שלום", &['\n', '\t']), "a\n\tb ümläut שלום");
    }
}
