//! Three nodes in one process, whole: replicas, stations and journals of their own, and one mailbox for all.
//!
//! They speak over the transport seam, so links can be cut, one way or both (`network`). Each node has a
//! runtime of its own, so it can be killed at any moment: its tasks vanish where they stand, its folders stay
//! (`cluster`). A node's dialogues can be stopped short of the gate (`valve`). What is judged is what the
//! mailbox wrote down, compared with the ledgers of all nodes (`reconciliation`).

mod barriers;
mod cluster;
mod leaders;
mod leaving;
mod network;
mod owners;
mod parts;
mod reconciliation;
mod snapshots;
mod stops;
#[path = "../support/mod.rs"]
mod support;
mod valve;
