//! The command that erases a person.

use serde::{Deserialize, Serialize};

use crate::model::{ArchivePartKey, Hash, RunId, ScheduleId};

/// Maximum number of audiences in an erasure. `apply` decodes and encodes each of them.
pub const ERASED_AUDIENCES_MAX: usize = 16;
/// Maximum size of the blocks and of the names of schedules and runs in an erasure, in bytes; a single block may be
/// larger. The entry stays below its limit.
pub const ERASED_BYTES_MAX: usize = 512 * 1024;

/// Arguments of [`Command::RecipientErase`](super::Command::RecipientErase). The proposer has found where the address
/// is, and repeats until it finds nothing. `apply` compares what it changes with the present state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipientErase {
    /// Tenant that erases the person.
    pub tenant: String,
    /// Address key of the person.
    pub key: String,
    /// Audiences of the state that have the person.
    pub audiences: Vec<ErasedAudience>,
    /// Blocks of the archive that have the person.
    pub blocks: Vec<ErasedBlock>,
}

/// An audience of the state that has the person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedAudience {
    /// Hash under which it is stored. A content of the state is named here too, without anything else, if only archived
    /// runs have it and their recipients are erased.
    pub audience: Hash,
    /// Number of the person in it.
    pub number: u32,
    /// For a sealed audience: the part that has the person, and the same part without the person. The proposer knows
    /// that the new part is on the disks of a majority (P20).
    pub part: Option<ErasedPart>,
    /// Schedules of the tenant that use it.
    pub schedules: Vec<ScheduleId>,
    /// Runs of the tenant in the state that use it.
    pub runs: Vec<RunId>,
}

/// The hashes of one part of a sealed audience, before and after a person is erased from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedPart {
    /// The part as it was sealed.
    pub former: Hash,
    /// The part without the person.
    pub erased: Hash,
}

/// A block of the archive that has the person, without the person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedBlock {
    /// Part of the archive that names the block.
    pub part: ArchivePartKey,
    /// The block with the person.
    pub former: Hash,
    /// All bytes of the block without the person.
    pub bytes: Vec<u8>,
}
