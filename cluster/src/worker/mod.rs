//! What a node does with its claims: from a claim to the settled outcome of each recipient.

pub(crate) mod claim;
pub(crate) mod claim_tasks;
pub(crate) mod context;
pub(crate) mod gate;
pub mod in_flight_handoffs;
pub(crate) mod injected_send;
pub mod journal;
pub(crate) mod lease_client;
pub(crate) mod outcome_metrics;
pub(crate) mod recovery;
pub(crate) mod settler;
pub(crate) mod tenant_queue;
