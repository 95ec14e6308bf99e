//! Rows as lines for other programs: CSV (RFC 4180) and JSON.

use serde::Serialize;
use serde_json::{Map, Value};

use super::escape;

/// Returns records of CSV, each with its line end.
pub fn csv(records: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    for record in records {
        // A relay's reply can contain control characters that repaint a terminal.
        // Cannot fail: it writes to memory, and all records have as many values.
        let _ = writer.write_record(record.iter().map(|value| escape::escaped(value, &[])));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns a row as a line of JSON, without the line's end.
pub fn json<R: Serialize>(row: &R) -> String {
    escape::json(&serde_json::to_string(row).unwrap_or_default())
}

/// Returns the fields of these rows as records: their names, then a record for each row. A list or an object is JSON.
pub fn records<R: Serialize>(rows: &[R]) -> Vec<Vec<String>> {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let values: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    let objects = || values.iter().filter_map(Value::as_object);
    let names: Vec<String> = objects().next().map(|first| first.keys().cloned().collect()).unwrap_or_default();
    let field = |row: &Map<String, Value>, name: &String| row.get(name).map(text).unwrap_or_default();
    let rows: Vec<Vec<String>> = objects().map(|row| names.iter().map(|name| field(row, name)).collect()).collect();
    std::iter::once(names.clone()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_records_with_quotes_and_without_control_characters() {
        let rows = [
            serde_json::json!({ "name": "a,\"b\"", "number": 1, "none": null, "list": [1, 2] }),
            serde_json::json!({ "name": "\u{1b}[2J", "number": 2, "none": null, "list": [] }),
        ];
        let text = csv(records(&rows));
        assert_eq!(text, "list,name,none,number\n\"[1,2]\",\"a,\"\"b\"\"\",,1\n[],\\u{1b}[2J,,2\n");
        assert_eq!(csv(records::<Value>(&[])), "\"\"\n");
        assert_eq!(json(&"a\u{202e}"), "\"a\\u202e\"");
    }
}
