//! Three complete nodes in one process, each with its own replica, actors and journal, and one mailbox for all.
//!
//! They communicate over the transport seam, so links can be cut in one direction or both (`network`). Each node has
//! its own runtime and can be killed at any moment; its folders stay (`cluster`). A node's dialogues can be stopped
//! before the gate (`valve`). The final check compares the mailbox's record with the ledgers of all nodes
//! (`reconciliation`).

mod archive;
mod attachments;
mod backups;
mod barriers;
mod clocks;
mod cluster;
mod leaders;
mod members;
mod network;
mod opt_outs;
mod owners;
mod parts;
mod reconciliation;
mod snapshots;
mod stops;
mod valve;
