//! Converts sled's panics and errors to [`StoreError`].
//!
//! sled 0.34 asserts while it reads: a flipped bit may be an `Err`, a panic in the caller, or a panic in a thread of sled. A
//! damaged mirror must not stop a node, so every call goes through [`guarded`].

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::StoreError;

/// Calls sled; a panic inside is damage. `doing` is verb and object.
///
/// `AssertUnwindSafe` holds because callers drop the database after any error, so its half-done state is never read. The panic hook of the process still runs: a hook that ends the process would end it here too.
pub(super) fn guarded<T>(doing: &'static str, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(StoreError::damaged(format!("panic while trying to {doing}: {}", text_of(&*panic))))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// What an error of sled means for the caller.
pub(super) fn from_sled(doing: &'static str, error: sled::Error) -> StoreError {
    match error {
        sled::Error::Io(source) if is_lock(&source) => StoreError::Busy,
        sled::Error::Io(source) if is_damage(source.kind()) => StoreError::damaged(format!("{doing}: {source}")),
        sled::Error::Io(source) => StoreError::io(doing, source),
        // Corruption, ReportableBug, Unsupported (its settings file is unreadable), CollectionNotFound: for a
        // store that only this code writes, each of them means that what lies there is not what was written.
        other => StoreError::damaged(format!("{doing}: {other}")),
    }
}

/// sled reports a foreign lock as `Other` with this text only.
fn is_lock(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.to_string().starts_with("could not acquire lock")
}

/// Errors that come from the content of the folder, not from the disk below it.
fn is_damage(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AlreadyExists, InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof,
    };
    matches!(kind, UnexpectedEof | InvalidData | InvalidInput | NotFound | NotADirectory | IsADirectory | AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_is_damage_with_its_words() {
        let error = guarded("open the state store", || -> Result<(), StoreError> { panic!("offset {} is odd", 7) });
        let words = error.unwrap_err().to_string();
        assert!(words.contains("open the state store") && words.contains("offset 7 is odd"), "{words}");
    }

    #[test]
    fn a_full_disk_and_a_lock_are_told_apart_from_damage() {
        let error = |kind, text: &str| from_sled("write a batch", sled::Error::Io(io::Error::new(kind, text)));
        assert!(matches!(error(io::ErrorKind::StorageFull, ""), StoreError::Full { .. }));
        assert!(matches!(error(io::ErrorKind::PermissionDenied, ""), StoreError::Io { .. }));
        assert!(matches!(error(io::ErrorKind::Other, "could not acquire lock on x"), StoreError::Busy));
        assert!(matches!(error(io::ErrorKind::UnexpectedEof, ""), StoreError::Damaged { .. }));
        assert!(matches!(from_sled("", sled::Error::Unsupported(String::new())), StoreError::Damaged { .. }));
    }
}
