//! Fingerprints: hashes of values that stay the same when a release adds a field (P23).
//!
//! Replicated state contains hashes of request bodies, by which a repeated request is recognised, and of contents and
//! lists. During a rolling upgrade two releases compute them for the same entry and must agree. So the hash is that of
//! a canonical form, with two rules as in Protocol Buffers. A field is identified by its name. A field with its empty
//! value (`None`, zero, `false`, no elements, no text, or a struct of such fields) is left out. So a new field with an
//! empty default changes no hash. A renamed field or variant keeps its former name with `#[serde(rename)]`;
//! `tests/format.txt` records the fingerprint of each command.
//!
//! Integers have no width, so a wider type has the same hash. Elements of lists and tuples are never left out. Each
//! value begins with a tag and strings with their length, so different forms are different bytes.

use std::fmt::Display;

use serde::ser::{self, Serialize};

use crate::model::Hash;

const NONE: u8 = 0;
const SOME: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const POSITIVE: u8 = 4;
const NEGATIVE: u8 = 5;
const FLOAT: u8 = 6;
const TEXT: u8 = 7;
const BYTES: u8 = 8;
const LIST: u8 = 9;
const MAP: u8 = 10;
const STRUCT: u8 = 11;
const VARIANT: u8 = 12;
const END: u8 = 13;

/// Returns the fingerprint of a value.
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Hash {
    let mut form = Form(Vec::new());
    // This cannot fail: no `Serialize` of the crate fails, and `Form` accepts everything.
    let _ = value.serialize(&mut form);
    Hash::of(&form.0)
}

/// The canonical form under construction. Serializing a value returns whether the value is empty.
struct Form(Vec<u8>);

/// The error type that serde requires; it never occurs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Never(String);

impl ser::Error for Never {
    fn custom<T: Display>(text: T) -> Never {
        Never(text.to_string())
    }
}

type IsEmpty = Result<bool, Never>;

impl Form {
    fn put(&mut self, tag: u8, is_empty: bool) -> IsEmpty {
        self.0.push(tag);
        Ok(is_empty)
    }

    /// Appends a number in LEB128.
    fn put_number(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn put_integer(&mut self, value: i128) -> IsEmpty {
        let is_negative = value < 0;
        self.0.push(if is_negative { NEGATIVE } else { POSITIVE });
        self.put_number(if is_negative { !value } else { value } as u128);
        Ok(value == 0)
    }

    fn put_bytes(&mut self, tag: u8, bytes: &[u8]) -> IsEmpty {
        self.0.push(tag);
        self.put_number(bytes.len() as u128);
        self.0.extend_from_slice(bytes);
        Ok(bytes.is_empty())
    }

    fn put_variant(&mut self, name: &str) {
        let _ = self.put_bytes(VARIANT, name.as_bytes());
    }

    fn group(&mut self, tag: u8) -> Group<'_> {
        self.0.push(tag);
        Group { form: self, is_empty: true, of_variant: false }
    }

    fn group_of_variant(&mut self, name: &str, tag: u8) -> Group<'_> {
        self.put_variant(name);
        Group { of_variant: true, ..self.group(tag) }
    }
}

/// Elements or fields between a tag and [`END`].
struct Group<'a> {
    form: &'a mut Form,
    is_empty: bool,
    /// True if the group is the content of a variant. A variant is a value even without a field.
    of_variant: bool,
}

impl Group<'_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        self.is_empty = false;
        value.serialize(&mut *self.form).map(drop)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Never> {
        let before = self.form.0.len();
        self.form.put_bytes(TEXT, name.as_bytes())?;
        if value.serialize(&mut *self.form)? {
            self.form.0.truncate(before);
        } else {
            self.is_empty = false;
        }
        Ok(())
    }

    fn close(self) -> IsEmpty {
        if self.of_variant {
            self.form.0.push(END);
        }
        self.form.put(END, self.is_empty && !self.of_variant)
    }
}

macro_rules! integers {
    ($($method:ident: $integer:ty),* $(,)?) => {$(
        fn $method(self, value: $integer) -> IsEmpty {
            self.put_integer(value.into())
        }
    )*};
}

impl<'a> ser::Serializer for &'a mut Form {
    type Ok = bool;
    type Error = Never;
    type SerializeSeq = Group<'a>;
    type SerializeTuple = Group<'a>;
    type SerializeTupleStruct = Group<'a>;
    type SerializeTupleVariant = Group<'a>;
    type SerializeMap = Group<'a>;
    type SerializeStruct = Group<'a>;
    type SerializeStructVariant = Group<'a>;

