//! Forms of stored values: each value begins with the version of its form (P23).
//!
//! postcard has neither field names nor optional fields at the end: a struct with one more field cannot read older
//! bytes. So each stored row, log entry and content begins with a byte that names its form. In this release all are in
//! form [`FORM`].
//!
//! A release that changes a stored row keeps the former struct as a type with a conversion, and implements [`RowForm`]
//! by hand. It reads both forms, and writes the former one until the ledger's level is raised. A changed command is a
//! new variant of `Command` with its level. `next_level` does both for a level that exists only in tests.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A log entry or a stored row that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not readable by this build: {0}")]
pub struct Unreadable(pub String);

/// The only form so far.
pub const FORM: u8 = 1;

/// A value that is stored as a row.
pub trait RowForm: Serialize + DeserializeOwned {
    /// Rows of a table's leaf on average: a power of two. Tables of large rows have fewer, since a change of one row
    /// encodes its whole leaf again. It is part of the state hash, so only a new level may change it (P23).
    const LEAF_ROWS: u32 = 256;

    /// Encodes the row in the form of this ledger level.
    fn to_row(&self, _level: u32) -> Vec<u8> {
        encode(self)
    }

    /// Length of [`RowForm::to_row`] in bytes. The default does not encode the row.
    fn row_len(&self, _level: u32) -> usize {
        encoded_len(self)
    }

    /// Decodes a row that was written at any level.
    ///
    /// # Errors
    /// As [`decode`].
    fn from_row(bytes: &[u8]) -> Result<Self, Unreadable> {
        decode(bytes)
    }
}

/// Encodes a value, with the version of its form.
pub fn encode<V: Serialize + ?Sized>(value: &V) -> Vec<u8> {
    encode_as(FORM, value)
}

/// Length of [`encode`] in bytes. Does not encode the value.
pub fn encoded_len<V: Serialize + ?Sized>(value: &V) -> usize {
    // Postcard cannot fail here: the data is plain and in memory.
    1 + postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default()).unwrap_or_default()
}

pub(crate) fn encode_as<V: Serialize + ?Sized>(form: u8, value: &V) -> Vec<u8> {
    // Postcard cannot fail here: the data is plain and in memory.
    postcard::to_extend(value, vec![form]).unwrap_or_default()
}

/// Decodes bytes of [`encode`].
///
/// # Errors
/// Fails if the form or an ordinal is unknown, or bytes are missing or left over.
pub fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, Unreadable> {
    decode_as(FORM, bytes)
}

pub(crate) fn decode_as<V: DeserializeOwned>(expected: u8, bytes: &[u8]) -> Result<V, Unreadable> {
    match bytes.split_first() {
        Some((form, value)) if *form == expected => match postcard::take_from_bytes(value) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(Unreadable(format!("{} bytes are left over", rest.len()))),
            Err(error) => Err(Unreadable(error.to_string())),
        },
        Some((form, _)) => Err(Unreadable(format!("it is in form {form}, and this build reads form {expected}"))),
        None => Err(Unreadable("it is empty".to_owned())),
    }
}
