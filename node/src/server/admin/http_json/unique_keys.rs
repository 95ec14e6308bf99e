//! Reads JSON whose objects have each key once. `serde_json` keeps the last value of a repeated key, so a client would not
//! learn that the others had no effect.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a value.
///
/// # Errors
/// If the text is not JSON, or names a key of an object twice. The latter is an error of data.
pub fn from_slice(text: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = reader.deserialize_any(UniqueKeys)?;
    reader.end()?;
    Ok(value)
}

struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(UniqueKeys)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("has the key {key:?} twice")));
            }
            let value = entries.next_value_seed(UniqueKeys)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_that_of_serde_json() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "x", {}], "b": {"a": {"a": []}}}"#;
        assert_eq!(from_slice(text.as_bytes()).expect("JSON"), serde_json::from_str::<Value>(text).expect("JSON"));
        for wrong in ["", "{", "{} {}", "[1,]", "\"a"] {
            let error = from_slice(wrong.as_bytes()).expect_err(wrong);
            assert!(!error.is_data(), "{wrong}: {error}");
        }
    }

    #[test]
    fn repeated_key_is_refused_at_any_depth() {
        for text in
            [r#"{"name": 1, "name": 1}"#, r#"[{"a": {"name": 1, "b": 2, "name": 3}}]"#, r#"{"name":1,"n\u0061me":2}"#]
        {
            let error = from_slice(text.as_bytes()).expect_err(text);
            assert!(
                error.is_data() && error.to_string().starts_with("has the key \"name\" twice at line 1"),
                "{error}"
            );
        }
    }
}
