//! Fingerprints: hashes of values that stay the same when a release adds a field (P23).
//!
//! Replicated state contains hashes of request bodies, by which a repeated request is recognised, and of contents and
//! lists. During a rolling upgrade two releases compute them for the same entry and must agree. So the hash is that of
//! JSON with sorted names and without absent fields. A field that a release adds is an `Option`: while it is `None`, it
//! changes no hash. A renamed field or variant keeps its former name with `#[serde(rename)]`; `tests/format.txt`
//! records the fingerprint of each command.

use serde::Serialize;
use serde_json::Value;

use crate::model::Hash;

/// Returns the fingerprint of a value.
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Hash {
    // Plain data with texts and numbers as keys: JSON has nothing to refuse there.
    let value = serde_json::to_value(value).unwrap_or_default();
    let mut canonical = Vec::with_capacity(512);
    write(&value, &mut canonical);
    Hash::of(&canonical)
}

/// Appends the value as compact JSON without absent fields. Names are sorted here, because another crate of the build
/// may have serde_json keep them in the order of their declaration. Elements of lists and tuples are never left out.
fn write(value: &Value, canonical: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            let mut present: Vec<_> = fields.iter().filter(|(_, field)| !field.is_null()).collect();
            present.sort_unstable_by_key(|(name, _)| *name);
            canonical.push(b'{');
            for (number, (name, field)) in present.into_iter().enumerate() {
                canonical.extend_from_slice(if number == 0 { b"" } else { b"," });
                write_leaf(name, canonical);
                canonical.push(b':');
                write(field, canonical);
            }
            canonical.push(b'}');
        }
        Value::Array(elements) => {
            canonical.push(b'[');
            for (number, element) in elements.iter().enumerate() {
                canonical.extend_from_slice(if number == 0 { b"" } else { b"," });
                write(element, canonical);
            }
            canonical.push(b']');
        }
        leaf => write_leaf(leaf, canonical),
    }
}

/// Appends a text, a number, a boolean or null. Writing to memory cannot fail.
fn write_leaf<T: Serialize + ?Sized>(leaf: &T, canonical: &mut Vec<u8>) {
    let _ = serde_json::to_writer(canonical, leaf);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Former {
        name: &'static str,
        count: u32,
        choice: Choice,
    }

    #[derive(Serialize)]
    struct Later {
        first: Option<u8>,
        name: &'static str,
        count: u64,
        choice: Choice,
    }

    #[derive(Serialize)]
    enum Choice {
        A,
        B(u8),
        C { field: u8 },
    }

    #[test]
    fn absent_added_field_changes_no_fingerprint() {
        let former = fingerprint(&Former { name: "a", count: 7, choice: Choice::A });
        let later = |first| fingerprint(&Later { first, name: "a", count: 7, choice: Choice::A });
        assert_eq!(later(None), former);
        assert_ne!(later(Some(0)), former, "an optional zero is a value");
    }

    #[test]
    fn values_that_differ_have_different_fingerprints() {
        let all = [
            fingerprint(&Choice::A),
            fingerprint(&Choice::B(0)),
            fingerprint(&Choice::C { field: 0 }),
            fingerprint(&Choice::C { field: 1 }),
            fingerprint(&["A"]),
            fingerprint(&["A", ""]),
            fingerprint(&("A", None::<u8>)),
            fingerprint(&("A", Some(0))),
            fingerprint(&["", "A"]),
            fingerprint(&[["A"], [""]]),
            fingerprint(&-1),
            fingerprint(&1),
            fingerprint(&0),
            fingerprint(&i64::MIN),
            fingerprint(&u64::MAX),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn integer_width_changes_no_fingerprint() {
        assert_eq!(fingerprint(&300u16), fingerprint(&300i64));
        assert_eq!(fingerprint(&-300i16), fingerprint(&-300i64));
    }
}
