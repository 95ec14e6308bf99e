//! Implementations of openraft's traits: log storage, state machine and network. Each delegates to a part of this
//! crate.

pub mod log_storage;
pub(crate) mod network;
pub(crate) mod state_machine;
