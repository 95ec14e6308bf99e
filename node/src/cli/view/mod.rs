//! Output that several commands or checks have: how messages of the API, and the few objects that only the command line
//! has, are shown to users. What one command alone prints is in its file in `commands`.
//!
//! Programs get messages as the API's own JSON ([`crate::api_json`]), the same as over HTTP. Objects that only the
//! command line has are structs with camelCase names. So no message has a second struct here.

pub mod barrier;
pub mod campaign;
pub mod cluster;
pub mod doctor;
pub mod explain;
pub mod forecast;
pub mod history;
pub mod instant;
pub mod layout;
pub mod moved;
pub mod pool;
pub mod recipient;
pub mod run;
pub mod schedule;
pub mod scrub;
pub mod upgrade;
pub mod warning;

use prost::Name;
use serde::Serialize;
use serde_json::Value;

use crate::api_json::{self, word};
use crate::cli::instant::{duration_ms, text};
use crate::format;
use layout::{Cell, Tone, card, pairs, table};

/// An object that programs can read.
pub trait Json {
    /// Returns the object as JSON.
    fn json(&self) -> Value;
    /// Returns the names of its fields, for the head of CSV. Empty if only an object tells them.
    fn fields() -> Vec<String> {
        Vec::new()
    }
}

impl<M: Name> Json for M {
    fn json(&self) -> Value {
        api_json::of(self)
    }

    fn fields() -> Vec<String> {
        api_json::fields::<M>()
    }
}

/// An object that only the command line has, and that one command prints.
pub struct Own(pub Value);

impl Json for Own {
    fn json(&self) -> Value {
        self.0.clone()
    }
}

/// Implements `Json` for objects that only the command line has.
macro_rules! own_objects {
    ($($object:ty),* $(,)?) => {
        $(impl $crate::cli::view::Json for $object {
            fn json(&self) -> serde_json::Value {
                // Cannot fail: the objects are plain data with string keys.
                serde_json::to_value(self).unwrap_or_default()
            }
        })*
    };
}
pub(super) use own_objects;

own_objects!(doctor::DoctorView, moved::MovedView);

/// An object that can be printed, also as a row of a table if it has columns.
pub trait View: Json {
    /// Plural noun for the message about an empty list. Empty: no list has such objects.
    const NOUN: &'static str = "";
    /// Headings of the table.
    const COLUMNS: &'static [&'static str] = &[];
    /// Those of the headings that are left out if all their cells are empty.
    const OPTIONAL: &'static [&'static str] = &[];
    /// The field that `-o name` prints, as JSON has it.
    const NAME: &'static str = "name";
    /// Returns what `-o name` prints.
    fn name(&self) -> String {
        match &self.json()[Self::NAME] {
            Value::String(name) => name.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }
    /// Returns the cells of the row, one per heading.
    fn cells(&self) -> Vec<Cell> {
        Vec::new()
    }
    /// Returns the text for the user, without a final line end; with colours if `paint` is set.
    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }
}

/// The answer to a change: programs get the whole answer, people a text about it.
#[derive(Clone, Debug)]
pub struct Answer<'a, A> {
    answer: &'a A,
    name: String,
    text: String,
}

impl<'a, A> Answer<'a, A> {
    /// Creates it from the answer, what `-o name` prints, and the text for the user.
    pub fn new(answer: &'a A, name: impl Into<String>, text: impl Into<String>) -> Answer<'a, A> {
        Answer { answer, name: name.into(), text: text.into() }
    }
}

impl<A: Json> Json for Answer<'_, A> {
    fn json(&self) -> Value {
        self.answer.json()
    }

    fn fields() -> Vec<String> {
        A::fields()
    }
}

impl<A: Json> View for Answer<'_, A> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, _paint: bool) -> String {
        self.text.clone()
    }
}

/// Returns `None` for an empty text, which the API uses for a missing value.
pub fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
