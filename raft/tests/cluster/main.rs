//! Whole replicas, one and three: their guarantees to callers that propose, read and follow.
#![allow(missing_docs, clippy::unwrap_used)]

mod archive;
mod disks;
mod fatal_errors;
mod forged;
mod memory;
mod old_folders;
mod one_node;
mod partitions;
#[path = "../../ledger/tests/ledger/plain/mod.rs"]
mod plain;
mod scrub;
mod snapshots;
mod support;
mod three_nodes;
mod transport;
#[cfg(feature = "next-level")]
mod upgrade;
