//! The replicated state of this node: one thread applies committed entries to the ledger, all others read it.
//!
//! `openraft_traits` passes entries and snapshots to it, and [`crate::Replica`] reads it. Invariant: the
//! ledger and its position in the log change together, under the lock of the ledger.
//!
//! Reading order: `applied_state` (the ledger, its lock, its notifications), `apply_thread` (the only writer),
//! `position`, `hint` (effects), `checkpoints` (hashes that compare replicas).

pub(crate) mod applied_state;
pub(crate) mod apply_thread;
pub(crate) mod checkpoints;
pub(crate) mod hint;
pub(crate) mod position;
