//! Declares views of the API's messages: the fields of a view are a table, and their types convert the values.

use std::collections::BTreeMap;

use prost_types::{Duration, Timestamp};

use crate::cli::instant::{duration_ms, text};

/// Declares the view of a message. The value of a field is the message's field of the same name, converted by
/// [`Shown`], or else the expression behind `=`.
macro_rules! view {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $view:ident of $message:ty as $source:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $type:ty $(= $value:expr)?,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $visibility struct $view {
            $($(#[$field_attribute])* $field_visibility $field: $type,)*
        }

        impl From<$message> for $view {
            fn from($source: $message) -> $view {
                $($(let $field = $value;)?)*
                $view { $($field: $crate::cli::view::fields::field!($source $field $($value)?),)* }
            }
        }

        impl $crate::cli::view::fields::Shown<Option<$view>> for Option<$message> {
            fn shown(self) -> Option<$view> {
                self.map($view::from)
            }
        }

        impl $crate::cli::view::fields::Shown<$view> for Option<$message> {
            fn shown(self) -> $view {
                self.unwrap_or_default().into()
            }
        }
    };
}

/// The value of a field, which has its own name if it was computed before.
macro_rules! field {
    ($source:ident $field:ident) => {
        $crate::cli::view::fields::Shown::shown($source.$field)
    };
    ($source:ident $field:ident $value:expr) => {
        $field
    };
}

pub(super) use {field, view};

/// A value of the API that a view shows as `T`. The API has no null: an empty text or a zero stands for it.
pub trait Shown<T> {
    /// Returns the value as the view prints it.
    fn shown(self) -> T;
}

macro_rules! unchanged {
    ($($type:ty),*) => {
        $(impl Shown<$type> for $type {
            fn shown(self) -> $type {
                self
            }
        })*
    };
}

unchanged!(bool, f64, u32, u64, String, Option<f64>, Option<u32>, Option<u64>, Option<i64>, Option<String>, BTreeMap<String, String>);

macro_rules! null_if_default {
    ($($type:ty),*) => {
        $(impl Shown<Option<$type>> for $type {
            fn shown(self) -> Option<$type> {
                (self != <$type>::default()).then_some(self)
            }
        })*
    };
}

null_if_default!(f64, u32, u64, String);

impl<S, T: From<S>> Shown<Vec<T>> for Vec<S> {
    fn shown(self) -> Vec<T> {
        self.into_iter().map(T::from).collect()
    }
}

impl Shown<Option<String>> for Option<Timestamp> {
    fn shown(self) -> Option<String> {
        text(self.as_ref())
    }
}

impl Shown<Option<i64>> for Option<Duration> {
    fn shown(self) -> Option<i64> {
        self.as_ref().map(duration_ms)
    }
}

impl Shown<i64> for Option<Duration> {
    fn shown(self) -> i64 {
        self.as_ref().map(duration_ms).unwrap_or_default()
    }
}
