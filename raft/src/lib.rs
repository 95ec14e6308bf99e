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
//! - **Loud.** A broken disk or invariant is a [`FatalError`]: the node takes no further part, and its owner is
//!   told to stop it.
//!
//! What it is not: it knows no email, no schedule and no lease. Requests of the application between nodes are opaque to
//! it ([`Application`]).
//!
//! Reading order: `replica` (what can be asked, start and stop), `proposer` (how a command becomes an entry),
//! `state_machine` (how an entry is applied), [`peer`] (what nodes ask of each other), `election`, [`snapshot`],
//! `openraft_traits` (what openraft calls), [`wal`] (the log), [`store`] (the mirror of the state).

pub mod crash;
mod election;
mod execution;
mod fatal_error;
mod identity;
pub mod listen;
mod membership;
#[doc(hidden)]
pub mod openraft_traits;
mod options;
pub mod peer;
mod proposer;
mod replica;
pub mod snapshot;
mod state_machine;
pub mod store;
#[doc(hidden)]
pub mod types;
pub mod wal;
mod wire;

pub use election::leader_liveness::LEADERLESS_AFTER;
pub use election::role::Role;
pub use execution::Execution;
pub use fatal_error::FatalError;
pub use identity::ClusterId;
pub use membership::{Member, MembershipError};
pub use options::Options;
pub use peer::{Application, GrpcTransport, PeerError, Transport};
pub use proposer::router::ReadError;
pub use proposer::{ProposeError, Stamp};
pub use replica::Replica;
pub use replica::status::{MemberStatus, Status};
pub use state_machine::hint::{Hint, Hints};

/// This node's Raft.
type Raft = openraft::Raft<types::TypeConfig, openraft_traits::state_machine::StateMachine>;
