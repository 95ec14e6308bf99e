//! Stored values begin with the version of their form (P23).
//!
//! postcard has neither field names nor an optional tail: a struct with one more field cannot read what was written
//! before. So each stored row, each log entry and each kept content begins with a byte that names its form. All are in
//! form [`FORM`] in this release.
//!
//! A release that changes a stored row keeps the former struct as a type of its own with a conversion, and implements
//! [`RowForm`] by hand: it reads both forms, and writes the former one until the ledger's level is raised. A changed
//! command is a new variant of `Command` with its level. `next_level` does both for a level that only tests have.

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
    /// The row's bytes in a ledger of this level.
    fn to_row(&self, _level: u32) -> Vec<u8> {
        encode(self)
    }

    /// How many bytes [`RowForm::to_row`] gives; by default without making them.
    fn row_len(&self, _level: u32) -> usize {
        // Plain data in memory: postcard has nothing to refuse there.
        1 + postcard::serialize_with_flavor(self, postcard::ser_flavors::Size::default()).unwrap_or_default()
    }

    /// Reads a row that was written at any level.
    ///
    /// # Errors
    /// As [`decode`].
    fn from_row(bytes: &[u8]) -> Result<Self, Unreadable> {
        decode(bytes)
    }
}

/// The bytes of a value, with the version of its form.
pub fn encode<V: Serialize + ?Sized>(value: &V) -> Vec<u8> {
    encode_as(FORM, value)
}

pub(crate) fn encode_as<V: Serialize + ?Sized>(form: u8, value: &V) -> Vec<u8> {
    // Plain data in memory: postcard has nothing to refuse there.
    postcard::to_extend(value, vec![form]).unwrap_or_default()
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// Another form, an unknown ordinal, or bytes missing or left over.
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