    fn serialize_bool(self, value: bool) -> IsEmpty {
        self.put(if value { TRUE } else { FALSE }, !value)
    }

    integers! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
    }

    fn serialize_f32(self, value: f32) -> IsEmpty {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> IsEmpty {
        self.0.push(FLOAT);
        self.0.extend_from_slice(&value.to_be_bytes());
        Ok(value.to_bits() == 0)
    }

    fn serialize_char(self, value: char) -> IsEmpty {
        self.put_bytes(TEXT, value.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn serialize_str(self, value: &str) -> IsEmpty {
        self.put_bytes(TEXT, value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> IsEmpty {
        self.put_bytes(BYTES, value)
    }

    fn serialize_none(self) -> IsEmpty {
        self.put(NONE, true)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> IsEmpty {
        self.0.push(SOME);
        value.serialize(self).map(|_| false)
    }

    fn serialize_unit(self) -> IsEmpty {
        self.put(NONE, true)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> IsEmpty {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _ordinal: u32, variant: &'static str) -> IsEmpty {
        self.put_variant(variant);
        self.put(END, false)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> IsEmpty {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _ordinal: u32,
        variant: &'static str,
        value: &T,
    ) -> IsEmpty {
        self.put_variant(variant);
        value.serialize(&mut *self)?;
        self.put(END, false)
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Group<'a>, Never> {
        Ok(self.group(LIST))
    }

    fn serialize_tuple(self, _length: usize) -> Result<Group<'a>, Never> {
        Ok(self.group(LIST))
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Group<'a>, Never> {
        Ok(self.group(LIST))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _ordinal: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Group<'a>, Never> {
        Ok(self.group_of_variant(variant, LIST))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Group<'a>, Never> {
        Ok(self.group(MAP))
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Group<'a>, Never> {
        Ok(self.group(STRUCT))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _ordinal: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Group<'a>, Never> {
        Ok(self.group_of_variant(variant, STRUCT))
    }
}

/// Implements serde's trait for each kind of group: elements in order, or fields by name.
macro_rules! groups {
    ($($kind:ident { $($method:ident($($name:ident: &'static str)?) => $put:ident),+ })*) => {$(
        impl ser::$kind for Group<'_> {
            type Ok = bool;
            type Error = Never;

            $(fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), Never> {
                self.$put($($name,)? value)
            })+

            fn end(self) -> IsEmpty {
                self.close()
            }
        }
    )*};
}

groups! {
    SerializeSeq { serialize_element() => element }
    SerializeTuple { serialize_element() => element }
    SerializeTupleStruct { serialize_field() => element }
    SerializeTupleVariant { serialize_field() => element }
    SerializeMap { serialize_key() => element, serialize_value() => element }
    SerializeStruct { serialize_field(name: &'static str) => field }
    SerializeStructVariant { serialize_field(name: &'static str) => field }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Former {
        name: &'static str,
        count: u32,
        choice: Choice,
    }

    #[derive(Default, Serialize)]
    struct Inner {
        flag: bool,
        list: Vec<u8>,
    }

    #[derive(Serialize)]
    struct Later {
        first: Option<u8>,
        name: &'static str,
        inner: Inner,
        count: u64,
        choice: Choice,
    }

    #[derive(Serialize)]
    enum Choice {
        A,
        B(u8),
        C { field: u8 },
    }

    fn later(first: Option<u8>, inner: Inner) -> Hash {
        fingerprint(&Later { first, name: "a", inner, count: 7, choice: Choice::A })
    }

    #[test]
    fn empty_added_field_changes_no_fingerprint() {
        let former = fingerprint(&Former { name: "a", count: 7, choice: Choice::A });
        assert_eq!(later(None, Inner::default()), former);
        assert_ne!(later(Some(0), Inner::default()), former, "an optional zero is a value");
        assert_ne!(later(None, Inner { flag: true, list: Vec::new() }), former);
        assert_ne!(later(None, Inner { flag: false, list: vec![0] }), former, "an element is never left out");
    }

    #[test]
    fn values_that_differ_have_different_fingerprints() {
        let all = [
            fingerprint(&Choice::A),
            fingerprint(&Choice::B(0)),
            fingerprint(&Choice::C { field: 0 }),
            fingerprint(&Choice::C { field: 1 }),
            fingerprint("A"),
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
