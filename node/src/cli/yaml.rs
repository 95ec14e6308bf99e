//! Formats `-o yaml`: the same values as `-o json`, in block style.
//!
//! Called by the terminal. A text that a reader could misread as a number, an instant or a boolean is written in double
//! quotes, which JSON and YAML share.

use std::fmt::Write;

use serde_json::Value;

use super::escape;

/// Returns a value as one document, without a final line end.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out.trim_start().to_owned()
}

/// Writes the value after a key or a dash: a scalar or an empty value on the same line, others below.
fn block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| {
            start(out, depth);
            out.push('-');
            nested(out, item, depth + 1);
        }),
        Value::Object(fields) if !fields.is_empty() => fields.iter().for_each(|(key, item)| {
            start(out, depth);
            let _ = write!(out, "{}:", text(key));
            block(out, item, depth + 1);
        }),
        Value::String(string) => out.extend([" ", &text(string)]),
        // Null, booleans, numbers, `[]` and `{}` are written as in JSON.
        plain => {
            let _ = write!(out, " {plain}");
        }
    }
}

/// Writes the value after a dash. Its first line is on the line of the dash.
fn nested(out: &mut String, item: &Value, depth: usize) {
    let mut below = String::new();
    block(&mut below, item, depth);
    out.push(' ');
    out.push_str(below.trim_start());
}

fn start(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

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

    use super::*;

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
