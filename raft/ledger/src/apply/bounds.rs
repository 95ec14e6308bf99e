//! Checks of sizes and policies that several families of commands share.

use crate::model::{Bounded, Impossible, Labels, NextInstant, Policies, Refusal};

pub(super) fn bounded(what: Bounded, value: usize, bound: usize) -> Result<(), Refusal> {
    if value <= bound { Ok(()) } else { Err(Refusal::TooLarge { what, bound: bound as u64 }) }
}

pub(super) fn labelled(labels: &Labels) -> Result<(), Refusal> {
    labels.check().map_err(|wrong| Impossible::Labels(wrong).into())
}

/// `min_gap` must not exceed the retention, so that earlier emails within the gap are still known (P17).
pub(super) fn gap_within_retention(policies: &Policies) -> Result<(), Refusal> {
    match policies.min_gap_ms > policies.retention_ms {
        true => Err(Impossible::GapAboveRetention.into()),
        false => Ok(()),
    }
}

/// `min_gap` compares address keys, and the ledger has keys of inline audiences only (P17).
pub(super) fn gap_needs_a_list(policies: &Policies, is_sealed: bool) -> Result<(), Refusal> {
    match policies.min_gap_ms > 0 && is_sealed {
        true => Err(Impossible::GapOfSealed.into()),
        false => Ok(()),
    }
}

/// The next instant must open within the window after it (`jitter`, P8).
pub(super) fn inside_window(next: Option<&NextInstant>, policies: &Policies) -> Result<(), Refusal> {
    match next.is_none_or(|next| next.is_within(policies.jitter_ms)) {
        true => Ok(()),
        false => Err(Impossible::OutsideWindow.into()),
    }
}
