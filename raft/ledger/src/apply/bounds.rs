//! Checks of sizes and policies that several families of commands share.

use crate::model::{CommandRefusal, Content, Impossible, Labels, LedgerLimits, LimitedQuantity, NextInstant, Policies};

/// Refuses if the condition holds. Changes nothing otherwise.
pub(super) fn refuse_if(condition: bool, refusal: impl Into<CommandRefusal>) -> Result<(), CommandRefusal> {
    if condition { Err(refusal.into()) } else { Ok(()) }
}

pub(super) fn bounded(what: LimitedQuantity, value: usize, bound: usize) -> Result<(), CommandRefusal> {
    refuse_if(value > bound, CommandRefusal::TooLarge { what, bound: bound as u64 })
}

/// Checks the size of a content, and the number and the size of its attachments.
pub(super) fn content_bounded(content: &Content, limits: &LedgerLimits) -> Result<(), CommandRefusal> {
    bounded(LimitedQuantity::Attachments, content.attachments.len(), limits.attachments_max)?;
    let bytes = usize::try_from(content.attached_bytes()).unwrap_or(usize::MAX);
    bounded(LimitedQuantity::AttachmentBytes, bytes, limits.attachment_bytes_max)?;
    bounded(LimitedQuantity::ContentBytes, content.encoded_len(), limits.content_bytes_max)
}

pub(super) fn check_labels(labels: &Labels) -> Result<(), CommandRefusal> {
    labels.check().map_err(|wrong| Impossible::Labels(wrong).into())
}

/// `min_gap` must not exceed the retention, so that earlier emails within the gap are still known (P17).
pub(super) fn gap_within_retention(policies: &Policies) -> Result<(), CommandRefusal> {
    refuse_if(policies.min_gap_ms > policies.retention_ms, Impossible::GapAboveRetention)
}

/// `min_gap` compares address keys, and the ledger has keys of inline audiences only (P17).
pub(super) fn gap_needs_a_list(policies: &Policies, is_sealed: bool) -> Result<(), CommandRefusal> {
    refuse_if(policies.min_gap_ms > 0 && is_sealed, Impossible::GapOfSealed)
}

/// The next instant must open within the window after it (`jitter`, P8).
pub(super) fn inside_window(next: Option<&NextInstant>, policies: &Policies) -> Result<(), CommandRefusal> {
    refuse_if(next.is_some_and(|next| !next.is_within(policies.jitter_ms)), Impossible::OutsideWindow)
}
