//! The traits that openraft asks for, implemented on this crate's own parts: nothing else is in these files.

pub mod log_storage;
pub(crate) mod network;
pub(crate) mod state_machine;
