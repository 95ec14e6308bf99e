//! Data that one handoff adds to the content, and the header fields for it.

use std::sync::LazyLock;

use reveille_ledger::ids::{Fence, RunId, Time};

use super::check::refuse;
use super::{ContentError, LIST_UNSUBSCRIBE_BYTES_MAX, mime};

/// Data that one handoff adds to the content. Only fence and date differ between attempts of one (run, recipient).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Result of [`message_id`], without angle brackets.
    pub message_id: String,
    /// The run, for the variable `run`.
    pub run: RunId,
    /// The claim's fence. `None`: neither `X-Reveille-Run` nor `X-Reveille-Fence` is written.
    pub fence: Option<Fence>,
    /// Ledger time of the claim.
    pub date: Time,
    /// Seed of the MIME boundary, fixed for the run.
    pub boundary_seed: [u8; 32],
    /// The recipient's ways to opt out, as written by `Unsubscribe::header`. `None`: the content is not bulk email.
    pub list_unsubscribe: Option<String>,
}

/// Returns the Message-ID of a (run, recipient), without angle brackets. It is the same for every attempt and differs
/// from all others, even after a restore (P21).
pub fn message_id(cluster: u128, cluster_incarnation: u64, run: RunId, recipient: u32, domain: &str) -> String {
    // Deriving the key costs as much as all that follows, so it is done once.
    static BEGUN: LazyLock<blake3::Hasher> =
        LazyLock::new(|| blake3::Hasher::new_derive_key("reveille 2026-11 message-id"));
    let mut hasher = BEGUN.clone();
    hasher.update(&cluster.to_be_bytes());
    hasher.update(&cluster_incarnation.to_be_bytes());
    hasher.update(&run.index.to_be_bytes());
    hasher.update(&run.place.to_be_bytes());
    hasher.update(&recipient.to_be_bytes());
    let mut id = String::with_capacity(41 + domain.len());
    for byte in hasher.finalize().as_bytes().iter().take(20) {
        id.extend(mime::hex(*byte, mime::LOWER));
    }
    id.push('@');
    id.push_str(domain);
    id
}

/// RFC 3834: automatic responders do not answer a message with this field.
pub(super) const AUTO_SUBMITTED: &str = "Auto-Submitted";

/// Writes the fields of a stamp. `auto_submitted` is true if no header of the content sets that field.
pub(super) fn write(out: &mut Vec<u8>, stamp: &Stamp, auto_submitted: bool) -> Result<(), ContentError> {
    let id = &stamp.message_id;
    let fits =
        id.len() <= 512 && id.contains('@') && id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte));
    if !fits {
        return refuse("stamp", "this message id cannot stand in a header");
    }
    let date = stamp.date.timestamp().to_zoned(jiff::tz::TimeZone::UTC);
    let date =
        jiff::fmt::rfc2822::to_string(&date).or_else(|_| refuse("stamp", "this date cannot stand in a header"))?;
    mime::field(out, "Date", &date);
    mime::field(out, "Message-ID", &format!("<{id}>"));
    if auto_submitted {
        mime::field(out, AUTO_SUBMITTED, "auto-generated");
    }
    if let Some(ways) = &stamp.list_unsubscribe {
        write_list_unsubscribe(out, ways)?;
    }
    if let Some(fence) = stamp.fence {
        mime::field(out, "X-Reveille-Run", &stamp.run.to_string());
        mime::field(out, "X-Reveille-Fence", &fence.to_string());
    }
    Ok(())
}

/// RFC 8058 requires both fields, and the relay's DKIM signature must cover both.
fn write_list_unsubscribe(out: &mut Vec<u8>, ways: &str) -> Result<(), ContentError> {
    let fits = ways.len() <= LIST_UNSUBSCRIBE_BYTES_MAX && ways.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !fits {
        return refuse("stamp", "this way to opt out cannot stand in a header");
    }
    // An address in angle brackets is never broken; the second one is written on a new line.
    mime::field(out, "List-Unsubscribe", &ways.replace(", ", ",\r\n "));
    mime::field(out, "List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    Ok(())
}
