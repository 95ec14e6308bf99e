//! Claims of pending recipients: which recipients can be claimed, how many, and by which node.

pub(crate) mod cap;
pub mod claimable;
pub(crate) mod dispatcher;
pub(crate) mod fair_queue;
pub(crate) mod in_flight;
pub mod limits;
pub(crate) mod types;
