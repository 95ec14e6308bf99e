//! Texts that occur often: addresses, and names of runs and nodes. Each text is stored once for the whole process.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize};

/// An interned text, compared by its content. Its memory is never freed: a process judges one history.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    derive_more::Deref,
    derive_more::Display,
)]
pub struct Name(#[deref(forward)] &'static str);

/// The stored texts. They are in a tree, because a hash set would draw a random key, which changes a simulation.
static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = texts.get(text).copied();
        Name(known.unwrap_or_else(|| {
            let new: &'static str = Box::leak(text.into());
            texts.insert(new);
            new
        }))
    }
}

impl From<&String> for Name {
    fn from(text: &String) -> Name {
        text.as_str().into()
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        text.as_str().into()
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        String::deserialize(deserializer).map(Name::from)
    }
}

impl PartialEq<String> for Name {
    fn eq(&self, other: &String) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}
