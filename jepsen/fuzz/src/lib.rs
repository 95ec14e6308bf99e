//! Random inputs for parsers of bytes from outside: valid bytes that were damaged, and texts made of fragments.
//!
//! A fuzz target is an ordinary test in a module `fuzz`, beside its parser, because most parsers are private. It checks
//! a property and not only that nothing panics: what was printed reads back the same, damage is detected, memory is
//! bounded. `cargo test fuzz` runs all of them for a moment, and `PROPTEST_CASES=1000000 cargo test fuzz` for long.

mod cases;

pub use cases::cases;

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A change of encoded bytes, at a random place.
#[derive(Clone, Debug)]
pub enum Damage {
    /// Replaces a byte.
    Set(Index, u8),
    /// Adds to a byte.
    Add(Index, u8),
    /// Inserts a byte.
    Insert(Index, u8),
    /// Removes a byte.
    Remove(Index),
    /// Removes all bytes from here on.
    Cut(Index),
}

/// Returns changes of which most keep the length.
pub fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<Index>;
    let byte = || prop_oneof![0_u8..8, Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    prop_oneof![
        6 => (place(), byte()).prop_map(|(place, byte)| Damage::Set(place, byte)),
        3 => (place(), select(vec![1, 255])).prop_map(|(place, by)| Damage::Add(place, by)),
        1 => (place(), byte()).prop_map(|(place, byte)| Damage::Insert(place, byte)),
        1 => place().prop_map(Damage::Remove),
        1 => place().prop_map(Damage::Cut),
    ]
}

/// Returns the bytes after these changes. They may be the same.
pub fn damaged(bytes: &[u8], damage: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for one in damage {
        let length = bytes.len();
        if length == 0 {
            break;
        }
        match one {
            Damage::Set(place, byte) => bytes[place.index(length)] = *byte,
            Damage::Add(place, by) => {
                let byte = &mut bytes[place.index(length)];
                *byte = byte.wrapping_add(*by);
            }
            Damage::Insert(place, byte) => bytes.insert(place.index(length), *byte),
            Damage::Remove(place) => drop(bytes.remove(place.index(length))),
            Damage::Cut(place) => bytes.truncate(place.index(length)),
        }
    }
    bytes
}

/// Returns the text after these changes. Bytes that are no UTF-8 are replaced.
pub fn damaged_text(text: &str, damage: &[Damage]) -> String {
    String::from_utf8_lossy(&damaged(text.as_bytes(), damage)).into_owned()
}

/// Returns texts of up to `most` of these fragments. One in ten is a random character instead.
pub fn text(fragments: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let fragment =
        prop_oneof![9 => select(fragments).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
    prop::collection::vec(fragment, 0..=most).prop_map(|parts| parts.concat())
}
