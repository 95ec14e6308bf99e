//! The position of a state: its last entry, and the membership and level at that entry, in memory and as bytes.

use prost::Message;
use reveille_ledger::Ledger;
use reveille_ledger::storage::Row;
use reveille_proto::peer::v1;

use crate::fatal_error::FatalError;
use crate::types::{LogId, StoredMembership};
use crate::wire;

/// The last entry in a state, and the membership and level at that entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AppliedPosition {
    pub last: Option<LogId>,
    pub membership: StoredMembership,
    /// Level of the ledger; 0 without an applied entry.
    pub level: u32,
}

/// Encodes a position.
pub(crate) fn encode_position(position: &AppliedPosition) -> Result<Vec<u8>, FatalError> {
    let (membership_id, membership) = wire::from_membership(&position.membership)
        .map_err(|error| FatalError::Broken(format!("a membership in force can not be written: {error}")))?;
    let last = position.last.as_ref().map(wire::from_log_id);
    let meta = v1::StatePlace { last, membership_id, membership, level: position.level };
    Ok(meta.encode_to_vec())
}

/// Decodes a position.
pub(crate) fn decode_position(bytes: &[u8]) -> Result<AppliedPosition, String> {
    let meta = v1::StatePlace::decode(bytes).map_err(|error| error.to_string())?;
    let membership = wire::to_membership(meta.membership_id, &meta.membership).map_err(|error| error.to_string())?;
    Ok(AppliedPosition { last: meta.last.as_ref().map(wire::to_log_id), membership, level: meta.level })
}

/// Fails if the level is above `highest`: such a state may have a meaning that this build does not know, even if the
/// build can read all of it (P23).
pub(crate) fn check_level(position: &AppliedPosition, highest: u32) -> Result<(), FatalError> {
    let level = position.level;
    if level > highest { Err(FatalError::AboveLevel { level, highest }) } else { Ok(()) }
}

/// Builds a ledger from rows. Fails if its applied index differs from the position.
pub(crate) fn assemble(
    position: AppliedPosition,
    rows: impl IntoIterator<Item = Row>,
) -> Result<(Ledger, AppliedPosition), String> {
    let ledger = Ledger::from_rows(rows).map_err(|error| error.to_string())?;
    let applied = ledger.head().applied;
    let last = position.last.map_or(0, |id| id.index);
    if applied != last {
        return Err(format!("its rows are those of entry {applied}, its position is {last}"));
    }
    Ok((ledger, position))
}
