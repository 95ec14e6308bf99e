//! The replicated state of this node: one thread applies committed entries to the ledger, all others read it.
//!
//! Called by `openraft_traits`, which passes entries and snapshots, and by [`crate::Replica`], which reads. Invariant: the
//! ledger and its position in the log change together, under the lock of the ledger.
//!
//! Reading order: `applied_state` (the ledger, its lock, its announcements), `apply_thread` (the only writer), `position`,
//! `hint` (effects), `checkpoints` (hashes that compare replicas).

pub(crate) mod applied_state;
pub(crate) mod apply_thread;
pub(crate) mod checkpoints;
pub(crate) mod hint;
pub(crate) mod position;
