//! Which entry a state is of: its position in the log, in memory and as bytes beside a stored state.

use prost::Message;
use reveille_ledger::Ledger;
use reveille_proto::peer::v1;

use crate::fatal_error::FatalError;
use crate::store::Row;
use crate::types::{LogId, StoredMembership};
use crate::wire;

/// How far the state is: the last entry in it, and the membership in force there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AppliedPosition {
    pub last: Option<LogId>,
    pub membership: StoredMembership,
    /// The ledger's level; 0 where no entry was applied.
    pub level: u32,
}

/// The bytes that say how far a state is.
pub(crate) fn encode_position(position: &AppliedPosition) -> Result<Vec<u8>, FatalError> {
    let (membership_id, membership) = wire::from_membership(&position.membership)
        .map_err(|error| FatalError::Broken(format!("a membership in force can not be written: {error}")))?;
    let last = position.last.as_ref().map(wire::from_log_id);
    let meta = v1::StatePlace { last, membership_id, membership, level: position.level };
    Ok(meta.encode_to_vec())
}

/// Reads what [`encode_place`] wrote.
pub(crate) fn decode_position(bytes: &[u8]) -> Result<AppliedPosition, String> {
    let meta = v1::StatePlace::decode(bytes).map_err(|error| error.to_string())?;
    let membership = wire::to_membership(meta.membership_id, &meta.membership).map_err(|error| error.to_string())?;
    Ok(AppliedPosition { last: meta.last.as_ref().map(wire::to_log_id), membership, level: meta.level })
}

/// P23: a state of a higher level may mean something that this build does not know, even where it can read all of it.
pub(crate) fn check_level(position: &AppliedPosition, highest: u32) -> Result<(), FatalError> {
    match position.level > highest {
        true => Err(FatalError::AboveLevel { level: position.level, highest }),
        false => Ok(()),
    }
}

/// A state made of rows, if they are one: a ledger whose applied index is that of its place.
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
