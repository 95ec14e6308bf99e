//! Stored values begin with the version of their form (P23).
//!
//! postcard has neither field names nor an optional tail: a struct with one more field cannot read what was written
//! before. So each stored row, each log entry and each kept content begins with a byte that names its form. All are in
//! form [`FORM`] today. A release that changes a stored struct keeps the former one as a type of its own with a
//! conversion, reads both forms, and writes the former one until the ledger's level is raised.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::Unreadable;

/// The only form so far.
pub const FORM: u8 = 1;

/// The bytes of a value, with the version of its form.
pub fn encode<V: Serialize + ?Sized>(value: &V) -> Vec<u8> {
    // Plain data in memory: postcard has nothing to refuse there.
    postcard::to_extend(value, vec![FORM]).unwrap_or_default()
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// Another form, an unknown ordinal, or bytes missing or left over.
pub fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, Unreadable> {
    match bytes.split_first() {
        Some((&FORM, value)) => match postcard::take_from_bytes(value) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(Unreadable(format!("{} bytes are left over", rest.len()))),
            Err(error) => Err(Unreadable(error.to_string())),
        },
        Some((form, _)) => Err(Unreadable(format!("it is in form {form}, and this build reads form {FORM}"))),
        None => Err(Unreadable("it is empty".to_owned())),
    }
}
