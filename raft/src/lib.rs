//! Replicates the ledger: a command that one node proposes is applied on all nodes, in one order, exactly once.
//!
//! The binary starts a [`Replica`]; the cluster crate proposes, reads and follows effects through it. Only this crate
//! uses openraft. Guarantees: committed entries are applied in the order of the log (P2); a reply means that a majority
//! has the entry on disk and that it is applied; commands are stamped with the epoch and the time of the current
//! leadership (P13, P18); after an error other than [`ProposeError::Unknown`] the command has not happened; a broken
//! disk or invariant is a [`FatalError`], and the node stops.
//!
//! It knows no email, no schedule and no lease: [`Application`] requests between nodes are opaque bytes.
//!
//! Reading order: `replica`, `router`, `proposer`, `state_machine`, [`peer`], `election`, [`snapshot`], `archive`
//! (finished runs), `openraft_traits` (what openraft calls), [`wal`] (the log).

mod archive;
pub mod crash;
mod election;
mod execution;
mod fatal_error;
mod file_damage;
pub mod files;
mod handshakes;
mod identity;
mod injected_bugs;
mod known_peers;
pub mod listen;
mod membership;
pub mod offline;
mod open_connections;
#[doc(hidden)]
pub mod openraft_traits;
mod options;
pub mod peer;
mod proposer;
mod replica;
mod router;
mod scrub;
pub mod snapshot;
mod state_machine;
pub mod tls;
#[doc(hidden)]
pub mod types;
pub mod wal;
mod wire;

pub use archive::ArchiveError;
pub use election::leader_liveness::LEADERLESS_AFTER;
pub use election::role::Role;
pub use execution::Execution;
pub use fatal_error::FatalError;
pub use file_damage::FileDamage;
pub use handshakes::{AcceptedConnections, connections};
pub use identity::{ClusterId, assign_folder, cluster_of_folder};
pub use membership::{Member, MembershipError};
pub use options::ReplicaOptions;
pub use peer::log_interval::LogInterval;
pub use peer::{Application, GrpcTransport, PeerError, Transport};
pub use proposer::{EntryStamp, ProposeError};
pub use replica::Replica;
pub use replica::status::{MemberStatus, Status};
pub use router::ReadError;
pub use scrub::FileAtRest;
pub use state_machine::hint::{Hint, Hints};

/// openraft with this crate's types.
type Raft = openraft::Raft<types::TypeConfig, openraft_traits::state_machine::StateMachine>;
