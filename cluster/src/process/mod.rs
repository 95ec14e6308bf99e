//! A node process: its shared state, its start and stop, its supervised actors, its clock and its answers to peers.

pub(crate) mod authority_follower;
mod base64_bytes;
pub(crate) mod cache;
pub mod clock;
pub mod context;
pub mod descriptions;
pub mod lease;
pub mod lifecycle;
pub(crate) mod limits;
pub mod peer_handler;
pub mod peer_messages;
pub(crate) mod proposal;
pub(crate) mod rate_limiter;
pub(crate) mod recent_mean;
pub mod secret;
pub(crate) mod state_comparison;
pub(crate) mod supervisor;
pub(crate) mod system_roots;
pub mod test_clock;
pub mod zones;
