//! Rows as lines for other programs: CSV (RFC 4180) and JSON.

use serde_json::Value;

use super::escape;
use super::view::Json;
pub use crate::csv_rows::csv;
use crate::csv_rows::record;

/// Returns an object as a line of JSON, without the line's end.
pub fn json(object: &Value) -> String {
    escape::json(&object.to_string())
}

/// Returns the fields of these objects as records: their names, then a record for each object.
pub fn records<O: Json>(objects: &[O]) -> Vec<Vec<String>> {
    let objects: Vec<Value> = objects.iter().map(O::json).collect();
    let mut names = O::fields();
    if names.is_empty() {
        names =
            objects.first().and_then(Value::as_object).map(|first| first.keys().cloned().collect()).unwrap_or_default();
    }
    let records: Vec<Vec<String>> = objects.iter().map(|object| record(object, &names)).collect();
    std::iter::once(names).chain(records).collect()
}

#[cfg(test)]
mod tests {
    use super::super::view::Own;
    use super::*;
    use reveille_proto::admin::v1::OptOut;

    #[test]
    fn fields_become_records_with_quotes_and_without_control_characters() {
        let rows = [
            serde_json::json!({ "name": "a,\"b\"", "number": 1, "none": null, "list": [1, 2] }),
            serde_json::json!({ "name": "\u{1b}[2J", "number": 2, "none": null, "list": [] }),
        ];
        let text = csv(records(&rows.map(Own)));
        assert_eq!(text, "list,name,none,number\n\"[1,2]\",\"a,\"\"b\"\"\",,1\n[],\\u{1b}[2J,,2\n");
        assert_eq!(csv(records::<Own>(&[])), "\"\"\n");
        assert_eq!(json(&"a\u{202e}".into()), "\"a\\u202e\"");
    }

    #[test]
    fn message_has_all_its_fields_in_their_order() {
        let opt_outs = [OptOut { recipient: "ann@example.com".to_owned(), index: 7, opt_out_time: None }];
        assert_eq!(csv(records(&opt_outs)), "recipient,index,optOutTime\nann@example.com,7,\n");
        assert_eq!(csv(records::<OptOut>(&[])), "recipient,index,optOutTime\n");
    }
}
