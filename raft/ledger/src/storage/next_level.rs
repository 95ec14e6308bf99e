//! A level that exists only in tests, so that they can upgrade to it (P23).
//!
//! It has one change of each kind that a release may make: a row with one more field, a limit of `apply`, a command.

use serde::{Deserialize, Serialize};

use crate::model::{CrashHistory, Incarnation, LEVEL_1, LedgerLimits, Node, RelayShare, Time};
use crate::storage::form::{FORM, RowForm, Unreadable, decode, decode_as, encode, encode_as};
use crate::storage::level::KNOWN;

/// A claim may have up to 512 recipients. Parts of audit records and of events are small. As many parts of events stay
/// as before, so that readers who wait for a leader miss none.
pub(crate) const LIMITS: LedgerLimits = LedgerLimits {
    slice_recipients_max: 512,
    audit_part_records: 8,
    audit_parts_max: 4,
    event_part_rows: 8,
    ..LEVEL_1
};

const NODE_FORM: u8 = FORM + 1;

/// [`Node`] in form 1, which has no `up_at`: `apply` does not set it before the level is raised, so no value is lost.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Node")]
struct NodeOfForm1 {
    name: String,
    incarnation: Incarnation,
    up_index: u64,
    level: u32,
    process_nonce: u64,
    revoked_index: u64,
    crashes: CrashHistory,
    has_revoked_claims: bool,
    drains: bool,
    share: RelayShare,
    #[serde(skip)]
    up_at: Option<Time>,
}

/// A row in form 1.
#[derive(Serialize, Deserialize)]
struct RowOfForm1(#[serde(with = "NodeOfForm1")] Node);

impl RowForm for Node {
    fn to_row(&self, level: u32) -> Vec<u8> {
        match level < KNOWN {
            true => encode(&RowOfForm1(self.clone())),
            false => encode_as(NODE_FORM, self),
        }
    }

    fn row_len(&self, level: u32) -> usize {
        self.to_row(level).len()
    }

    fn from_row(bytes: &[u8]) -> Result<Node, Unreadable> {
        match bytes.first() {
            Some(&NODE_FORM) => decode_as(NODE_FORM, bytes),
            _ => decode::<RowOfForm1>(bytes).map(|row| row.0),
        }
    }
}
