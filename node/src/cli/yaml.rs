//! Texts in YAML. One that a reader could misread as a number, an instant or a boolean is written in double quotes,
//! which JSON and YAML share.

use serde_json::Value;

use super::escape;

/// Returns a text as a scalar on one line.
pub fn text(string: &str) -> String {
    const MEAN_SOMETHING: [&str; 7] = ["null", "true", "false", "yes", "no", "on", "off"];
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./@".contains(&byte);
    let is_plain = string.starts_with(|first: char| first.is_ascii_alphabetic())
        && string.bytes().all(word)
        && string.len() > 1
        && !MEAN_SOMETHING.contains(&string.to_ascii_lowercase().as_str());
    if is_plain { string.to_owned() } else { escape::json(&Value::from(string).to_string()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cli::manifest::write::of_json as document;

    #[test]
    fn yaml_values_keep_their_place_and_their_type() {
        let value = json!({
            "name": "morning", "empty": [], "none": null, "number": 7, "at": "2026-03-08T07:00:00Z",
            "no": "no", "when": "daily: 09:00", "zone": "Europe/Berlin",
            "next": [{"instant": "1", "remark": ""}, {"instant": "x\ny", "remark": "a b"}],
            "crossed": [["r1.0"], []], "policies": {"catch_up": "one"},
        });
        let lines = [
            "at: \"2026-03-08T07:00:00Z\"",
            "crossed:",
            "  - - r1.0",
            "  - []",
            "empty: []",
            "name: morning",
            "next:",
            "  - instant: \"1\"",
            "    remark: \"\"",
            "  - instant: \"x\\ny\"",
            "    remark: \"a b\"",
            "\"no\": \"no\"",
            "none: null",
            "number: 7",
            "policies:",
            "  catch_up: one",
            "when: \"daily: 09:00\"",
            "zone: Europe/Berlin",
        ];
        assert_eq!(document(&value), lines.join("\n"));
        assert_eq!(document(&json!([])), "[]");
        assert_eq!(document(&json!([{"a": 1}])), "- \"a\": 1");
    }
}
