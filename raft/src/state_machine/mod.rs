//! The replicated state of this node: one thread applies committed entries to the ledger, everything else reads it.
//!
//! Called by the openraft adapter (`openraft_traits`), which hands over entries and snapshots, and by [`crate::Replica`],
//! which reads. Invariant: the ledger and its position change together, under the lock of the ledger.
//!
//! Reading order: `applied_state` (the ledger, its lock and its announcements), `apply_thread` (the only writer),
//! `position` (which entry a state is of), `hint` (effects), `checkpoints` (hashes to compare replicas by),
//! `state_mirror` (the copy on disk).

pub(crate) mod applied_state;
pub(crate) mod apply_thread;
pub(crate) mod checkpoints;
pub(crate) mod hint;
pub(crate) mod position;
pub(crate) mod scales;
pub(crate) mod state_mirror;
