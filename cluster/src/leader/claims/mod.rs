//! From pending recipients to claims: what can be claimed, how much of it, and for which node.

pub(crate) mod cap;
pub mod claimable;
pub(crate) mod crash_backoff;
pub(crate) mod dispatcher;
pub(crate) mod fair_queue;
pub(crate) mod in_flight;
pub mod limits;
pub(crate) mod types;
