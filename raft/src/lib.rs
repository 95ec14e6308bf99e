//! Makes the ledger replicated: what one node proposes is applied on all, in one order, exactly once.
//!
//! Called by the cluster crate, which proposes, reads and follows effects through a [`Replica`], and by
//! the binary, which starts it. The only crate that names openraft; none of its types is in what others
//! see here.
//!
//! What it promises:
//!
//! - **One order (P2).** A committed entry is applied on every node, in the order of the log, by the pure
//!   `apply` of `reveille-ledger`; an entry that can not be applied stops the node.
//! - **Durable.** A reply is given when the entry is on the disks of a majority and applied here or at
//!   the leader. After a crash the log opens to what was acknowledged, or the node does not start.
//! - **Stamped by one hand (P13, P18).** Commands enter the log with the epoch and the time of the term
//!   that stands, in the order in which they were stamped.
//! - **A time-out is not a failure.** Only [`ProposeError::Unknown`] may have happened; every other error
//!   is certain not to.
//! - **Loud.** A broken disk or invariant is a [`Fault`]: the node takes no further part, and its owner is
//!   told to stop it.
//!
//! What it is not: it knows no mail, no schedule and no lease; [`PeerService`] is where the application
//! answers its own questions of peers.
//!
//! Reading order: [`Replica`] (what can be asked), `start` (how it comes to life), `machine` and `applied`
//! (the one door in), `proposer` and `routing` (how a command becomes an entry), [`peer`] (what nodes ask of each
//! other), `archive` and `transfer` (snapshots), `state`; below them [`wal`], [`store`], [`snapshot`].

mod admission;
mod answer;
mod applied;
mod archive;
mod checkpoints;
pub mod crash;
mod drive;
mod fault;
mod hearing;
mod hint;
mod identity;
mod in_flight;
pub mod listen;
#[doc(hidden)]
pub mod log_store;
mod machine;
mod membership;
mod network;
mod options;
pub mod peer;
mod proposer;
mod replica;
mod role;
mod routing;
mod scales;
pub mod snapshot;
mod start;
mod state;
mod state_machine;
mod status;
pub mod store;
mod transfer;
#[doc(hidden)]
pub mod types;
pub mod wal;
mod watchdog;
mod wire;

pub use drive::Drive;
pub use fault::Fault;
pub use hearing::LEADERLESS_AFTER;
pub use hint::{Hint, Hints};
pub use identity::ClusterId;
pub use membership::{Member, MembershipError};
pub use options::Options;
pub use peer::{GrpcTransport, Hiccup, PeerService, Transport};
pub use proposer::{ProposeError, Stamp};
pub use replica::Replica;
pub use role::Role;
pub use routing::ReadError;
pub use status::{MemberStatus, Status};

/// This node's Raft.
type Raft = openraft::Raft<types::TypeConfig, state_machine::StateMachine>;
