//! Makes foreign text safe for a terminal: names, lines of files, replies of relays.

use std::fmt::Write;

/// True if the character may repaint the terminal, or make a line read differently: control characters, and those that
/// change the direction of writing.
pub fn is_harmful(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text with each harmful character as an escape, such as `\u{202e}` or `\n`. Characters in `but` are kept.
pub fn escaped(text: &str, but: &[char]) -> String {
    let is_escaped = |one: char| is_harmful(one) && !but.contains(&one);
    text.chars().fold(String::with_capacity(text.len()), |mut out, one| {
        match one {
            '\n' | '\r' | '\t' if is_escaped(one) => out.extend(one.escape_default()),
            one if is_escaped(one) => out.extend(one.escape_unicode()),
            one => out.push(one),
        }
        out
    })
}

/// Returns the JSON text with each harmful character as a JSON escape, so that a parser reads the same values. Line
/// ends are kept: they separate lines of output, and values contain them only as escapes.
pub fn json(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, one| {
        if is_harmful(one) && one != '\n' {
            // Harmful characters are all in the basic plane. Cannot fail: it writes to memory.
            let _ = write!(out, "\\u{:04x}", u32::from(one));
        } else {
            out.push(one);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped() {
        for harmful in ["\u{1b}", "\u{7}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{200f}", "\u{2028}"] {
            let code = format!("\\u{{{:x}}}", harmful.chars().next().map_or(0, u32::from));
            assert_eq!(escaped(harmful, &[]), code);
        }
        assert_eq!(escaped("a\nb\tc", &['\n']), "a\nb\\tc");
        assert_eq!(escaped("a\n\tb ümläut שלום", &['\n', '\t']), "a\n\tb ümläut שלום");
    }

    #[test]
    fn json_is_the_same_value_without_them() {
        let value = serde_json::json!({ "name": "a\u{202e}b\u{9b}\u{7f}\n\u{1b}", "שלום": [1] });
        let text = json(&serde_json::to_string_pretty(&value).expect("JSON"));
        assert!(!text.chars().any(|one| is_harmful(one) && one != '\n'), "{text}");
        assert!(text.contains("a\\u202eb\\u009b\\u007f\\n\\u001b"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).ok(), Some(value));
    }
}
