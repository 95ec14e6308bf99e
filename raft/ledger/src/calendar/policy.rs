//! What happens to a fixed-time pattern where the clocks change. Interval patterns take no part.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A local time that does not exist, because the clocks went forward over it.
///
/// Whatever the value, a time on a date that does not exist at all is skipped: an occurrence belongs
/// to its date, and a mail of a day that never was is wanted on no other day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DstGap {
    /// The first instant after the gap; times of one gap fall together there.
    #[default]
    After,
    /// Later by the gap's width: 02:30 becomes 03:30.
    Shift,
    /// Not at all on that date.
    Skip,
}

/// A local time that exists twice, because the clocks went back over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DstOverlap {
    /// Before the clocks go back.
    #[default]
    First,
    /// After the clocks went back.
    Second,
    /// Twice.
    Both,
}

/// Both knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DstPolicies {
    /// For local times that do not exist.
    pub gap: DstGap,
    /// For local times that exist twice.
    pub overlap: DstOverlap,
}

/// A word that is no value of its knob.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// Not a value of `dst_gap`.
    #[error("`{0}` is no value of dst_gap; use after, shift or skip")]
    Gap(String),
    /// Not a value of `dst_overlap`.
    #[error("`{0}` is no value of dst_overlap; use first, second or both")]
    Overlap(String),
}

impl fmt::Display for DstGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DstGap::After => "after",
            DstGap::Shift => "shift",
            DstGap::Skip => "skip",
        })
    }
}

impl FromStr for DstGap {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<DstGap, PolicyError> {
        match text {
            "after" => Ok(DstGap::After),
            "shift" => Ok(DstGap::Shift),
            "skip" => Ok(DstGap::Skip),
            other => Err(PolicyError::Gap(other.to_string())),
        }
    }
}

impl fmt::Display for DstOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DstOverlap::First => "first",
            DstOverlap::Second => "second",
            DstOverlap::Both => "both",
        })
    }
}

impl FromStr for DstOverlap {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<DstOverlap, PolicyError> {
        match text {
            "first" => Ok(DstOverlap::First),
            "second" => Ok(DstOverlap::Second),
            "both" => Ok(DstOverlap::Both),
            other => Err(PolicyError::Overlap(other.to_string())),
        }
    }
}

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
