//! Policies for a fixed-time pattern when the clocks change. They do not apply to interval patterns.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Policy for a local time that does not exist, because the clocks go forward over it.
///
/// A time on a date that does not exist at all is always skipped: an email for that date is not wanted on another day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DstGap {
    /// It fires at the first instant after the gap. Several times of one gap fire together.
    #[default]
    After,
    /// It fires later by the length of the gap: 02:30 becomes 03:30.
    Shift,
    /// It does not fire on that date.
    Skip,
}

/// Policy for a local time that exists twice, because the clocks go back over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DstOverlap {
    /// It fires before the clocks go back.
    #[default]
    First,
    /// It fires after the clocks went back.
    Second,
    /// It fires twice.
    Both,
}

/// Both policies for clock changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DstPolicies {
    /// Policy for local times that do not exist.
    pub gap: DstGap,
    /// Policy for local times that exist twice.
    pub overlap: DstOverlap,
}

/// A word is not a value of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// The word is not a value of `dst_gap`.
    #[error("`{0}` is no value of dst_gap; use after, shift or skip")]
    Gap(String),
    /// The word is not a value of `dst_overlap`.
    #[error("`{0}` is no value of dst_overlap; use first, second or both")]
    Overlap(String),
}

/// Implements `Display` and `FromStr` with one word for each value of a policy.
macro_rules! policy_words {
    ($policy:ident, $error:ident: $($word:literal => $value:ident),*) => {
        impl fmt::Display for $policy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($policy::$value => $word,)*
                })
            }
        }

        impl FromStr for $policy {
            type Err = PolicyError;

            fn from_str(text: &str) -> Result<$policy, PolicyError> {
                match text {
                    $($word => Ok($policy::$value),)*
                    other => Err(PolicyError::$error(other.to_string())),
                }
            }
        }
    };
}
policy_words!(DstGap, Gap: "after" => After, "shift" => Shift, "skip" => Skip);
policy_words!(DstOverlap, Overlap: "first" => First, "second" => Second, "both" => Both);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_read_back_what_they_print_and_name_their_values() {
        for gap in [DstGap::After, DstGap::Shift, DstGap::Skip] {
            assert_eq!(gap.to_string().parse(), Ok(gap));
        }
        for overlap in [DstOverlap::First, DstOverlap::Second, DstOverlap::Both] {
            assert_eq!(overlap.to_string().parse(), Ok(overlap));
        }
        let refused = "later".parse::<DstGap>().unwrap_err();
        assert_eq!(refused.to_string(), "`later` is no value of dst_gap; use after, shift or skip");
        assert!("After".parse::<DstOverlap>().is_err());
    }
}
