//! JSON objects as rows of CSV (RFC 4180), for exports over HTTP and by the command line.

use serde_json::Value;

use crate::escape;

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

/// Returns the values of an object's fields. A list or an object is JSON.
pub fn record(object: &Value, names: &[String]) -> Vec<String> {
    let text = |name: &String| match object.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    names.iter().map(text).collect()
}
